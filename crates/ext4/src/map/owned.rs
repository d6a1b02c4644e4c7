//! Every block an inode owns, those of its own tree included.

use std::collections::HashSet;

use uext4_ondisk::extent::ExtentNode;
use uext4_ondisk::indirect::{Reach, numbers};
use uext4_ondisk::inode::{FileType, InodeFlags, NDIR_BLOCKS};
use uext4_ondisk::{Ino, Lblk, Pblk};

use crate::base::error::Result;
use crate::inode::Inode;
use crate::journal::sbi::Sbi;
use crate::map::extents;
use crate::map::indirect;

/// A run of blocks with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    /// First block; not yet checked against the file system.
    pub(crate) start: Pblk,
    /// Blocks.
    pub(crate) len: u32,
    /// Where in the file they are; none for blocks of the tree.
    pub(crate) lblk: Option<Lblk>,
    /// Allocated but never written.
    pub(crate) unwritten: bool,
}

/// Whether the inode maps blocks at all.
pub(crate) fn maps_blocks(sbi: &Sbi, inode: &Inode) -> bool {
    if inode.has(InodeFlags::INLINE_DATA) {
        return false;
    }
    match inode.file_type {
        FileType::Regular | FileType::Directory => true,
        FileType::Symlink => !inode.is_fast_symlink(sbi),
        _ => false,
    }
}

/// Shows `visit` every run of blocks that belongs to the inode. `visit` says whether to go below
/// it, where the run is a node of the tree.
pub(crate) fn for_each_owned(
    sbi: &Sbi,
    inode: &Inode,
    visit: &mut dyn FnMut(Owned) -> bool,
) -> Result<()> {
    if !maps_blocks(sbi, inode) {
        return Ok(());
    }
    if !inode.has(InodeFlags::EXTENTS) {
        return indirect_blocks(sbi, inode, visit);
    }
    let root = ExtentNode::parse(&inode.i_block, None, None)?;
    let all = Within {
        from: 0,
        until: 1 << 32,
    };
    node(sbi, inode, root, None, all, visit)
}

/// The part of the file that the parents of a node leave it, in logical blocks.
#[derive(Clone, Copy, Debug)]
struct Within {
    from: u32,
    until: u64,
}

fn node(
    sbi: &Sbi,
    inode: &Inode,
    node_view: ExtentNode<'_>,
    at: Option<Pblk>,
    within: Within,
    visit: &mut dyn FnMut(Owned) -> bool,
) -> Result<()> {
    match node_view {
        ExtentNode::Leaf(entries) => {
            extents::check_within(entries, at, within.from, within.until)?;
            for extent in entries.iter().map(|raw| raw.get()) {
                visit(Owned {
                    start: extent.pblk,
                    len: extent.len.into(),
                    lblk: Some(extent.lblk),
                    unwritten: extent.unwritten,
                });
            }
        }
        ExtentNode::Index { depth, entries } => {
            let mut first_error = Ok(());
            for (i, entry) in entries.iter().enumerate() {
                let until = entries
                    .get(i + 1)
                    .map_or(within.until, |next| next.lblk().0.into());
                if entry.lblk().0 < within.from || until > within.until {
                    return Err(extents::out_of_order(at, i, entry.lblk()));
                }
                if !visit(tree_block(entry.leaf())) {
                    continue;
                }
                let below =
                    extents::read_node(sbi, inode, entry.leaf(), depth - 1).and_then(|bytes| {
                        let child = ExtentNode::parse(&bytes, Some(entry.leaf()), Some(depth - 1))?;
                        let from = entry.lblk().0;
                        let within = Within { from, until };
                        node(sbi, inode, child, Some(entry.leaf()), within, visit)
                    });
                first_error = first_error.and(below);
            }
            return first_error;
        }
    }
    Ok(())
}

fn tree_block(block: Pblk) -> Owned {
    Owned {
        start: block,
        len: 1,
        lblk: None,
        unwritten: false,
    }
}

fn indirect_blocks(sbi: &Sbi, inode: &Inode, visit: &mut dyn FnMut(Owned) -> bool) -> Result<()> {
    let root = numbers(&inode.i_block);
    // The data of the resize inode are the reserved descriptor blocks, which group metadata owns;
    // only its double indirect block is its own.
    if inode.ino == Ino::RESIZE {
        root.get(13)
            .filter(|n| n.get() != 0)
            .map(|n| visit(tree_block(Pblk(n.get().into()))));
        return Ok(());
    }
    let reach = Reach::new(sbi.geometry().block_size);
    let mut lblk = 0u64;
    let mut tables = HashSet::new();
    let mut first_error = Ok(());
    for (i, number) in root.iter().map(|n| n.get()).enumerate() {
        let level = i.saturating_sub(NDIR_BLOCKS - 1);
        if number != 0 {
            let branch = Branch {
                block: number,
                level,
                lblk,
            };
            first_error = first_error.and(table(sbi, reach, branch, &mut tables, visit));
        }
        lblk += if level == 0 { 1 } else { reach.size(level) };
    }
    first_error
}

/// What a number in a map without extents leads to.
#[derive(Clone, Copy, Debug)]
struct Branch {
    /// The block number.
    block: u32,
    /// 0 for a block of data; above it, for a table of numbers of the level below.
    level: usize,
    /// The first logical block that it maps.
    lblk: u64,
}

/// Visits what `branch` leads to. No table is gone through twice for
/// one file: that could go on for 2^42 blocks.
fn table(
    sbi: &Sbi,
    reach: Reach,
    branch: Branch,
    tables: &mut HashSet<u32>,
    visit: &mut dyn FnMut(Owned) -> bool,
) -> Result<()> {
    let Branch { level, lblk, .. } = branch;
    let block = Pblk(branch.block.into());
    if level == 0 {
        let lblk = Some(Lblk(lblk.min(u32::MAX.into()) as u32));
        visit(Owned {
            start: block,
            len: 1,
            lblk,
            unwritten: false,
        });
        return Ok(());
    }
    if !visit(tree_block(block)) || !tables.insert(branch.block) {
        return Ok(());
    }
    let data = indirect::read_table(sbi, block)?;
    let mut first_error = Ok(());
    for (i, below) in numbers(&data).iter().map(|n| n.get()).enumerate() {
        if below != 0 {
            let below = Branch {
                block: below,
                level: level - 1,
                lblk: lblk + i as u64 * reach.below(level),
            };
            first_error = first_error.and(table(sbi, reach, below, tables, visit));
        }
    }
    first_error
}

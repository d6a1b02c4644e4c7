//! Damage to block maps of direct and indirect block numbers.

use uext4_ondisk::Pblk;
use uext4_ondisk::inode::InodeFlags;

use super::target::{get32, put32};
use super::{Kind, Known, Node, Target};

/// A file with numbers of blocks, and the indirect block of this depth that it has.
fn indirect<'a>(t: &mut Target<'a>, depth: u16) -> Option<(&'a Known, Node)> {
    let first = t.geometry().first_ino;
    let is_meant = |node: &&Node| node.depth == depth;
    let known = t.inode_where(|k| {
        k.ino.0 > first && !k.has(InodeFlags::EXTENTS) && k.nodes.iter().any(|n| is_meant(&n))
    })?;
    let nodes: Vec<_> = known.nodes.iter().filter(is_meant).copied().collect();
    Some((known, t.one_of(&nodes)?))
}

/// A file with numbers of blocks in its inode.
fn direct<'a>(t: &mut Target<'a>) -> Option<&'a Known> {
    let first = t.geometry().first_ino;
    t.inode_where(|k| {
        k.ino.0 > first
            && k.is(uext4_ondisk::inode::FileType::Regular)
            && !k.has(InodeFlags::EXTENTS)
            && !k.blocks.is_empty()
            && get32(&k.raw.i_block, 0) != 0
    })
}

/// Changes the first number of an indirect block.
fn first(t: &mut Target<'_>, depth: u16, number: fn(&Target<'_>, Pblk) -> u32) -> Option<()> {
    let (known, node) = indirect(t, depth)?;
    let number = number(t, node.block?);
    t.node(known, node, |bytes| {
        let at = (0..bytes.len())
            .step_by(4)
            .find(|&at| get32(bytes, at) != 0);
        put32(bytes, at.unwrap_or(0), number);
    })
}

/// Changes a number in the inode.
fn in_inode(t: &mut Target<'_>, slot: usize, number: fn(&Target<'_>) -> u32) -> Option<()> {
    let known = direct(t)?;
    let number = number(t);
    t.inode(known.ino, |raw| put32(&mut raw.i_block, slot * 4, number))
}

fn outside(t: &Target<'_>) -> u32 {
    t.geometry().blocks_count as u32 + 11
}

fn table(t: &Target<'_>) -> u32 {
    t.clean.groups[0].inode_table.0 as u32
}

pub(super) const KINDS: &[Kind] = &[
    Kind::new("indirect-direct-outside", "", |t| in_inode(t, 0, outside)),
    Kind::new("indirect-direct-huge", "", |t| in_inode(t, 0, |_| u32::MAX)),
    Kind::new("indirect-direct-in-a-table", "", |t| in_inode(t, 0, table)),
    Kind::new("indirect-direct-in-the-superblock", "", |t| {
        in_inode(t, 0, |t| t.geometry().superblock_block().0 as u32 + 1)
    }),
    Kind::new("indirect-block-outside", "", |t| in_inode(t, 12, outside)),
    Kind::new("indirect-block-in-a-table", "", |t| in_inode(t, 12, table)),
    Kind::new("indirect-doubly-outside", "", |t| in_inode(t, 13, outside)),
    Kind::new("indirect-triply-outside", "", |t| in_inode(t, 14, outside)),
    Kind::new("indirect-triply-in-free-space", "", |t| {
        let free = t.free_block()?.0 as u32;
        let known = direct(t)?;
        t.inode(known.ino, |raw| put32(&mut raw.i_block, 56, free))
    }),
    Kind::new("indirect-number-outside", "", |t| {
        first(t, 0, |t, _| outside(t))
    }),
    Kind::new("indirect-number-in-a-table", "", |t| {
        first(t, 0, |t, _| table(t))
    }),
    Kind::new("indirect-number-of-itself", "", |t| {
        first(t, 0, |_, block| block.0 as u32)
    }),
    Kind::new("indirect-doubly-number-outside", "", |t| {
        first(t, 1, |t, _| outside(t))
    }),
    Kind::new("indirect-doubly-number-of-itself", "", |t| {
        first(t, 1, |_, block| block.0 as u32)
    }),
    Kind::new("indirect-triply-number-of-itself", "", |t| {
        first(t, 2, |_, block| block.0 as u32)
    }),
    Kind::new("indirect-block-zeroed", "", |t| {
        let (known, node) = indirect(t, 0)?;
        t.node(known, node, |bytes| bytes.fill(0))
    }),
    Kind::new("indirect-block-random-bytes", "", |t| {
        let (known, node) = indirect(t, 0)?;
        let mut random = t.random.clone();
        t.node(known, node, |bytes| {
            bytes.fill_with(|| random.next_u64() as u8)
        })
    }),
    Kind::new("indirect-doubly-zeroed", "", |t| {
        let (known, node) = indirect(t, 1)?;
        t.node(known, node, |bytes| bytes.fill(0))
    }),
    Kind::new("indirect-same-number-twice", "", |t| {
        let (known, node) = indirect(t, 0)?;
        t.node(known, node, |bytes| {
            let number = get32(bytes, 0);
            put32(bytes, 4, number);
        })
    }),
    Kind::new("indirect-all-numbers-the-same", "", |t| {
        let (known, node) = indirect(t, 0)?;
        t.node(known, node, |bytes| {
            let number = get32(bytes, 0).max(1);
            (0..bytes.len())
                .step_by(4)
                .for_each(|at| put32(bytes, at, number));
        })
    }),
    Kind::new("indirect-number-missing", "", |t| first(t, 0, |_, _| 0)),
];

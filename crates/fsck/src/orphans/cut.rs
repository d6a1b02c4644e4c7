//! Files that were to be cut at their size when the system went down: what their maps hold past it
//! is taken away in place. Nothing is freed here: the pass over inodes counts what maps hold.
//!
//! A map with damage is cut as far as it can be read; the pass over inodes judges the rest.

use std::collections::HashSet;

use uext4_ondisk::extent::{
    EXT4_MAX_EXTENT_DEPTH, Extent, ExtentNode, entries, header, index_entry, leaf_entry,
    put_entries, update_tail,
};
use uext4_ondisk::indirect::{LEVELS, Reach, number_at, put_numbers};
use uext4_ondisk::inode::{FileType, InodeFlags, NDIR_BLOCKS, RawInode};
use uext4_ondisk::num::{hi32, index, lo16, lo32};
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::held::Run;
use crate::mapping::is_fast_symlink;
use crate::report::Cause;
use crate::volume::Volume;

/// Most bytes of nodes that are read for all files together: maps of a hundred million blocks.
const BYTES_MAX: u64 = 256 << 20;

/// How much may still be read.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: BYTES_MAX }
    }
}

/// All that the map of an inode holds, as far as it can be read. Nothing is written.
///
/// # Errors
/// Of the device and of the overlay.
pub(super) fn all_of(
    volume: &Volume,
    ino: Ino,
    inode: &RawInode,
    cause: Cause,
    budget: &mut Budget,
) -> Result<Vec<Run>> {
    let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    let has_map = match FileType::from_mode(inode.i_mode.get()) {
        Some(FileType::Regular | FileType::Directory) => !flags.contains(InodeFlags::INLINE_DATA),
        Some(FileType::Symlink) => {
            !flags.contains(InodeFlags::INLINE_DATA) && !is_fast_symlink(inode)
        }
        _ => false,
    };
    if !has_map {
        return Ok(Vec::new());
    }
    let mut cutter = Cutter::new(volume, ino, inode, cause, budget);
    cutter.writes = false;
    cutter.whole(&mut inode.i_block.clone(), flags)?;
    Ok(cutter.runs)
}

/// Takes away what a regular file maps past its size, and returns it.
pub(super) fn cut(
    volume: &Volume,
    ino: Ino,
    inode: &RawInode,
    cause: Cause,
    budget: &mut Budget,
) -> Result<Vec<Run>> {
    let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    let kind = FileType::from_mode(inode.i_mode.get());
    if kind != Some(FileType::Regular) || flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(Vec::new());
    }
    let size = u64::from(inode.i_size_high.get()) << 32 | u64::from(inode.i_size_lo.get());
    let block_size = volume.geometry().block_size;
    // Of a cluster that is partly in the file all stays.
    let clusters = 1u64 << volume.geometry().cluster_bits;
    let end = block_size.blocks_for(size).next_multiple_of(clusters);
    let mut cutter = Cutter::new(volume, ino, inode, cause, budget);
    cutter.end = end;
    let mut i_block = inode.i_block;
    cutter.whole(&mut i_block, flags)?;
    let runs = cutter.runs;
    let freed: u64 = runs.iter().map(|run| run.len).sum();
    if freed == 0 {
        return Ok(runs);
    }
    let huge = flags.contains(InodeFlags::HUGE_FILE);
    let unit = if huge { 0 } else { block_size.log2() - 9 };
    volume.update_raw_inode(ino, cause, |inode| {
        let sectors =
            u64::from(inode.i_blocks_high.get()) << 32 | u64::from(inode.i_blocks_lo.get());
        let left = sectors.saturating_sub(freed << unit);
        inode.i_blocks_lo = lo32(left).into();
        inode.i_blocks_high = lo16(hi32(left)).into();
        inode.i_block = i_block;
    })?;
    Ok(runs)
}

struct Cutter<'a> {
    volume: &'a Volume,
    cause: Cause,
    /// First logical block that goes.
    end: u64,
    seed: Option<uext4_ondisk::checksum::CsumSeed>,
    budget: &'a mut Budget,
    /// The nodes of this file so far.
    nodes: HashSet<Pblk>,
    /// Blocks taken away, nodes included.
    runs: Vec<Run>,
    /// Whether what is left is stored.
    writes: bool,
}

impl<'a> Cutter<'a> {
    /// Of an inode of which nothing is left.
    fn new(
        volume: &'a Volume,
        ino: Ino,
        inode: &RawInode,
        cause: Cause,
        budget: &'a mut Budget,
    ) -> Self {
        let seed = volume.geometry().csum_seed;
        Self {
            volume,
            cause,
            end: 0,
            seed: seed.map(|seed| seed.inode(ino, inode.i_generation.get())),
            budget,
            nodes: HashSet::new(),
            runs: Vec::new(),
            writes: true,
        }
    }

    fn whole(&mut self, i_block: &mut [u8], flags: InodeFlags) -> Result<()> {
        match flags.contains(InodeFlags::EXTENTS) {
            true => self.node(i_block, None, None).map(|_| ()),
            false => self.numbers(i_block),
        }
    }

    /// Notes blocks that are taken away.
    fn free(&mut self, start: Pblk, len: u64) {
        if len == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.start.0.saturating_add(last.len) == start.0 => last.len += len,
            _ => self.runs.push(Run { start, len }),
        }
    }

    fn read(&mut self, block: Pblk) -> Result<Option<Vec<u8>>> {
        let geometry = self.volume.geometry();
        // A tree has no node twice; one that names itself would be cut for ever.
        if !geometry.contains(block, 1) || !self.nodes.insert(block) {
            return Ok(None);
        }
        let size = u64::from(geometry.block_size.bytes());
        let Some(left) = self.budget.bytes.checked_sub(size) else {
            return Ok(None);
        };
        self.budget.bytes = left;
        let mut bytes = vec![0; geometry.block_size.len()];
        self.volume.overlay().read_block(block, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Cuts an extent node and what is below. Returns whether anything is left of it.
    fn node(&mut self, node: &mut [u8], at: Option<Pblk>, depth: Option<u16>) -> Result<bool> {
        let Ok(parsed) = ExtentNode::parse(node, at, depth) else {
            return Ok(true);
        };
        let mut kept = Vec::new();
        let depth = match parsed {
            ExtentNode::Leaf(extents) => {
                for extent in extents {
                    let extent = extent.get();
                    kept.extend(self.keep(extent).map(leaf_entry));
                }
                0
            }
            ExtentNode::Index { depth, entries } if depth <= EXT4_MAX_EXTENT_DEPTH => {
                for entry in entries {
                    let (lblk, leaf): (Lblk, Pblk) = (entry.lblk(), entry.leaf());
                    let left = match self.read(leaf)? {
                        None => true,
                        Some(mut child) => {
                            let left = self.node(&mut child, Some(leaf), depth.checked_sub(1))?;
                            self.put(leaf, left, &child)?;
                            left
                        }
                    };
                    if left {
                        kept.push(index_entry(lblk, leaf));
                    } else {
                        self.free(leaf, 1);
                    }
                }
                depth
            }
            ExtentNode::Index { .. } => return Ok(true),
        };
        let Some(old) = header(node) else {
            return Ok(true);
        };
        let count = usize::from(old.eh_entries.get());
        if entries(node, count).as_bytes() != kept.as_bytes() {
            // An empty root is a leaf.
            let depth = if kept.is_empty() { 0 } else { depth };
            put_entries(node, old.eh_max.get(), depth, &kept);
        }
        Ok(!kept.is_empty())
    }

    /// What is left of an extent.
    fn keep(&mut self, extent: Extent) -> Option<Extent> {
        let start = u64::from(extent.lblk.0);
        let left = self.end.saturating_sub(start).min(extent.len.into());
        let gone = u64::from(extent.len).saturating_sub(left);
        self.free(Pblk(extent.pblk.0.saturating_add(left)), gone);
        let len = u16::try_from(left).ok().filter(|&len| len != 0)?;
        Some(Extent { len, ..extent })
    }

    fn put(&mut self, block: Pblk, left: bool, node: &[u8]) -> Result<()> {
        let seed = self.seed;
        if !left || !self.writes {
            return Ok(());
        }
        self.volume.overlay().update(block, self.cause, |bytes| {
            if bytes != node {
                bytes.copy_from_slice(node);
                if let Some(seed) = seed {
                    update_tail(bytes, seed);
                }
            }
        })
    }

    fn numbers(&mut self, i_block: &mut [u8]) -> Result<()> {
        for at in 0..NDIR_BLOCKS {
            let number = number_at(i_block, at);
            if at as u64 >= self.end && number != 0 {
                put_numbers(i_block, at, [0]);
                self.free(Pblk(number.into()), 1);
            }
        }
        let reach = Reach::new(self.volume.geometry().block_size);
        for level in 1..=LEVELS {
            let slot = NDIR_BLOCKS + level - 1;
            let table = number_at(i_block, slot);
            if table != 0 && !self.table(Pblk(table.into()), level, reach.first(level))? {
                put_numbers(i_block, slot, [0]);
            }
        }
        Ok(())
    }

    /// Cuts a table whose first data block is `first`. Returns whether anything is left of it.
    fn table(&mut self, block: Pblk, level: usize, first: u64) -> Result<bool> {
        let reach = Reach::new(self.volume.geometry().block_size);
        let whole = first.saturating_add(reach.size(level));
        if whole <= self.end {
            return Ok(true);
        }
        let Some(mut bytes) = self.read(block)? else {
            return Ok(true);
        };
        let count = index(self.volume.geometry().block_size.bytes() / 4);
        let mut left = false;
        for at in 0..count {
            let number = number_at(&bytes, at);
            let start = first.saturating_add(reach.below(level).saturating_mul(at as u64));
            if number == 0 {
                continue;
            }
            let keep = match level {
                1 => start < self.end,
                _ => self.table(Pblk(number.into()), level - 1, start)?,
            };
            if !keep {
                put_numbers(&mut bytes, at, [0]);
                // A table has been counted by itself.
                self.free(Pblk(number.into()), u64::from(level == 1));
            }
            left |= keep;
        }
        match left {
            true if !self.writes => {}
            true => {
                let changed = |old: &mut [u8]| old.copy_from_slice(&bytes);
                self.volume.overlay().update(block, self.cause, changed)?;
            }
            false => self.free(block, 1),
        }
        Ok(left)
    }
}

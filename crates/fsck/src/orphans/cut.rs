//! Files that were to be cut at their size when the system went down: what their maps hold past it
//! is taken away in place. Nothing is freed here: the pass over inodes counts what maps hold.
//!
//! A map with damage is cut as far as it can be read; the pass over inodes judges the rest.

use std::collections::HashSet;
use std::ops::Range;

use uext4_ondisk::extent::{
    EXT4_MAX_EXTENT_DEPTH, Extent, ExtentNode, entries, header, index_entry, leaf_entry,
    put_entries, update_tail, verify_tail,
};
use uext4_ondisk::indirect::{LEVELS, Reach, number_at, put_numbers};
use uext4_ondisk::inode::{FileType, InodeFlags, NDIR_BLOCKS, RawInode};
use uext4_ondisk::num::{hi32, index, lo16, lo32};
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::held::Held;
use crate::mapping::{MappedCluster, is_fast_symlink};
use crate::report::Cause;
use crate::volume::Volume;

/// What was taken away of a map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gone {
    /// How many clusters, nodes included.
    clusters: u64,
    /// How many of them an orphan held before, this one or another.
    pub again: u64,
    /// The first block outside the file system that the map names.
    pub outside: Option<Pblk>,
}

impl Gone {
    /// How many blocks, as `i_blocks` counts them.
    pub fn blocks(&self, volume: &Volume) -> u64 {
        self.clusters << volume.geometry().cluster_bits
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
    held: &mut Held,
) -> Result<Gone> {
    let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    let has_map = match FileType::from_mode(inode.i_mode.get()) {
        Some(FileType::Regular | FileType::Directory) => !flags.contains(InodeFlags::INLINE_DATA),
        Some(FileType::Symlink) => {
            !flags.contains(InodeFlags::INLINE_DATA) && !is_fast_symlink(inode)
        }
        _ => false,
    };
    if !has_map {
        return Ok(Gone::default());
    }
    let mut cutter = Cutter::new(volume, ino, inode, cause, held);
    cutter.writes = false;
    cutter.whole(&mut inode.i_block.clone(), flags)?;
    Ok(cutter.gone)
}

/// Takes away what a regular file maps past its size, and returns it.
pub(super) fn cut(
    volume: &Volume,
    ino: Ino,
    inode: &RawInode,
    cause: Cause,
    held: &mut Held,
) -> Result<Gone> {
    let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    let kind = FileType::from_mode(inode.i_mode.get());
    if kind != Some(FileType::Regular) || flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(Gone::default());
    }
    let size = u64::from(inode.i_size_high.get()) << 32 | u64::from(inode.i_size_lo.get());
    let block_size = volume.geometry().block_size;
    // Of a cluster that is partly in the file all stays.
    let clusters = 1u64 << volume.geometry().cluster_bits;
    let end = block_size.blocks_for(size).next_multiple_of(clusters);
    let mut cutter = Cutter::new(volume, ino, inode, cause, held);
    cutter.end = end;
    let mut i_block = inode.i_block;
    cutter.whole(&mut i_block, flags)?;
    let gone = cutter.gone;
    let freed = gone.blocks(volume);
    if freed == 0 {
        return Ok(gone);
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
    Ok(gone)
}

struct Cutter<'a> {
    volume: &'a Volume,
    ino: Ino,
    cause: Cause,
    /// First logical block that goes.
    end: u64,
    seed: Option<uext4_ondisk::checksum::CsumSeed>,
    held: &'a mut Held,
    /// The nodes of this file so far.
    nodes: HashSet<Pblk>,
    /// The cluster that the last blocks taken away ended in.
    last: Option<MappedCluster>,
    gone: Gone,
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
        held: &'a mut Held,
    ) -> Self {
        let seed = volume.geometry().csum_seed;
        Self {
            volume,
            ino,
            cause,
            end: 0,
            seed: seed.map(|seed| seed.inode(ino, inode.i_generation.get())),
            held,
            nodes: HashSet::new(),
            last: None,
            gone: Gone::default(),
            writes: true,
        }
    }

    fn whole(&mut self, i_block: &mut [u8], flags: InodeFlags) -> Result<()> {
        match flags.contains(InodeFlags::EXTENTS) {
            true => self.node(i_block, None, None).map(|_| ()),
            false => self.numbers(i_block),
        }
    }

    /// Notes blocks of the file, from logical block `lblk` on, that are taken away. Neighbours in
    /// one cluster have it once.
    fn free(&mut self, lblk: u64, start: Pblk, len: u64) {
        let geometry = self.volume.geometry();
        if len == 0 || !self.is_there(start, len) {
            return;
        }
        let bits = geometry.cluster_bits;
        let at = |skip: u64| MappedCluster {
            logical: lblk.saturating_add(skip) >> bits,
            physical: start.0.saturating_add(skip) >> bits,
        };
        let before = self.last.replace(at(len - 1));
        let mut clusters = self.held.clusters_of(geometry).of_blocks(start, len);
        if bits != 0 && before == Some(at(0)) {
            clusters.start = clusters.start.saturating_add(1).min(clusters.end);
        }
        self.note(clusters);
    }

    /// Notes a node that is taken away: it has a cluster of its own.
    fn free_node(&mut self, block: Pblk) {
        let geometry = self.volume.geometry();
        let cluster = self.held.clusters_of(geometry).of_blocks(block, 1);
        self.note(cluster);
    }

    fn note(&mut self, clusters: Range<u64>) {
        let count = clusters.end.saturating_sub(clusters.start);
        self.gone.clusters = self.gone.clusters.saturating_add(count);
        let again = self.held.add(self.volume.geometry(), self.ino, clusters);
        self.gone.again = self.gone.again.saturating_add(again);
    }

    /// Whether blocks lie in the file system; notes the first that do not.
    fn is_there(&mut self, start: Pblk, len: u64) -> bool {
        let is_there = self.volume.geometry().contains(start, len);
        if !is_there {
            self.gone.outside.get_or_insert(start);
        }
        is_there
    }

    fn read(&mut self, block: Pblk) -> Result<Option<Vec<u8>>> {
        let geometry = self.volume.geometry();
        if !self.is_there(block, 1) {
            return Ok(None);
        }
        // A tree has no node twice, and none that another orphan had: one that names itself would
        // be cut for ever, and one that all of them name as often as there are orphans.
        let held = self.held.clusters_of(geometry);
        if held.contains_any(held.of_blocks(block, 1)) || !self.nodes.insert(block) {
            self.gone.again = self.gone.again.saturating_add(1);
            return Ok(None);
        }
        let size = u64::from(geometry.block_size.bytes());
        let Some(left) = self.held.node_bytes.checked_sub(size) else {
            return Ok(None);
        };
        self.held.node_bytes = left;
        let mut bytes = vec![0; geometry.block_size.len()];
        self.volume.overlay().read_block(block, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Whether a node may be changed: not if its checksum says that it is damaged, or another
    /// file's.
    fn may_change(&self, block: Pblk, node: &[u8]) -> bool {
        let seed = self.seed.filter(|_| self.writes);
        seed.is_none_or(|seed| verify_tail(node, block, seed).is_ok())
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
                    let child = self.read(leaf)?;
                    let left = match child.filter(|child| self.may_change(leaf, child)) {
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
                        self.free_node(leaf);
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
        let first = Pblk(extent.pblk.0.saturating_add(left));
        self.free(start.saturating_add(left), first, gone);
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
                self.free(at as u64, Pblk(number.into()), 1);
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
                self.free(start, Pblk(number.into()), u64::from(level == 1));
            }
            left |= keep;
        }
        match left {
            true if !self.writes => {}
            true => {
                let changed = |old: &mut [u8]| old.copy_from_slice(&bytes);
                self.volume.overlay().update(block, self.cause, changed)?;
            }
            false => self.free_node(block),
        }
        Ok(left)
    }
}

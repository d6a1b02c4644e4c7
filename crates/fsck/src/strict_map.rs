//! Where the blocks of an inode of the file system itself are, before any pass has seen it.
//!
//! Stricter than the passes: a map with any damage is no map, for its file is then made anew or
//! restored from a copy.

use uext4_jbd2::LogRun;
use uext4_ondisk::extent::{EXT4_MAX_EXTENT_DEPTH, Extent, ExtentNode};
use uext4_ondisk::indirect::{LEVELS, number_at, numbers};
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags, NDIR_BLOCKS, RawInode};
use uext4_ondisk::{Lblk, Pblk};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// Most blocks of a map that are read: the longest journal, 10,240,000 blocks, has 40,156 at most.
const NODES_MAX: u32 = 1 << 16;

/// Runs of a map, the last ones, that are searched for a number which stands there twice.
const RUNS_SEARCHED: usize = 64;

/// Most numbers of a map that are filled in: of one with more nothing is known.
const FILLED_MAX: usize = 2;

/// The blocks of a file without holes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Runs; neighbours are joined.
    pub runs: Vec<LogRun>,
    /// Blocks in them.
    pub len: u32,
    /// Blocks that hold the map itself.
    pub nodes: u32,
    /// Numbers that cannot be, and what they must have been.
    pub filled: Vec<Filled>,
}

/// A number of a table that cannot be a block's, between two that say which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The block of the table.
    pub table: Pblk,
    /// Which number of it.
    pub index: usize,
    /// The number that is stored.
    pub found: u32,
    /// The number of the block.
    pub right: u32,
}

impl Map {
    /// The blocks of an inode. `None` if anything is wrong with its map, or if it has holes.
    ///
    /// # Errors
    /// Of the device and of the overlay: what cannot be read is no damage.
    pub fn of(volume: &Volume, inode: &RawInode) -> Result<Option<Self>> {
        Self::read(volume, inode, false)
    }

    /// As [`Map::of`], of a journal, whose log should not be given up for a number or two: its
    /// blocks were taken in one run. So a number of a table that is zero, outside or that of a
    /// block before it is filled in, where those on both sides leave room for one block.
    ///
    /// # Errors
    /// As [`Map::of`].
    pub fn of_journal(volume: &Volume, inode: &RawInode) -> Result<Option<Self>> {
        Self::read(volume, inode, true)
    }

    fn read(volume: &Volume, inode: &RawInode, fills: bool) -> Result<Option<Self>> {
        let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
        let mut reader = Reader {
            volume,
            budget: NODES_MAX,
            has_ended: false,
            fills,
            map: Self::default(),
            error: None,
        };
        let is_whole = reader.read(&inode.i_block, flags.contains(InodeFlags::EXTENTS));
        match reader.error {
            Some(error) => Err(error),
            None => Ok(is_whole.map(|()| reader.map)),
        }
    }

    /// The blocks of extents without holes between them.
    pub fn of_extents(extents: &[Extent]) -> Self {
        let run = |extent: &Extent| LogRun {
            start: extent.pblk,
            len: extent.len.into(),
        };
        Self {
            runs: extents.iter().map(run).collect(),
            len: extents.iter().map(|extent| u32::from(extent.len)).sum(),
            nodes: 0,
            filled: Vec::new(),
        }
    }

    /// Every block.
    pub fn blocks(&self) -> impl Iterator<Item = Pblk> + '_ {
        let run = |run: &LogRun| (run.start.0..).take(run.len as usize).map(Pblk);
        self.runs.iter().flat_map(run)
    }
}

struct Reader<'a> {
    volume: &'a Volume,
    budget: u32,
    /// A number was zero: what follows must be zero, too.
    has_ended: bool,
    /// Whether one that is missing is filled in, from those before and behind it.
    fills: bool,
    map: Map,
    /// Why a block could not be read: the walk ended there.
    error: Option<Error>,
}

impl Reader<'_> {
    fn read(&mut self, i_block: &[u8; I_BLOCK_LEN], extents: bool) -> Option<()> {
        if extents {
            self.node(i_block, None, None)?;
        } else {
            for index in 0..NDIR_BLOCKS {
                self.number(number_at(i_block, index))?;
            }
            for level in 1..=LEVELS {
                self.table(number_at(i_block, NDIR_BLOCKS + level - 1), level)?;
            }
        }
        let mut sorted: Vec<_> = self
            .map
            .runs
            .iter()
            .map(|run| (run.start.0, run.len))
            .collect();
        sorted.sort_unstable();
        let disjoint = sorted
            .windows(2)
            .all(|pair| pair[0].0.saturating_add(pair[0].1.into()) <= pair[1].0);
        disjoint.then_some(())
    }

    /// Appends blocks at a logical block, which must be the next one.
    fn add(&mut self, lblk: u32, start: Pblk, len: u32) -> Option<()> {
        let inside = self.volume.geometry().contains(start, len.into());
        if lblk != self.map.len || !inside {
            return None;
        }
        self.map.len = self.map.len.checked_add(len)?;
        match self.map.runs.last_mut() {
            Some(last) if last.start.0.saturating_add(last.len.into()) == start.0 => {
                last.len = last.len.checked_add(len)?;
            }
            _ => self.map.runs.push(LogRun { start, len }),
        }
        Some(())
    }

    fn block(&mut self, block: Pblk) -> Option<Vec<u8>> {
        let volume = self.volume;
        self.budget = self.budget.checked_sub(1)?;
        self.map.nodes = self.map.nodes.checked_add(1)?;
        if !volume.geometry().contains(block, 1) {
            return None;
        }
        let mut bytes = vec![0; volume.geometry().block_size.len()];
        match volume.overlay().read_block(block, &mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }

    fn node(&mut self, bytes: &[u8], at: Option<Pblk>, depth: Option<u16>) -> Option<()> {
        match ExtentNode::parse(bytes, at, depth).ok()? {
            ExtentNode::Leaf(extents) => {
                for extent in extents {
                    let extent = extent.get();
                    self.add(extent.lblk.0, extent.pblk, extent.len.into())?;
                }
            }
            ExtentNode::Index { depth, entries } if depth <= EXT4_MAX_EXTENT_DEPTH => {
                for entry in entries {
                    if entry.lblk() != Lblk(self.map.len) {
                        return None;
                    }
                    let child = self.block(entry.leaf())?;
                    self.node(&child, Some(entry.leaf()), Some(depth.checked_sub(1)?))?;
                }
            }
            ExtentNode::Index { .. } => return None,
        }
        Some(())
    }

    /// A number of a data block. Behind the last one all are zero.
    fn number(&mut self, number: u32) -> Option<()> {
        if number == 0 {
            self.has_ended = true;
            return Some(());
        }
        if self.has_ended {
            return None;
        }
        self.add(self.map.len, Pblk(number.into()), 1)
    }

    fn table(&mut self, number: u32, level: usize) -> Option<()> {
        if number == 0 {
            self.has_ended = true;
            return Some(());
        }
        if self.has_ended {
            return None;
        }
        let table = Pblk(number.into());
        let bytes = self.block(table)?;
        let numbers = numbers(&bytes);
        for (index, number) in numbers.iter().enumerate() {
            let next = numbers.get(index + 1).map(|next| next.get());
            match level.checked_sub(1)? {
                0 => {
                    let filled = self.filled(number.get(), next).map(|right| Filled {
                        table,
                        index,
                        found: number.get(),
                        right,
                    });
                    self.map.filled.extend(filled);
                    self.number(filled.map_or(number.get(), |filled| filled.right))?;
                }
                below => self.table(number.get(), below)?,
            }
        }
        Some(())
    }

    /// What a number that cannot be a block's must have been: the block between the last one and
    /// the next.
    fn filled(&self, number: u32, next: Option<u32>) -> Option<u32> {
        let last = self.map.runs.last()?;
        let right = last.start.0.checked_add(last.len.into())?;
        let is_between = next.is_some_and(|next| u64::from(next) == right.saturating_add(1));
        let may_fill = self.fills && self.map.filled.len() < FILLED_MAX;
        if !may_fill || self.has_ended || !is_between || u64::from(number) == right {
            return None;
        }
        let block = u64::from(number);
        let has = |run: &LogRun| (run.start.0..run.start.0 + u64::from(run.len)).contains(&block);
        let is_taken = self.map.runs.iter().rev().take(RUNS_SEARCHED).any(has);
        let can_be = number != 0 && self.volume.geometry().contains(Pblk(block), 1) && !is_taken;
        (!can_be).then(|| u32::try_from(right).ok()).flatten()
    }
}

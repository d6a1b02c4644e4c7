//! How far trees of indirect blocks reach: which table a logical block stands in.

use uext4_ondisk::inode::NDIR_BLOCKS;

use crate::base::disk::Disk;

/// Levels of the deepest tree.
pub(crate) const LEVELS: usize = 3;

/// How far the trees of one block size reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Binary logarithm of the numbers in a block.
    pub(crate) log: u32,
}

/// Part of a run of logical blocks that stands in one block of numbers, or in the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Levels of the tree that it is in; 0 for the numbers in the inode.
    pub(crate) tree: usize,
    /// Data block of the tree that it begins with.
    pub(crate) place: u64,
    pub(crate) len: u64,
}

impl Reach {
    pub(crate) fn new(disk: &Disk) -> Self {
        Self {
            log: disk.geometry().block_size.log2() - 2,
        }
    }

    /// Data blocks below one number in a block of `level`, which is 1 if they are data themselves.
    pub(crate) fn below(self, level: usize) -> u64 {
        1 << (self.log * (level as u32 - 1))
    }

    /// First logical block of the tree of `levels` levels.
    pub(crate) fn first(self, levels: usize) -> u64 {
        let direct = NDIR_BLOCKS as u64;
        match levels {
            0 => 0,
            _ => direct + (1..levels).map(|l| self.below(l + 1)).sum::<u64>(),
        }
    }

    /// Data blocks of the tree of `levels` levels.
    pub(crate) fn size(self, levels: usize) -> u64 {
        match levels {
            0 => NDIR_BLOCKS as u64,
            _ => self.below(levels + 1),
        }
    }

    /// Where a block stands, and as many of the `len` from it on as stand there too. None if it is
    /// out of reach.
    pub(crate) fn segment(self, lblk: u64, len: u64) -> Option<Segment> {
        let tree = (0..=LEVELS).find(|&t| lblk < self.first(t) + self.size(t))?;
        let place = lblk - self.first(tree);
        let table = self.size(tree.min(1));
        let room = table - place % table;
        Some(Segment {
            tree,
            place,
            len: len.min(room),
        })
    }

    /// Which number of a table of `level` leads to a place.
    pub(crate) fn index(self, place: u64, level: usize) -> usize {
        // OK to truncate: less than the numbers in a block.
        ((place >> (self.log * (level as u32 - 1))) & ((1 << self.log) - 1)) as usize
    }
}

//! Direct and indirect block numbers, as ext2 and ext3 map files: twelve numbers in the inode, then
//! trees of one, two and three levels of blocks that hold nothing but numbers.
//!
//! ```text
//! i_block:  number[0] … number[11] | single | double | triple
//! table:    number[0] … number[block_len / 4 - 1]      0: a hole, or no table
//! ```
//! A table of level 1 holds the numbers of data blocks, one of level `n` those of tables of level
//! `n - 1`.

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::inode::NDIR_BLOCKS;
use crate::num::{index, len32, len64, lo32};
use crate::units::BlockSize;

/// Levels of the deepest tree.
pub const LEVELS: usize = 3;

/// The shape of the trees, which follows from the block size.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Binary logarithm of the numbers in a block.
    pub log: u32,
}

/// Part of a run of logical blocks whose numbers lie in one table, or in the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Levels of its tree; 0 for the numbers in the inode.
    pub tree: usize,
    /// Its first data block, counted from the first one of the tree.
    pub place: u64,
    /// Blocks.
    pub len: u64,
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "levels are 1 to 4, and a table has 2^14 numbers at most: all sums have 43 bits"
)]
impl Reach {
    /// Of blocks of this size.
    pub const fn new(block_size: BlockSize) -> Self {
        Self {
            log: block_size.log2() - 2,
        }
    }

    /// Data blocks below one number in a table of `level`; 1 for a table of level 1.
    pub fn below(self, level: usize) -> u64 {
        1 << (self.log * (len32(level) - 1))
    }

    /// First logical block of the tree of `levels` levels; 0 levels are the numbers in the inode.
    pub fn first(self, levels: usize) -> u64 {
        match levels {
            0 => 0,
            _ => len64(NDIR_BLOCKS) + (1..levels).map(|l| self.size(l)).sum::<u64>(),
        }
    }

    /// Data blocks of the tree of `levels` levels.
    pub fn size(self, levels: usize) -> u64 {
        match levels {
            0 => len64(NDIR_BLOCKS),
            _ => self.below(levels + 1),
        }
    }

    /// Blocks of the largest file.
    pub fn blocks_max(self) -> u64 {
        self.first(LEVELS) + self.size(LEVELS)
    }

    /// Where the number of a logical block lies, and how many of the `len` blocks from it on have
    /// their numbers in the same table. `None` if it is out of reach.
    pub fn segment(self, lblk: u64, len: u64) -> Option<Segment> {
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
    pub fn index(self, place: u64, level: usize) -> usize {
        index(lo32(place >> (self.log * (len32(level) - 1))) & ((1 << self.log) - 1))
    }
}

/// The block numbers in `i_block` or a table; 0 means a hole.
pub fn numbers(bytes: &[u8]) -> &[U32] {
    // OK to default: both `i_block` and blocks are multiples of four bytes long.
    <[U32]>::ref_from_bytes(bytes).unwrap_or_default()
}

/// The number at `index` of `i_block` or a table; 0 past its end.
pub fn number_at(bytes: &[u8], index: usize) -> u32 {
    numbers(bytes).get(index).map_or(0, |n| n.get())
}

/// Stores numbers in `i_block` or a table from `first` on, as far as it goes.
pub fn put_numbers(bytes: &mut [u8], first: usize, numbers: impl IntoIterator<Item = u32>) {
    let Ok(all) = <[U32]>::mut_from_bytes(bytes) else {
        return;
    };
    for (slot, number) in all.iter_mut().skip(first).zip(numbers) {
        *slot = number.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_end_with_their_table() {
        let reach = Reach::new(BlockSize::MIN);
        let segment = |lblk, len| reach.segment(lblk, len).map(|s| (s.tree, s.place, s.len));
        assert_eq!(segment(0, 100), Some((0, 0, 12)));
        assert_eq!(segment(12, 1000), Some((1, 0, 256)));
        assert_eq!(segment(12 + 256 + 255, 7), Some((2, 255, 1)));
        assert_eq!(segment(12 + 256 + 65536, 7), Some((3, 0, 7)));
        assert_eq!(segment(reach.blocks_max(), 1), None);
        assert_eq!(reach.index(256 * 3 + 5, 1), 5);
        assert_eq!(reach.index(256 * 3 + 5, 2), 3);
    }

    #[test]
    fn numbers_that_are_put_are_read() {
        let mut table = [0; 16];
        put_numbers(&mut table, 2, 7..100);
        let read: Vec<u32> = numbers(&table).iter().map(|n| n.get()).collect();
        assert_eq!(read, [0, 0, 7, 8]);
        assert_eq!((number_at(&table, 3), number_at(&table, 4)), (8, 0));
    }
}

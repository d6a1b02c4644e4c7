//! The four kinds of number that must never be mixed up, and the block size.
//!
//! All are plain host integers in a newtype; the raw value is the public field. None is validated
//! by itself: [`crate::Geometry`] says which values exist on a given file system.

use std::fmt;

/// A physical block: its distance from the start of the file system, in file-system blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pblk(pub u64);

/// A logical block: its distance from the start of a file, in file-system blocks.
///
/// The largest a file may use is [`Lblk::LAST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lblk(pub u32);

impl Lblk {
    /// The last logical block a file may hold (the kernel's `EXT_MAX_BLOCKS - 1`).
    pub const LAST: Lblk = Lblk(u32::MAX - 1);
}

/// An inode number, counted from 1; 0 means "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u32);

impl Ino {
    /// List of bad blocks.
    pub const BAD_BLOCKS: Ino = Ino(1);
    /// The root directory.
    pub const ROOT: Ino = Ino(2);
    /// User quota file, by convention.
    pub const USER_QUOTA: Ino = Ino(3);
    /// Group quota file, by convention.
    pub const GROUP_QUOTA: Ino = Ino(4);
    /// Holder of the blocks reserved for growing the descriptor table.
    pub const RESIZE: Ino = Ino(7);
    /// The journal, by convention.
    pub const JOURNAL: Ino = Ino(8);
    /// First inode that is free for files on revision-0 file systems and by default.
    pub const GOOD_OLD_FIRST: Ino = Ino(11);
}

/// A block group, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNr(pub u32);

macro_rules! display_number {
    ($($t:ident),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_number!(Pblk, Lblk, Ino, GroupNr);

/// A block size: a power of two from 1 KiB to 64 KiB, stored as its binary logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(u32);

impl BlockSize {
    /// 1 KiB, the smallest.
    pub const MIN: BlockSize = BlockSize(10);
    /// 64 KiB, the largest.
    pub const MAX: BlockSize = BlockSize(16);

    /// From the binary logarithm of the size in bytes, 10 to 16.
    pub const fn from_log2(log2: u32) -> Option<Self> {
        if log2 >= 10 && log2 <= 16 {
            Some(Self(log2))
        } else {
            None
        }
    }

    /// From the size in bytes.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        if bytes.is_power_of_two() {
            Self::from_log2(bytes.trailing_zeros())
        } else {
            None
        }
    }

    /// Size in bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.0
    }

    /// Size in bytes, as a length.
    #[allow(clippy::len_without_is_empty)] // No block is empty.
    pub const fn len(self) -> usize {
        1 << self.0
    }

    /// Binary logarithm of the size in bytes.
    pub const fn log2(self) -> u32 {
        self.0
    }

    /// How many blocks hold `bytes` bytes, rounded up.
    pub const fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.0)
    }

    /// Byte offset of `block` from the start of the file system; `None` past 2⁶⁴ bytes.
    pub const fn byte_offset(self, block: Pblk) -> Option<u64> {
        block.0.checked_mul(1 << self.0)
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_size_bounds() {
        assert_eq!(BlockSize::from_bytes(1024), Some(BlockSize::MIN));
        assert_eq!(BlockSize::from_bytes(65536), Some(BlockSize::MAX));
        assert_eq!(BlockSize::from_bytes(512), None);
        assert_eq!(BlockSize::from_bytes(131_072), None);
        assert_eq!(BlockSize::from_bytes(3000), None);
    }

    #[test]
    fn blocks_round_up() {
        assert_eq!(BlockSize::MIN.blocks_for(0), 0);
        assert_eq!(BlockSize::MIN.blocks_for(1), 1);
        assert_eq!(BlockSize::MIN.blocks_for(1024), 1);
        assert_eq!(BlockSize::MIN.blocks_for(u64::MAX), 1 << 54);
    }
}

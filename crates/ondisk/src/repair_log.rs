//! The redo log of a repair, an addition of ours that lives only while a repair is written.
//!
//! ```text
//! superblock, at 0x3CC: pointer ──▶ header, runs │ numbers of blocks │ their contents
//! ```
//! The log lies in clusters that are free once the repair is done: in the runs that its first
//! block lists. The pointer stands in words of the superblock that no version of ext4 has given a
//! meaning; it is written when the log is durable, and taken away when all blocks are in their
//! places.
//!
//! Other programs ignore these words and keep them, so that a pointer may be found in a file
//! system that was in use since. Therefore it holds checksums of the superblock, as it was and as
//! the repair makes it: mounting, checking and tuning a file system change its superblock, and
//! with another superblock the log is out of date. There is a checksum for each sector, because
//! one of the two may have been written when the power went.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::num::{index, len32};
use crate::superblock::SuperBlock;

/// First bytes of the header.
pub const LOG_MAGIC: [u8; 8] = *b"uext4log";
/// First bytes of the pointer.
pub const POINTER_MAGIC: [u8; 4] = *b"uxRL";
/// Length of the header; the list of runs follows it, then zeroes up to the block's end.
pub const HEADER_LEN: usize = size_of::<RepairLogHeader>();
/// Length of an entry of the list of runs.
pub const RUN_LEN: usize = 16;
/// Most blocks of one repair: 2^32 numbers of eight bytes are no longer one.
pub const BLOCKS_MAX: u64 = 1 << 32;
/// Bytes of a sector, which is written whole or not at all.
const SECTOR_LEN: usize = 512;

/// Checksums of a superblock's two sectors, without the pointer and what follows it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct SuperblockSums {
    sectors: [U32; 2],
}

impl SuperblockSums {
    /// Of the 1,024 bytes of a superblock, which need not be one. Shorter bytes count as none.
    pub fn of(superblock: &[u8]) -> Self {
        let sum = |range| crc32c(!0, superblock.get(range).unwrap_or_default()).into();
        Self {
            sectors: [sum(0..SECTOR_LEN), sum(SECTOR_LEN..POINTER_OFFSET)],
        }
    }
}

/// The pointer in the superblock's reserved words.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RepairPointer {
    magic: [u8; 4],
    /// First byte of the log on the device.
    pub offset: U64,
    /// Bytes of the log.
    pub len: U64,
    /// The first eight bytes of the header's digest.
    pub digest: [u8; 8],
    /// The superblock before the repair.
    pub before: SuperblockSums,
    /// The superblock that the repair makes.
    pub after: SuperblockSums,
    checksum: U32,
}

/// Words of `s_reserved` before the pointer.
const WORDS_BEFORE: usize = 82;
/// Byte offset of the pointer in the superblock.
pub const POINTER_OFFSET: usize = offset_of!(SuperBlock, s_reserved) + 4 * WORDS_BEFORE;
/// Byte after the pointer.
const POINTER_END: usize = POINTER_OFFSET + size_of::<RepairPointer>();
const _: () = assert!(size_of::<RepairPointer>() == 48);
const _: () = assert!(POINTER_END == offset_of!(SuperBlock, s_checksum));

impl RepairPointer {
    /// The pointer to a log.
    pub fn new(offset: u64, len: u64, digest: [u8; 8]) -> Self {
        Self {
            magic: POINTER_MAGIC,
            offset: offset.into(),
            len: len.into(),
            digest,
            before: SuperblockSums::default(),
            after: SuperblockSums::default(),
            checksum: 0.into(),
        }
        .between(SuperblockSums::default(), SuperblockSums::default())
    }

    /// The same pointer for a repair that makes the one superblock the other.
    #[must_use]
    pub fn between(self, before: SuperblockSums, after: SuperblockSums) -> Self {
        let mut pointer = Self {
            before,
            after,
            ..self
        };
        pointer.checksum = pointer.sum().into();
        pointer
    }

    /// The pointer in the 1,024 bytes of a superblock, which need not be one otherwise.
    pub fn find(superblock: &[u8]) -> Option<Self> {
        let bytes = superblock.get(POINTER_OFFSET..)?;
        let (pointer, _) = Self::read_from_prefix(bytes).ok()?;
        let right = pointer.magic == POINTER_MAGIC && pointer.checksum.get() == pointer.sum();
        right.then_some(pointer)
    }

    /// Whether these 1,024 bytes are the superblock that the repair found, or the one that it
    /// makes, or a sector of each. If not, the file system was in use since.
    pub fn is_of(&self, superblock: &[u8]) -> bool {
        let is = SuperblockSums::of(superblock).sectors;
        let may_be = self.before.sectors.iter().zip(&self.after.sectors);
        let mut sectors = is.iter().zip(may_be);
        sectors.all(|(is, (before, after))| is == before || is == after)
    }

    /// Puts the pointer into the bytes of a superblock. Its checksum is the caller's business.
    pub fn store(&self, superblock: &mut [u8]) {
        if let Some(place) = superblock.get_mut(POINTER_OFFSET..POINTER_END) {
            place.copy_from_slice(self.as_bytes());
        }
    }

    /// Takes any pointer out of the bytes of a superblock.
    pub fn clear(superblock: &mut [u8]) {
        if let Some(place) = superblock.get_mut(POINTER_OFFSET..POINTER_END) {
            place.fill(0);
        }
    }

    /// Takes the pointer out of the bytes of a superblock, if there is one: words that are not one
    /// are not ours.
    pub fn take_from(superblock: &mut [u8]) {
        if Self::find(superblock).is_some() {
            Self::clear(superblock);
        }
    }

    fn sum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..offset_of!(Self, checksum)])
    }
}

/// The first block of the log.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RepairLogHeader {
    magic: [u8; 8],
    /// 2.
    version: U32,
    /// Bytes of a block, a power of two from 1,024 to 65,536.
    pub block_len: U32,
    /// Blocks that the repair changes.
    pub blocks: U64,
    /// SHA-256 of the runs, of the numbers, eight bytes each, and of the contents, all without
    /// padding.
    pub digest: [u8; 32],
    /// Entries of the list of runs, which follows this header in its block.
    pub runs: U32,
    checksum: U32,
}

impl RepairLogHeader {
    /// The header of a log.
    pub fn new(block_len: u32, blocks: u64, runs: u32, digest: [u8; 32]) -> Self {
        let mut header = Self::new_zeroed();
        header.magic = LOG_MAGIC;
        header.version = 2.into();
        header.block_len = block_len.into();
        header.blocks = blocks.into();
        header.digest = digest;
        header.runs = runs.into();
        header.checksum = header.sum().into();
        header
    }

    /// The header at the start of these bytes, if there is one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(bytes).ok()?;
        let right = header.magic == LOG_MAGIC
            && header.version.get() == 2
            && header.checksum.get() == header.sum()
            && header.blocks.get() <= BLOCKS_MAX
            && header.block_len.get().is_power_of_two()
            && (1024..=65536).contains(&header.block_len.get())
            && (1..=runs_max(header.block_len.get())).contains(&header.runs.get());
        right.then_some(header)
    }

    /// The bytes to write.
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn sum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..offset_of!(Self, checksum)])
    }
}

/// Runs that a log may have: as many as its first block has room for.
pub const fn runs_max(block_len: u32) -> u32 {
    len32(index(block_len).saturating_sub(HEADER_LEN) / RUN_LEN)
}

/// Blocks of a log that changes `blocks` blocks of `block_len` bytes: header, numbers, contents.
pub fn log_blocks(block_len: u32, blocks: u64) -> u64 {
    let numbers = blocks.saturating_mul(8).div_ceil(block_len.into());
    blocks.saturating_add(numbers).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_found_where_it_was_stored_and_nowhere_else() {
        let mut superblock = [0; 1024];
        assert!(RepairPointer::find(&superblock).is_none());
        RepairPointer::new(4096, 8192, [7; 8]).store(&mut superblock);
        let found = RepairPointer::find(&superblock).unwrap();
        assert_eq!(
            (found.offset.get(), found.len.get(), found.digest),
            (4096, 8192, [7; 8])
        );
        superblock[POINTER_OFFSET + 5] ^= 1;
        assert!(RepairPointer::find(&superblock).is_none());
        RepairPointer::clear(&mut superblock);
        assert_eq!(superblock, [0; 1024]);
        assert!(RepairPointer::find(&superblock[..1000]).is_none());
    }

    #[test]
    fn a_pointer_knows_its_superblock_by_each_sector() {
        let before = [1; 1024];
        let mut after = before;
        (after[52], after[700]) = (2, 2);
        let pointer = RepairPointer::new(4096, 8192, [7; 8])
            .between(SuperblockSums::of(&before), SuperblockSums::of(&after));
        for [mounts, other] in [[1, 1], [1, 2], [2, 1], [2, 2]] {
            let mut superblock = before;
            (superblock[52], superblock[700]) = (mounts, other);
            pointer.store(&mut superblock);
            let found = RepairPointer::find(&superblock).unwrap();
            assert!(found.is_of(&superblock));
            superblock[52] = 3;
            assert!(!found.is_of(&superblock));
        }
    }

    #[test]
    fn a_header_with_a_changed_byte_is_none() {
        let header = RepairLogHeader::new(4096, 3, 1, [1; 32]);
        assert_eq!(
            RepairLogHeader::parse(header.bytes()).unwrap().blocks.get(),
            3
        );
        for at in 0..HEADER_LEN {
            let mut bytes = header.bytes().to_vec();
            bytes[at] ^= 0x10;
            assert!(RepairLogHeader::parse(&bytes).is_none(), "byte {at}");
        }
    }
}

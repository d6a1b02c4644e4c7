//! The orphan file (`orphan_file`): inodes that are to be deleted or cut when no process has them
//! open.
//!
//! ```text
//! inode u32 | inode u32 | …  0 means "free slot"  … | magic u32 | checksum u32
//! ```
//! All its blocks look like this. Slots may be used in any order.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CsumSeed, crc32c, le64};
use crate::damage::Damage;
use crate::units::{Ino, Pblk};

/// `ob_magic`.
pub const EXT4_ORPHAN_BLOCK_MAGIC: u32 = 0x0B10_CA04;

/// Last bytes of every block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct OrphanBlockTail {
    pub ob_magic: U32,
    pub ob_checksum: U32,
}

/// Length of the tail.
pub const ORPHAN_TAIL_LEN: usize = size_of::<OrphanBlockTail>();

const _: () = {
    assert!(ORPHAN_TAIL_LEN == 8);
    assert!(offset_of!(OrphanBlockTail, ob_checksum) == 4);
};

/// Inodes a block of `block_len` bytes has slots for.
pub const fn inodes_per_block(block_len: usize) -> usize {
    block_len.saturating_sub(ORPHAN_TAIL_LEN) / 4
}

/// A validated block.
#[derive(Clone, Copy, Debug)]
pub struct OrphanBlock<'a> {
    slots: &'a [U32],
}

impl<'a> OrphanBlock<'a> {
    /// Validates the contents of physical block `block`; `seed` is that of the orphan file's inode,
    /// `None` without `metadata_csum`.
    ///
    /// # Errors
    /// [`Damage::Truncated`], [`Damage::Field`] for the magic, [`Damage::BlockChecksum`].
    pub fn parse(bytes: &'a [u8], block: Pblk, seed: Option<CsumSeed>) -> Result<Self, Damage> {
        let truncated = || Damage::truncated("orphan file block", ORPHAN_TAIL_LEN, bytes.len());
        let (body, tail) = OrphanBlockTail::ref_from_suffix(bytes).map_err(|_| truncated())?;
        if tail.ob_magic.get() != EXT4_ORPHAN_BLOCK_MAGIC {
            return Err(Damage::Field {
                structure: "orphan file block",
                field: "ob_magic",
                value: u64::from(tail.ob_magic.get()),
                why: "not 0x0b10ca04",
            });
        }
        if let Some(seed) = seed {
            let (stored, computed) = (tail.ob_checksum.get(), checksum(body, block, seed));
            Damage::check_sum("orphan file block", block, stored, computed)?;
        }
        let slots = <[U32]>::ref_from_bytes(body).map_err(|_| truncated())?;
        Ok(Self { slots })
    }

    /// All slots with their numbers; inode 0 is none.
    pub fn slots(&self) -> impl Iterator<Item = (u32, Ino)> + 'a {
        (0..).zip(self.slots.iter().map(|slot| Ino(slot.get())))
    }

    /// The orphans, in the order of their slots. Nothing says that they exist.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> + 'a {
        let numbers = self.slots.iter().map(|slot| slot.get());
        numbers.filter(|&ino| ino != 0).map(Ino)
    }
}

/// The sum over the slots: the file's inode seed, then the block's number, then the slots.
fn checksum(slots: &[u8], block: Pblk, seed: CsumSeed) -> u32 {
    crc32c(seed.over(&le64(block.0)), slots)
}

/// Writes the tail of physical block `block` after its slots; `bytes` is a whole block. `seed` is
/// that of the orphan file's inode, `None` without `metadata_csum`.
pub fn update_tail(bytes: &mut [u8], block: Pblk, seed: Option<CsumSeed>) {
    let Some(at) = bytes.len().checked_sub(ORPHAN_TAIL_LEN) else {
        return;
    };
    let (slots, room) = bytes.split_at_mut(at);
    let tail = OrphanBlockTail {
        ob_magic: EXT4_ORPHAN_BLOCK_MAGIC.into(),
        ob_checksum: seed.map_or(0, |seed| checksum(slots, block, seed)).into(),
    };
    room.copy_from_slice(tail.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_in_use_are_listed() {
        let mut bytes = [0; 1024];
        bytes[4] = 13;
        bytes[1012] = 14;
        update_tail(&mut bytes, Pblk(77), Some(CsumSeed(5)));
        let block = OrphanBlock::parse(&bytes, Pblk(77), Some(CsumSeed(5))).unwrap();
        assert_eq!(block.inodes().collect::<Vec<_>>(), [Ino(13), Ino(14)]);
        assert_eq!(inodes_per_block(1024), 254);
    }

    #[test]
    fn moved_block_is_noticed() {
        let mut bytes = [0; 1024];
        update_tail(&mut bytes, Pblk(77), Some(CsumSeed(5)));
        assert!(matches!(
            OrphanBlock::parse(&bytes, Pblk(78), Some(CsumSeed(5))),
            Err(Damage::BlockChecksum { .. })
        ));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = OrphanBlock::parse(&bytes, Pblk(1), None);
            update_tail(&mut bytes, Pblk(1), None);
            if let Ok(block) = OrphanBlock::parse(&bytes, Pblk(1), None) {
                assert!(block.inodes().count() <= bytes.len());
            }
        }
    }
}

//! Multiple mount protection: one block that any thread that has the file system open keeps
//! changing, so that a second host sees it is alive.
//!
//! Left out: the waiting. Reading ignores the block; it is parsed to be shown and checked.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::CsumSeed;
use crate::damage::Damage;
use crate::units::Pblk;

/// `mmp_magic`: "MMP".
pub const EXT4_MMP_MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq`: no process has the file system open.
pub const EXT4_MMP_SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// `mmp_seq`: a file-system check is running.
pub const EXT4_MMP_SEQ_FSCK: u32 = 0xE24D_4D50;
/// Largest `mmp_seq` of a mounted file system.
pub const EXT4_MMP_SEQ_MAX: u32 = 0xE24D_4D4F;
/// Length of the structure, at the start of its block.
pub const MMP_LEN: usize = 1024;

/// The raw structure.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct MmpBlock {
    pub mmp_magic: U32,
    pub mmp_seq: U32,
    pub mmp_time: U64,
    pub mmp_nodename: [u8; 64],
    pub mmp_bdevname: [u8; 32],
    pub mmp_check_interval: U16,
    pub mmp_pad1: U16,
    pub mmp_pad2: [U32; 226],
    pub mmp_checksum: U32,
}

const _: () = {
    assert!(size_of::<MmpBlock>() == MMP_LEN);
    assert!(offset_of!(MmpBlock, mmp_nodename) == 0x10);
    assert!(offset_of!(MmpBlock, mmp_check_interval) == 0x70);
    assert!(offset_of!(MmpBlock, mmp_checksum) == 0x3FC);
};

/// What `mmp_seq` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmpState {
    /// No process has the file system open.
    Clean,
    /// A file-system check has it.
    Fsck,
    /// A thread has it mounted, or lost it that way.
    Mounted,
}

impl MmpBlock {
    /// Reads the block `s_mmp_block` names; `seed` is the file system's.
    ///
    /// # Errors
    /// [`Damage::Truncated`], [`Damage::Field`] for magic and sequence,
    /// [`Damage::BlockChecksum`].
    pub fn parse(bytes: &[u8], block: Pblk, seed: Option<CsumSeed>) -> Result<Self, Damage> {
        let (mmp, _) = Self::read_from_prefix(bytes)
            .map_err(|_| Damage::truncated("MMP block", MMP_LEN, bytes.len()))?;
        let bad = |field, value: U32, why| Damage::Field {
            structure: "MMP block",
            field,
            value: u64::from(value.get()),
            why,
        };
        if mmp.mmp_magic.get() != EXT4_MMP_MAGIC {
            return Err(bad("mmp_magic", mmp.mmp_magic, "not 0x4d4d50"));
        }
        if let Some(seed) = seed {
            let (stored, computed) = (mmp.mmp_checksum.get(), mmp.checksum(seed));
            Damage::check_sum("MMP block", block, stored, computed)?;
        }
        match mmp.state() {
            Some(_) => Ok(mmp),
            None => Err(bad("mmp_seq", mmp.mmp_seq, "no such state")),
        }
    }

    /// What the sequence number says; `None` for values that mean nothing.
    pub fn state(&self) -> Option<MmpState> {
        match self.mmp_seq.get() {
            EXT4_MMP_SEQ_CLEAN => Some(MmpState::Clean),
            EXT4_MMP_SEQ_FSCK => Some(MmpState::Fsck),
            0..=EXT4_MMP_SEQ_MAX => Some(MmpState::Mounted),
            _ => None,
        }
    }

    /// crc32c of everything before `mmp_checksum`.
    pub fn checksum(&self, seed: CsumSeed) -> u32 {
        seed.over(&self.as_bytes()[..offset_of!(MmpBlock, mmp_checksum)])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn states() {
        let mut bytes = [0; MMP_LEN];
        bytes[..4].copy_from_slice(b"PMM\0");
        let mmp = MmpBlock::parse(&bytes, Pblk(9), None).unwrap();
        assert_eq!(mmp.state(), Some(MmpState::Mounted));
        bytes[4..8].copy_from_slice(b"PMM\xFF");
        let mmp = MmpBlock::parse(&bytes, Pblk(9), None).unwrap();
        assert_eq!(mmp.state(), Some(MmpState::Clean));
        bytes[7] = 0xFE;
        assert!(MmpBlock::parse(&bytes, Pblk(9), None).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(b"PMM\0");
            }
            let _ = MmpBlock::parse(&bytes, Pblk(9), Some(CsumSeed(1)));
            let _ = MmpBlock::parse(&bytes, Pblk(9), None);
        }
    }
}

//! Quota files of format v2 (revision 1), in 1,024-byte blocks of their own whatever the file
//! system's block size.
//!
//! ```text
//! block 0: header (8) | info (24)
//! block 1: root of a tree of four levels: 256 block numbers, chosen by one byte of the id each,
//!          the highest first; the fourth level names leaves
//! leaf:    header (16) | 14 entries of 72 bytes; an entry of zeroes is free
//! ```
//! Left out: following block numbers. [`tree_slot`] says which one to take.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::damage::Damage;
use crate::num::index;

/// Length of every block.
pub const QUOTA_BLOCK_LEN: usize = 1024;
/// Block of the tree's root.
pub const QUOTA_TREE_ROOT: u32 = 1;
/// Levels of the tree above the leaves.
pub const QUOTA_TREE_DEPTH: u32 = 4;
/// Entries in a leaf.
pub const QUOTA_ENTRIES_PER_LEAF: usize =
    (QUOTA_BLOCK_LEN - size_of::<QuotaLeafHeader>()) / size_of::<RawQuotaEntry>();
/// Bytes that block limits count in.
pub const QUOTA_LIMIT_UNIT: u64 = 1024;
/// `dqh_version` of revision 1, the only one in hidden quota files.
pub const QUOTA_VERSION_R1: u32 = 1;

/// Whose use a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKind {
    /// By user id.
    User,
    /// By group id.
    Group,
    /// By project id.
    Project,
}

impl QuotaKind {
    /// `dqh_magic` of such a file.
    pub const fn magic(self) -> u32 {
        match self {
            Self::User => 0xD9C0_1F11,
            Self::Group => 0xD9C0_1927,
            Self::Project => 0xD9C0_3F14,
        }
    }
}

/// Start of the file: what it is, and the file-wide settings.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct QuotaHeader {
    pub dqh_magic: U32,
    pub dqh_version: U32,
    pub dqi_bgrace: U32,
    pub dqi_igrace: U32,
    pub dqi_flags: U32,
    pub dqi_blocks: U32,
    pub dqi_free_blk: U32,
    pub dqi_free_entry: U32,
}

/// Start of a leaf, and of a free block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct QuotaLeafHeader {
    pub dqdh_next_free: U32,
    pub dqdh_prev_free: U32,
    pub dqdh_entries: U16,
    pub dqdh_pad1: U16,
    pub dqdh_pad2: U32,
}

/// Limits and use of one id. Block limits count 1,024 bytes, `dqb_curspace` bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct RawQuotaEntry {
    pub dqb_id: U32,
    pub dqb_pad: U32,
    pub dqb_ihardlimit: U64,
    pub dqb_isoftlimit: U64,
    pub dqb_curinodes: U64,
    pub dqb_bhardlimit: U64,
    pub dqb_bsoftlimit: U64,
    pub dqb_curspace: U64,
    pub dqb_btime: U64,
    pub dqb_itime: U64,
}

const _: () = {
    assert!(size_of::<QuotaHeader>() == 32);
    assert!(size_of::<QuotaLeafHeader>() == 16);
    assert!(size_of::<RawQuotaEntry>() == 72);
    assert!(QUOTA_ENTRIES_PER_LEAF == 14);
};

fn bad(field: &'static str, value: u32, why: &'static str) -> Damage {
    Damage::Field {
        structure: "quota file",
        field,
        value: u64::from(value),
        why,
    }
}

fn truncated(need: usize, bytes: &[u8]) -> Damage {
    Damage::truncated("quota file", need, bytes.len())
}

impl QuotaHeader {
    /// Reads block 0 of a file that is to count `kind`.
    ///
    /// # Errors
    /// [`Damage::Truncated`], and [`Damage::Field`] for the magic, another revision, or a free list
    /// that starts outside the file.
    pub fn parse(bytes: &[u8], kind: QuotaKind) -> Result<Self, Damage> {
        let (header, _) =
            Self::read_from_prefix(bytes).map_err(|_| truncated(size_of::<Self>(), bytes))?;
        if header.dqh_magic.get() != kind.magic() {
            return Err(bad("dqh_magic", header.dqh_magic.get(), "another kind"));
        }
        if header.dqh_version.get() != QUOTA_VERSION_R1 {
            return Err(bad("dqh_version", header.dqh_version.get(), "not 1"));
        }
        let blocks = header.dqi_blocks.get();
        for (field, block) in [
            ("dqi_free_blk", header.dqi_free_blk.get()),
            ("dqi_free_entry", header.dqi_free_entry.get()),
        ] {
            if block >= blocks {
                return Err(bad(field, block, "past dqi_blocks"));
            }
        }
        Ok(header)
    }
}

/// Which number of a tree block leads to `id`; `level` counts from 0 at the root to 3.
pub const fn tree_slot(id: u32, level: u32) -> usize {
    match level {
        0 => index(id >> 24),
        1 => index(id >> 16 & 0xFF),
        2 => index(id >> 8 & 0xFF),
        3 => index(id & 0xFF),
        _ => 0,
    }
}

/// The numbers of a tree block; 0 means nothing is below. Each must lie in `2..blocks`, where
/// `blocks` is `dqi_blocks`.
///
/// # Errors
/// [`Damage::Truncated`], [`Damage::Field`].
pub fn parse_tree_block(bytes: &[u8], blocks: u32) -> Result<&[U32], Damage> {
    let refs = bytes
        .get(..QUOTA_BLOCK_LEN)
        .and_then(|block| <[U32]>::ref_from_bytes(block).ok())
        .ok_or_else(|| truncated(QUOTA_BLOCK_LEN, bytes))?;
    let wrong = |n: u32| n != 0 && (n <= QUOTA_TREE_ROOT || n >= blocks);
    match refs.iter().find(|n| wrong(n.get())) {
        Some(n) => Err(bad("tree block", n.get(), "outside the file")),
        None => Ok(refs),
    }
}

/// The entries in use of a leaf.
///
/// # Errors
/// [`Damage::Truncated`], and [`Damage::Field`] if there are not as many as the leaf counts.
pub fn parse_leaf(bytes: &[u8]) -> Result<Vec<RawQuotaEntry>, Damage> {
    let short = || truncated(QUOTA_BLOCK_LEN, bytes);
    let block = bytes.get(..QUOTA_BLOCK_LEN).ok_or_else(short)?;
    let (header, body) = QuotaLeafHeader::ref_from_prefix(block).map_err(|_| short())?;
    let (slots, _) = <[RawQuotaEntry]>::ref_from_prefix_with_elems(body, QUOTA_ENTRIES_PER_LEAF)
        .map_err(|_| short())?;
    let used = slots
        .iter()
        .filter(|e| e.as_bytes().iter().any(|&b| b != 0));
    let entries: Vec<_> = used.copied().collect();
    let count = header.dqdh_entries.get();
    if usize::from(count) != entries.len() {
        return Err(bad("dqdh_entries", count.into(), "not the entries in use"));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn id_is_spelled_from_its_highest_byte() {
        let slots: Vec<_> = (0..4).map(|level| tree_slot(0x0102_03FF, level)).collect();
        assert_eq!(slots, [1, 2, 3, 255]);
        assert_eq!(tree_slot(!0, 4), 0);
    }

    #[test]
    fn free_list_outside_the_file_is_named() {
        let mut header = QuotaHeader {
            dqh_magic: QuotaKind::User.magic().into(),
            dqh_version: QUOTA_VERSION_R1.into(),
            dqi_bgrace: 604_800.into(),
            dqi_igrace: 604_800.into(),
            dqi_flags: 0.into(),
            dqi_blocks: 6.into(),
            dqi_free_blk: 0.into(),
            dqi_free_entry: 5.into(),
        };
        assert!(QuotaHeader::parse(header.as_bytes(), QuotaKind::User).is_ok());
        assert!(QuotaHeader::parse(header.as_bytes(), QuotaKind::Group).is_err());
        header.dqi_free_entry = 6.into();
        assert!(QuotaHeader::parse(header.as_bytes(), QuotaKind::User).is_err());
    }

    #[test]
    fn leaf_counts_its_entries() {
        let mut block = [0; QUOTA_BLOCK_LEN];
        block[8] = 1;
        assert!(parse_leaf(&block).is_err());
        block[16 + 72] = 7;
        let entries = parse_leaf(&block).unwrap();
        assert_eq!(entries[0].dqb_id.get(), 7);
        assert_eq!(entries.len(), 1);
    }

    #[test]
    fn tree_block_names_blocks_of_the_file() {
        let mut block = [0; QUOTA_BLOCK_LEN];
        block[0] = 5;
        assert!(parse_tree_block(&block, 6).is_ok());
        assert!(parse_tree_block(&block, 5).is_err());
        block[0] = 1;
        assert!(parse_tree_block(&block, 6).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..1100),
            blocks: u32,
            level: u32,
        ) {
            let _ = parse_tree_block(&bytes, blocks);
            let _ = parse_leaf(&bytes);
            let _ = tree_slot(blocks, level);
            if bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&[0x11, 0x1F, 0xC0, 0xD9, 1, 0, 0, 0]);
            }
            let _ = QuotaHeader::parse(&bytes, QuotaKind::User);
        }
    }
}

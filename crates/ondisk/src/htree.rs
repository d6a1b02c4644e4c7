//! Hashed directories: block 0 is the root, inner nodes and leaves follow.
//!
//! ```text
//! root:  "." record (12) | ".." record (rec_len to the end of the block) hiding:
//!        dx_root_info (8) | dx_countlimit in the place of entry 0's hash | entries … | tail
//! node:  one empty record of the whole block (8) hiding: entries … | tail
//! leaf:  an ordinary directory block
//! ```
//! Entry 0 has no hash of its own (it is 0): its place holds limit and count.
//! A hash with bit 0 set in an entry means: the leaf before continues with the same hash.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CsumSeed, crc32c};
use crate::damage::Damage;
use crate::dir_block::{DirFormat, NewEntry};
use crate::dir_entry::{DirEntryHeader, decode_rec_len, put};
use crate::num::{get32, len8, len16, put32};
use crate::units::{Ino, Lblk, Pblk};

/// Length of `dx_root_info`.
pub const DX_ROOT_INFO_LEN: usize = 8;
/// Length of an entry, and of the tail.
pub const DX_ENTRY_LEN: usize = 8;
/// Offset of ".." in block 0: after ".".
const DOTDOT_OFFSET: usize = 12;
/// Offset of `dx_root_info` in block 0: after "." and the head of "..".
pub const DX_ROOT_INFO_OFFSET: usize = 24;
/// Offset of the entries in block 0, for an `info_length` of 8.
pub const DX_ROOT_ENTRIES_OFFSET: usize = DX_ROOT_INFO_OFFSET + DX_ROOT_INFO_LEN;
/// Offset of the entries in an inner node.
pub const DX_NODE_ENTRIES_OFFSET: usize = 8;

/// Follows ".." in block 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct DxRootInfo {
    pub reserved_zero: U32,
    pub hash_version: u8,
    pub info_length: u8,
    pub indirect_levels: u8,
    pub unused_flags: u8,
}

/// Room and use of a node; lies over the hash of entry 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct DxCountLimit {
    pub limit: U16,
    pub count: U16,
}

/// Names whose hash is at least `hash` are in or below `block`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct DxEntry {
    pub hash: U32,
    pub block: U32,
}

/// After the room for `limit` entries, with `metadata_csum`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct DxTail {
    pub dt_reserved: U32,
    pub dt_checksum: U32,
}

const _: () = {
    assert!(size_of::<DxRootInfo>() == DX_ROOT_INFO_LEN);
    assert!(size_of::<DxCountLimit>() == 4);
    assert!(size_of::<DxEntry>() == DX_ENTRY_LEN);
    assert!(size_of::<DxTail>() == DX_ENTRY_LEN);
};

/// The entries of a validated root or inner node.
#[derive(Clone, Copy, Debug)]
pub struct DxNode<'a> {
    /// `limit`: entries there is room for.
    pub limit: u16,
    /// Entries in use, at least 1; the first has hash 0 whatever its bytes say.
    pub entries: &'a [DxEntry],
}

/// How the entries of a node lie in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxShape {
    /// Where they start: [`DX_ROOT_ENTRIES_OFFSET`] or [`DX_NODE_ENTRIES_OFFSET`].
    pub offset: usize,
    /// A checksum takes the place of the last entry.
    pub summed: bool,
}

impl DxShape {
    /// Entries that fit a node of `block_len` bytes.
    pub const fn limit(self, block_len: usize) -> usize {
        let room = block_len.saturating_sub(self.offset) / DX_ENTRY_LEN;
        room.saturating_sub(if self.summed { 1 } else { 0 })
    }
}

impl<'a> DxNode<'a> {
    /// Validates the entries of `block`.
    ///
    /// # Errors
    /// Those of [`DxNode::head`], and [`Damage::HtreeNode`] if hashes descend.
    pub fn parse(block: &'a [u8], shape: DxShape, at: Lblk) -> Result<Self, Damage> {
        let node = Self::head(block, shape, at)?;
        let mut pairs = node.entries.get(1..).unwrap_or_default().windows(2);
        if pairs.any(|w| w[0].hash.get() > w[1].hash.get()) {
            return Err(Damage::HtreeNode {
                lblk: at,
                why: "hashes descend",
                limit: node.limit,
                count: len16(node.entries.len()),
            });
        }
        Ok(node)
    }

    /// The entries of `block`, their order not looked at: what a lookup needs. Where hashes
    /// descend it ends in some leaf all the same.
    ///
    /// # Errors
    /// [`Damage::HtreeNode`] if the limit is not what a node of this size has room for, or the
    /// count exceeds it.
    pub fn head(block: &'a [u8], shape: DxShape, at: Lblk) -> Result<Self, Damage> {
        let bad = |why, limit: u16, count: u16| Damage::HtreeNode {
            lblk: at,
            why,
            limit,
            count,
        };
        let Some(rest) = block.get(shape.offset..) else {
            return Err(bad("no room for entries", 0, 0));
        };
        let Ok((cl, _)) = DxCountLimit::ref_from_prefix(rest) else {
            return Err(bad("no room for entries", 0, 0));
        };
        let (limit, count) = (cl.limit.get(), cl.count.get());
        // Directories that are encrypted and case-insensitive count one entry less in inner nodes.
        let expected = shape.limit(block.len());
        let in_node = shape.offset == DX_NODE_ENTRIES_OFFSET;
        if usize::from(limit) != expected && !(in_node && usize::from(limit) + 1 == expected) {
            return Err(bad("limit does not match the block size", limit, count));
        }
        if count == 0 || count > limit {
            return Err(bad("count", limit, count));
        }
        // OK to index: count <= limit, and limit is what fits.
        let body = &rest[..usize::from(count) * DX_ENTRY_LEN];
        let entries =
            <[DxEntry]>::ref_from_bytes(body).map_err(|_| bad("entries", limit, count))?;
        Ok(Self { limit, entries })
    }

    /// Hash from which entry `i` covers; 0 for the first.
    pub fn hash(&self, i: usize) -> u32 {
        if i == 0 {
            0
        } else {
            self.entries[i].hash.get()
        }
    }

    /// Logical block of entry `i`; the top four bits are reserved and ignored.
    pub fn block(&self, i: usize) -> Lblk {
        Lblk(self.entries[i].block.get() & 0x0FFF_FFFF)
    }

    /// Entry `i`.
    pub fn entry(&self, i: usize) -> IndexEntry {
        IndexEntry {
            hash: self.hash(i),
            block: self.block(i),
        }
    }

    /// Index of the last entry whose hash is at most `hash`.
    pub fn find(&self, hash: u32) -> usize {
        self.entries[1..].partition_point(|e| e.hash.get() <= hash)
    }
}

/// Whether block 0 of a directory with checksums is an htree root: ".." reaches to the end, where
/// the checksum of any other block is.
pub fn is_root(block: &[u8]) -> bool {
    let dotdot = block
        .get(DOTDOT_OFFSET..)
        .and_then(|rest| DirEntryHeader::ref_from_prefix(rest).ok());
    dotdot.is_some_and(|(header, _)| {
        let len = decode_rec_len(header.rec_len.get(), block.len());
        DOTDOT_OFFSET.saturating_add(len) == block.len()
    })
}

/// An entry of a node, in host form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The smallest hash below it; bit 0 is set where that hash begins in the leaf before.
    pub hash: u32,
    /// The logical block of the node or leaf that it leads to, below 2²⁸.
    pub block: Lblk,
}

impl From<IndexEntry> for DxEntry {
    fn from(entry: IndexEntry) -> Self {
        Self {
            hash: entry.hash.into(),
            block: entry.block.0.into(),
        }
    }
}

/// What a root says of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootHead {
    /// Code of the hash of names.
    pub hash_version: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
}

/// Where the entries of the node in logical block `lblk` start.
pub const fn entries_offset(lblk: Lblk) -> usize {
    match lblk.0 {
        0 => DX_ROOT_ENTRIES_OFFSET,
        _ => DX_NODE_ENTRIES_OFFSET,
    }
}

/// Writes a whole root. There are 1 to [`DxShape::limit`] entries, in ascending order of their
/// hashes; the first one's hash counts as 0. The checksum is to be computed.
pub fn fill_root(
    block: &mut [u8],
    format: DirFormat,
    dots: [NewEntry<'_>; 2],
    head: RootHead,
    entries: &[IndexEntry],
) {
    block.fill(0);
    let rest = block.len().saturating_sub(DOTDOT_OFFSET);
    for (entry, (at, len)) in dots.iter().zip([(0, DOTDOT_OFFSET), (DOTDOT_OFFSET, rest)]) {
        put(block, at, len, entry.ino, entry.name, entry.file_type);
    }
    put_root(block, format, head, entries);
}

/// Writes head and entries of a root anew; "." and ".." stay. Otherwise as [`fill_root`].
pub fn put_root(block: &mut [u8], format: DirFormat, head: RootHead, entries: &[IndexEntry]) {
    let info = DxRootInfo {
        reserved_zero: U32::ZERO,
        hash_version: head.hash_version,
        info_length: len8(DX_ROOT_INFO_LEN),
        indirect_levels: head.indirect_levels,
        unused_flags: 0,
    };
    let end = DX_ROOT_INFO_OFFSET + DX_ROOT_INFO_LEN;
    block[DX_ROOT_INFO_OFFSET..end].copy_from_slice(info.as_bytes());
    put_entries(block, DX_ROOT_ENTRIES_OFFSET, format, entries);
}

/// Writes an inner node into a block of zeroes; entries as of [`fill_root`].
pub fn fill_node(block: &mut [u8], format: DirFormat, entries: &[IndexEntry]) {
    put(block, 0, block.len(), Ino(0), b"", None);
    put_entries(block, DX_NODE_ENTRIES_OFFSET, format, entries);
}

/// Writes the entries of a node, with its limit and count; a place is left for the checksum, if
/// there are checksums.
fn put_entries(block: &mut [u8], offset: usize, format: DirFormat, entries: &[IndexEntry]) {
    let summed = format.summed;
    let limit = DxShape { offset, summed }.limit(block.len());
    let rest = &mut block[offset..];
    let (places, _) = rest.as_chunks_mut::<DX_ENTRY_LEN>();
    for (place, &entry) in places.iter_mut().zip(entries) {
        place.copy_from_slice(DxEntry::from(entry).as_bytes());
    }
    let count_limit = DxCountLimit {
        limit: len16(limit).into(),
        count: len16(entries.len()).into(),
    };
    rest[..size_of::<DxCountLimit>()].copy_from_slice(count_limit.as_bytes());
}

/// Puts an entry in front of entry `at`, which is 1 to the count; there is room for one more.
pub fn insert_entry(block: &mut [u8], offset: usize, at: usize, entry: IndexEntry) {
    let rest = &mut block[offset..];
    let Ok((cl, _)) = DxCountLimit::mut_from_prefix(rest) else {
        return;
    };
    let count = cl.count.get().saturating_add(1);
    cl.count = count.into();
    let (entries, _) = rest.as_chunks_mut::<DX_ENTRY_LEN>();
    let moved = &mut entries[at..count.into()];
    moved.rotate_right(1);
    moved[0].copy_from_slice(DxEntry::from(entry).as_bytes());
}

/// Drops all entries of a node but the first `count`, which is at least 1 and at most what it was.
pub fn truncate_entries(block: &mut [u8], offset: usize, count: usize) {
    if let Ok((cl, _)) = DxCountLimit::mut_from_prefix(&mut block[offset..]) {
        cl.count = len16(count).into();
    }
}

/// Offset of the checksum in the tail.
const DX_SUM_OFFSET: usize = offset_of!(DxTail, dt_checksum);

/// Where the checksum of a node is and what it should be: over the entries in use and everything
/// before them, then the tail with a zero sum. `None` if entries or tail do not fit.
fn node_checksum(
    block: &[u8],
    offset: usize,
    limit: u16,
    count: u16,
    seed: CsumSeed,
) -> Option<(usize, u32)> {
    let end = |entries: u16| offset.checked_add(DX_ENTRY_LEN.checked_mul(entries.into())?);
    let used = block.get(..end(count)?)?;
    let at = end(limit)?;
    let tail = block.get(at..)?.first_chunk::<DX_ENTRY_LEN>()?;
    let crc = crc32c(seed.over(used), &tail[..DX_SUM_OFFSET]);
    Some((at.saturating_add(DX_SUM_OFFSET), crc32c(crc, &[0; 4])))
}

/// Verifies the checksum of a root (`offset` [`DX_ROOT_ENTRIES_OFFSET`]) or inner node; `seed` is
/// the directory inode's.
///
/// # Errors
/// Those of [`DxNode::parse`], [`Damage::NoChecksum`] and [`Damage::BlockChecksum`].
pub fn verify_tail(
    bytes: &[u8],
    offset: usize,
    lblk: Lblk,
    block: Pblk,
    seed: CsumSeed,
) -> Result<(), Damage> {
    let summed = true;
    let node = DxNode::parse(bytes, DxShape { offset, summed }, lblk)?;
    let count = len16(node.entries.len());
    let Some((at, computed)) = node_checksum(bytes, offset, node.limit, count, seed) else {
        return Err(Damage::NoChecksum {
            structure: "htree node",
            block,
        });
    };
    Damage::check_sum("htree node", block, get32(bytes, at), computed)
}

/// Computes and stores the checksum of a node; does nothing if its limit leaves no room for one.
pub fn update_tail(bytes: &mut [u8], offset: usize, seed: CsumSeed) {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Ok((cl, _)) = DxCountLimit::read_from_prefix(rest) else {
        return;
    };
    let (limit, count) = (cl.limit.get(), cl.count.get());
    if let Some((at, sum)) = node_checksum(bytes, offset, limit, count, seed) {
        put32(bytes, at, sum);
    }
}

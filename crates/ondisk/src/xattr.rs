//! Extended attributes: entries that grow down from a header, values that grow up from the end.
//!
//! ```text
//! block:   header (32) | entry, entry, …, 4 zero bytes | free | values, each padded to 4
//! inode:   magic  (4)  | entry, entry, …, 4 zero bytes | free | values
//! ```
//! Value offsets count from the start of the block, or from the first entry in an inode.

mod hash;

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CsumSeed, crc32c, le32, le64};
use crate::damage::Damage;
pub use crate::damage::XattrPlace;
use crate::hash::CharSign;
use crate::num::{index, len8, len16, len32, len64, put32};
use crate::pack::PackError;
use crate::units::{Ino, Pblk};

pub use self::hash::{block_hash, ea_inode_hash, entry_hash, packed_hash};

/// `h_magic` of both headers.
pub const EXT4_XATTR_MAGIC: u32 = 0xEA02_0000;
/// Length of the header of a block.
pub const XATTR_BLOCK_HEADER_LEN: usize = 32;
/// Length of the header in an inode.
pub const XATTR_IBODY_HEADER_LEN: usize = 4;
/// Length of an entry before its name.
pub const XATTR_ENTRY_LEN: usize = 16;
/// Most inodes that may share one block.
pub const XATTR_REFCOUNT_MAX: u32 = 1024;
/// Longest name after its prefix.
pub const XATTR_NAME_MAX: usize = 255;
/// Largest value the system calls take.
pub const XATTR_SIZE_MAX: usize = 65536;

/// Header of a block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct XattrBlockHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// An entry before its name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct RawXattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

const _: () = {
    assert!(size_of::<XattrBlockHeader>() == XATTR_BLOCK_HEADER_LEN);
    assert!(size_of::<RawXattrEntry>() == XATTR_ENTRY_LEN);
};

/// Largest value of `e_value_size`, in an inode of its own.
pub const EXT4_XATTR_SIZE_MAX: u32 = 1 << 24;

/// `e_name_index` and the prefix it stands for, of what user space sees. Index 2 and 3 are whole
/// names. `system.` (7) and `system.richacl` (8) have no handler in the kernel and are never shown.
pub const NAME_PREFIXES: &[(u8, &str)] = &[
    (1, "user."),
    (2, "system.posix_acl_access"),
    (3, "system.posix_acl_default"),
    (4, "trusted."),
    (6, "security."),
    (10, "gnu."),
];

/// `e_name_index` of `user.`.
pub const INDEX_USER: u8 = 1;
/// `e_name_index` of the access ACL.
pub const INDEX_POSIX_ACL_ACCESS: u8 = 2;
/// `e_name_index` of the default ACL.
pub const INDEX_POSIX_ACL_DEFAULT: u8 = 3;
/// `e_name_index` of `system.`, where `system.data` of inline files lives.
pub const INDEX_SYSTEM: u8 = 7;
/// `e_name_index` of the encryption context, named "c".
pub const INDEX_ENCRYPTION: u8 = 9;
/// Suffix under [`INDEX_SYSTEM`] that holds the rest of inline data.
pub const INLINE_DATA_NAME: &[u8] = b"data";

/// Splits a full name into index and suffix, the longest prefix first; `None` for a namespace that
/// ext4 does not keep, or an empty suffix where one is needed.
pub fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
    let whole = |i: u8| matches!(i, INDEX_POSIX_ACL_ACCESS | INDEX_POSIX_ACL_DEFAULT);
    NAME_PREFIXES
        .iter()
        .filter_map(|&(index, prefix)| {
            Some((index, prefix.len(), name.strip_prefix(prefix.as_bytes())?))
        })
        .filter(|&(index, _, suffix)| whole(index) == suffix.is_empty())
        .max_by_key(|&(_, len, _)| len)
        .map(|(index, _, suffix)| (index, suffix))
}

/// The full name of an index and suffix; `None` for an index that user space never sees.
pub fn join_name(index: u8, suffix: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix) = NAME_PREFIXES.iter().find(|(i, _)| *i == index)?;
    Some([prefix.as_bytes(), suffix].concat())
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// In the same block or inode.
    Here(&'a [u8]),
    /// In the data of an inode of its own (`ea_inode`), `size` bytes long.
    Inode {
        /// The inode.
        ino: Ino,
        /// Bytes, up to [`EXT4_XATTR_SIZE_MAX`].
        size: u32,
    },
}

/// One attribute, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// `e_name_index`.
    pub index: u8,
    /// The name after its prefix.
    pub name: &'a [u8],
    /// The value, or where it is.
    pub value: XattrValue<'a>,
    /// `e_hash`: as stored, but for [`packed_hash`].
    pub hash: u32,
}

impl<'a> XattrEntry<'a> {
    /// An attribute whose value lies in the same block or inode, with its hash.
    pub fn here(index: u8, name: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            index,
            name,
            value: XattrValue::Here(value),
            hash: entry_hash(name, value, CharSign::Unsigned),
        }
    }

    /// An attribute whose value is the data of `ino`, `size` bytes with this [`ea_inode_hash`].
    pub fn in_inode(index: u8, name: &'a [u8], ino: Ino, size: u32, value_hash: u32) -> Self {
        Self {
            index,
            name,
            value: XattrValue::Inode { ino, size },
            hash: entry_hash(name, &le32(value_hash), CharSign::Unsigned),
        }
    }
}

/// Bytes an entry with a name of `name_len` takes.
pub const fn entry_len(name_len: usize) -> usize {
    name_len.saturating_add(XATTR_ENTRY_LEN + 3) & !3
}

/// Bytes a value of `len` takes.
pub const fn value_len(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// Validates and collects all entries of a region.
///
/// `region` is what value offsets count from (the whole block, or the inode from its first entry);
/// `first` is the offset of the first entry in it. `at` names it in errors.
///
/// # Errors
/// [`Damage::Xattr`].
pub fn parse_entries(
    region: &[u8],
    first: usize,
    at: XattrPlace,
) -> Result<Vec<XattrEntry<'_>>, Damage> {
    let mut entries = Vec::new();
    let mut offset = first;
    let mut lowest_value = region.len();
    loop {
        let bad = |why| Damage::Xattr {
            at,
            offset: len32(offset),
            why,
        };
        let rest = region.get(offset..).unwrap_or_default();
        if rest.len() < 4 {
            return Err(bad("list without an end"));
        }
        if rest[..4] == [0; 4] {
            break;
        }
        let (raw, body) =
            RawXattrEntry::ref_from_prefix(rest).map_err(|_| bad("entry past the end"))?;
        let name_len = usize::from(raw.e_name_len);
        let name = body
            .get(..name_len)
            .ok_or_else(|| bad("name past the end"))?;
        if name.contains(&0) {
            return Err(bad("name with a zero byte"));
        }
        let size = raw.e_value_size.get();
        let value = if raw.e_value_inum.get() != 0 {
            if size > EXT4_XATTR_SIZE_MAX {
                return Err(bad("value larger than 16 MiB"));
            }
            XattrValue::Inode {
                ino: Ino(raw.e_value_inum.get()),
                size,
            }
        } else {
            let value = match index(size) {
                // Where an empty value would lie says nothing, and the kernel does not look.
                0 => &[],
                size => {
                    let from = usize::from(raw.e_value_offs.get());
                    lowest_value = lowest_value.min(from);
                    let end = from.checked_add(size);
                    let value = end.and_then(|end| region.get(from..end));
                    value.ok_or_else(|| bad("value past the end"))?
                }
            };
            XattrValue::Here(value)
        };
        entries.push(XattrEntry {
            index: raw.e_name_index,
            name,
            value,
            hash: packed_hash(raw, name, region),
        });
        offset = offset.saturating_add(entry_len(name_len));
    }
    if lowest_value < offset.saturating_add(4) {
        return Err(Damage::Xattr {
            at,
            offset: len32(lowest_value),
            why: "value overlaps the entries",
        });
    }
    Ok(entries)
}

/// The entries of a list that is to be written again, as [`parse_entries`]. Values that share
/// bytes are read, but there is no room to write each of them.
///
/// # Errors
/// [`Damage::Xattr`], also if the values share bytes.
pub fn parse_disjoint_entries(
    region: &[u8],
    first: usize,
    at: XattrPlace,
) -> Result<Vec<XattrEntry<'_>>, Damage> {
    let entries = parse_entries(region, first, at)?;
    if entries_len(&entries) > region.len().saturating_sub(first) {
        return Err(Damage::Xattr {
            at,
            offset: u32::try_from(first).unwrap_or(u32::MAX),
            why: "values share bytes",
        });
    }
    Ok(entries)
}

/// Bytes that `entries` take in a region from its first entry on, with the end of the list.
pub fn entries_len(entries: &[XattrEntry<'_>]) -> usize {
    let one = |entry: &XattrEntry<'_>| {
        let value = match entry.value {
            XattrValue::Here(value) => value_len(value.len()),
            XattrValue::Inode { .. } => 0,
        };
        entry_len(entry.name.len()).saturating_add(value)
    };
    entries.iter().map(one).fold(4, usize::saturating_add)
}

/// Where nothing lies between the list of these entries and their values, in a region of `room`
/// bytes that begins with the first entry; empty if they do not fit.
pub fn entries_gap(room: usize, entries: &[XattrEntry<'_>]) -> Range<usize> {
    let names = entries.iter().map(|entry| entry_len(entry.name.len()));
    let list = names.fold(4, usize::saturating_add);
    let values = entries_len(entries).saturating_sub(list);
    list..room.saturating_sub(values)
}

/// Writes `entries` in this order into a block of zeroes, and returns the hash for its header,
/// which [`put_block_header`] writes.
///
/// # Errors
/// [`PackError::XattrName`] and [`PackError::XattrsTooBig`], and nothing is written.
pub fn pack_block(block: &mut [u8], entries: &[XattrEntry<'_>]) -> Result<u32, PackError> {
    check_fit(block.len().saturating_sub(XATTR_BLOCK_HEADER_LEN), entries)?;
    put_entries(block, XATTR_BLOCK_HEADER_LEN, entries);
    Ok(block_hash(entries.iter().map(|entry| entry.hash)))
}

/// Writes the attributes within an inode, `entries` in this order: `region` is what lies behind the
/// inode's fields.
///
/// # Errors
/// [`PackError::XattrName`] and [`PackError::XattrsTooBig`], and nothing is written.
pub fn pack_body(region: &mut [u8], entries: &[XattrEntry<'_>]) -> Result<(), PackError> {
    check_fit(region.len().saturating_sub(XATTR_IBODY_HEADER_LEN), entries)?;
    region.fill(0);
    let (magic, rest) = region.split_at_mut(XATTR_IBODY_HEADER_LEN);
    magic.copy_from_slice(&le32(EXT4_XATTR_MAGIC));
    put_entries(rest, 0, entries);
    Ok(())
}

/// Whether a reader would take the entries, in `room` bytes from the first one on.
fn check_fit(room: usize, entries: &[XattrEntry<'_>]) -> Result<(), PackError> {
    let too_big = |need: usize, room: usize| PackError::XattrsTooBig {
        need: len64(need),
        room: len64(room),
    };
    for entry in entries {
        // Index 0 without a name looks like the end of the list.
        let is_end = entry.index == 0 && entry.name.is_empty();
        if entry.name.len() > XATTR_NAME_MAX || entry.name.contains(&0) || is_end {
            let len = len64(entry.name.len());
            return Err(PackError::XattrName { len });
        }
        if let XattrValue::Inode { size, .. } = entry.value
            && size > EXT4_XATTR_SIZE_MAX
        {
            return Err(too_big(index(size), index(EXT4_XATTR_SIZE_MAX)));
        }
    }
    match entries_len(entries) {
        need if need > room => Err(too_big(need, room)),
        _ => Ok(()),
    }
}

/// Writes `entries` in this order into a region of zeroes: the list from `first` on, the values
/// from its end backward. [`entries_len`] of them must fit behind `first`.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "`at` and `end` stay within the region, which holds all entries: see `check_fit`"
)]
fn put_entries(region: &mut [u8], first: usize, entries: &[XattrEntry<'_>]) {
    let mut at = first;
    let mut end = region.len();
    for entry in entries {
        let (offset, inum, size) = match entry.value {
            XattrValue::Here([]) => (0, 0, 0),
            XattrValue::Here(value) => {
                end -= value_len(value.len());
                region[end..end + value.len()].copy_from_slice(value);
                (end, 0, len32(value.len()))
            }
            XattrValue::Inode { ino, size } => (0, ino.0, size),
        };
        let raw = RawXattrEntry {
            e_name_len: len8(entry.name.len()),
            e_name_index: entry.index,
            e_value_offs: len16(offset).into(),
            e_value_inum: inum.into(),
            e_value_size: size.into(),
            e_hash: entry.hash.into(),
        };
        let name = at + XATTR_ENTRY_LEN;
        region[at..name].copy_from_slice(raw.as_bytes());
        region[name..name + entry.name.len()].copy_from_slice(entry.name);
        at += entry_len(entry.name.len());
    }
}

/// Writes the header of an attribute block whose entries are there; `seed` is the file system's,
/// `None` without checksums.
pub fn put_block_header(
    block: &mut [u8],
    at: Pblk,
    refcount: u32,
    hash: u32,
    seed: Option<CsumSeed>,
) {
    let mut header = XattrBlockHeader {
        h_magic: EXT4_XATTR_MAGIC.into(),
        h_refcount: refcount.into(),
        h_blocks: 1.into(),
        h_hash: hash.into(),
        h_checksum: U32::ZERO,
        h_reserved: [U32::ZERO; 3],
    };
    block[..XATTR_BLOCK_HEADER_LEN].copy_from_slice(header.as_bytes());
    if let Some(seed) = seed {
        header.h_checksum = block_checksum(block, at, seed).into();
        block[..XATTR_BLOCK_HEADER_LEN].copy_from_slice(header.as_bytes());
    }
}

/// Checks the header of an attribute block.
///
/// # Errors
/// [`Damage::XattrHeader`], and [`Damage::BlockChecksum`] if `seed` is given and the sum is wrong.
pub fn verify_block(
    block: &[u8],
    at: Pblk,
    seed: Option<CsumSeed>,
) -> Result<XattrBlockHeader, Damage> {
    let (header, _) = XattrBlockHeader::read_from_prefix(block)
        .map_err(|_| Damage::truncated("xattr block", XATTR_BLOCK_HEADER_LEN, block.len()))?;
    if header.h_magic.get() != EXT4_XATTR_MAGIC || header.h_blocks.get() != 1 {
        return Err(Damage::XattrHeader {
            block: at,
            magic: header.h_magic.get(),
            blocks: header.h_blocks.get(),
        });
    }
    if let Some(seed) = seed {
        verify_checksum(block, at, seed)?;
    }
    Ok(header)
}

/// Checks the checksum of an attribute block alone, whatever its header says.
///
/// # Errors
/// [`Damage::BlockChecksum`], and [`Damage::Truncated`] for less than a header.
pub fn verify_checksum(block: &[u8], at: Pblk, seed: CsumSeed) -> Result<(), Damage> {
    let (header, _) = XattrBlockHeader::ref_from_prefix(block)
        .map_err(|_| Damage::truncated("xattr block", XATTR_BLOCK_HEADER_LEN, block.len()))?;
    let (stored, computed) = (header.h_checksum.get(), block_checksum(block, at, seed));
    Damage::check_sum("xattr block", at, stored, computed)
}

/// Computes and stores the checksum of an attribute block that lies at `at`; `seed` is the file
/// system's.
pub fn update_checksum(block: &mut [u8], at: Pblk, seed: CsumSeed) {
    let sum = block_checksum(block, at, seed);
    put32(block, offset_of!(XattrBlockHeader, h_checksum), sum);
}

/// The checksum of an attribute block: its number, then its bytes with a zero sum.
/// `seed` is the file system's; `block` is at least a header long.
fn block_checksum(block: &[u8], at: Pblk, seed: CsumSeed) -> u32 {
    let crc = crc32c(seed.over(&le64(at.0)), &block[..16]);
    crc32c(crc32c(crc, &[0; 4]), &block[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_and_join() {
        for (name, index, suffix) in [
            (&b"user.a"[..], 1, &b"a"[..]),
            (b"system.posix_acl_access", 2, b""),
            (b"security.capability", 6, b"capability"),
        ] {
            assert_eq!(split_name(name), Some((index, suffix)));
            assert_eq!(join_name(index, suffix).as_deref(), Some(name));
        }
        assert_eq!(split_name(b"user."), None);
        assert_eq!(split_name(b"other.a"), None);
        assert_eq!(split_name(b"system.data"), None);
        assert_eq!(join_name(INDEX_SYSTEM, INLINE_DATA_NAME), None);
    }

    #[test]
    fn stored_entries_are_read_back() {
        let here = |name, value| XattrEntry::here(INDEX_USER, name, value);
        let (ino, size) = (Ino(20), 9000);
        let entries = [
            here(&b"a"[..], &b"12345"[..]),
            here(b"empty", b""),
            XattrEntry::in_inode(INDEX_USER, b"large", ino, size, 7),
            here(b"bcd", b"x"),
        ];
        let mut block = vec![0; XATTR_BLOCK_HEADER_LEN + entries_len(&entries)];
        let hash = pack_block(&mut block, &entries).unwrap();
        let (at, seed) = (Pblk(77), Some(CsumSeed(5)));
        put_block_header(&mut block, at, 3, hash, seed);
        let header = verify_block(&block, at, seed).unwrap();
        assert_eq!((header.h_refcount.get(), header.h_hash.get()), (3, hash));
        let place = XattrPlace::Block(at);
        let read = parse_entries(&block, XATTR_BLOCK_HEADER_LEN, place).unwrap();
        assert_eq!(read, entries);
        let mut body = vec![0xAA; XATTR_IBODY_HEADER_LEN + entries_len(&entries)];
        assert_eq!(pack_body(&mut body, &entries), Ok(()));
        let (magic, list) = body.split_at(XATTR_IBODY_HEADER_LEN);
        assert_eq!(magic, le32(EXT4_XATTR_MAGIC));
        let read = parse_entries(list, 0, XattrPlace::Inode(Ino(12))).unwrap();
        assert_eq!(read, entries);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = [b'a'; 256];
        let entry = |name| [XattrEntry::here(INDEX_USER, name, b"value")];
        let mut block = vec![0; XATTR_BLOCK_HEADER_LEN + 28];
        assert!(
            pack_block(&mut block, &entry(b"name"))
                .is_err_and(|error| { error == PackError::XattrsTooBig { need: 32, room: 28 } })
        );
        assert!(block.iter().all(|&byte| byte == 0));
        for name in [&long[..], b"a\0"] {
            let len = name.len() as u64;
            let refused = Err(PackError::XattrName { len });
            assert_eq!(pack_body(&mut [0; 1024], &entry(name)), refused);
        }
        let (need, room) = (
            u64::from(EXT4_XATTR_SIZE_MAX) + 1,
            EXT4_XATTR_SIZE_MAX.into(),
        );
        let large = [XattrEntry::in_inode(
            INDEX_USER,
            b"a",
            Ino(20),
            need as u32,
            7,
        )];
        let refused = Err(PackError::XattrsTooBig { need, room });
        assert_eq!(pack_body(&mut [0; 1024], &large), refused);
        assert!(pack_body(&mut [0; 7], &[]).is_err());
        assert_eq!(pack_body(&mut [0; 8], &[]), Ok(()));
    }

    #[test]
    fn an_empty_value_may_lie_anywhere() {
        let mut entry = RawXattrEntry {
            e_name_len: 1,
            e_name_index: INDEX_USER,
            e_value_offs: 60_000.into(),
            e_value_inum: 0.into(),
            e_value_size: 0.into(),
            e_hash: 0.into(),
        };
        let at = XattrPlace::Inode(Ino(12));
        let region = |entry: &RawXattrEntry| [entry.as_bytes(), &b"a\0\0\0"[..], &[0; 8]].concat();
        let bytes = region(&entry);
        let read = parse_entries(&bytes, 0, at).unwrap();
        assert_eq!(read[0].value, XattrValue::Here(&[]));
        entry.e_value_size = 1.into();
        assert!(parse_entries(&region(&entry), 0, at).is_err());
    }

    #[test]
    fn list_without_end_is_named() {
        let at = XattrPlace::Inode(Ino(12));
        assert!(matches!(
            parse_entries(&[1, 1], 0, at),
            Err(Damage::Xattr { .. })
        ));
        assert_eq!(parse_entries(&[0; 4], 0, at), Ok(vec![]));
    }
}

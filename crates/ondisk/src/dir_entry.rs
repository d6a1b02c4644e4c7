//! Linear directory blocks: records that fill the block exactly, each with a name.
//!
//! ```text
//! inode u32 | rec_len u16 | name_len u8 | file_type u8 | name … | padding to rec_len (× 4)
//! ```
//! With `metadata_csum` the last 12 bytes are a record of inode 0 and type 0xDE that holds the sum.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::CsumSeed;
use crate::damage::Damage;
use crate::features::Incompat;
use crate::hash::DirHash;
use crate::inode::FileType;
use crate::num::{len8, len16, len32};
use crate::units::{Ino, Pblk};

/// Longest name, in bytes.
pub const EXT4_NAME_LEN: usize = 255;
/// Length of a record before its name.
pub const DIR_ENTRY_HEADER_LEN: usize = 8;
/// Length of the checksum record.
pub const DIR_TAIL_LEN: usize = 12;
/// `file_type` of the checksum record.
pub const DIR_TAIL_TYPE: u8 = 0xDE;
/// Bytes after the name in a directory that is both encrypted and case-insensitive: hash, minor.
pub const DIR_ENTRY_HASH_LEN: usize = 8;

/// A record before its name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct DirEntryHeader {
    pub inode: U32,
    pub rec_len: U16,
    pub name_len: u8,
    pub file_type: u8,
}

/// The checksum record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct DirEntryTail {
    pub det_reserved_zero1: U32,
    pub det_rec_len: U16,
    pub det_reserved_zero2: u8,
    pub det_reserved_ft: u8,
    pub det_checksum: U32,
}

const _: () = {
    assert!(size_of::<DirEntryHeader>() == DIR_ENTRY_HEADER_LEN);
    assert!(size_of::<DirEntryTail>() == DIR_TAIL_LEN);
};

/// A record that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode, never 0.
    pub ino: Ino,
    /// The name as stored (encrypted where the directory is), 1 to 255 bytes.
    pub name: &'a [u8],
    /// The recorded type; `None` without `filetype` or where it says "unknown".
    pub file_type: Option<FileType>,
    /// The hash behind the name, in directories that are both encrypted and case-insensitive.
    pub hash: Option<DirHash>,
    /// Byte offset of the record from the start of the block.
    pub offset: usize,
    /// Its whole length.
    pub rec_len: usize,
}

/// Bytes that a record with a name of `name_len` bytes needs.
#[inline]
pub const fn rec_len_for(name_len: usize) -> usize {
    name_len.saturating_add(DIR_ENTRY_HEADER_LEN + 3) & !3
}

/// Decodes `rec_len` in a directory of `block_len`-byte blocks: with 64 KiB, 65,535 and 0 mean the
/// whole block, and the two low bits are bits 16 and 17.
#[inline]
pub fn decode_rec_len(raw: u16, block_len: usize) -> usize {
    if block_len < 65536 {
        raw.into()
    } else if raw == 0xFFFF || raw == 0 {
        block_len
    } else {
        usize::from(raw & 0xFFFC) | usize::from(raw & 3) << 16
    }
}

/// Encodes a record length for blocks of `block_len` bytes; `len` is a multiple of 4.
pub fn encode_rec_len(len: usize, block_len: usize) -> u16 {
    match u16::try_from(len) {
        Ok(len) => len,
        Err(_) if len == 65536 && len == block_len => 0xFFFF,
        Err(_) if len == block_len => 0,
        Err(_) => len16(len & 0xFFFC | len >> 16 & 3),
    }
}

/// The type byte of a record.
pub const fn file_type_code(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

/// The type a record's type byte names; `None` for 0 and unknown values.
pub(crate) const fn file_type_from_code(code: u8) -> Option<FileType> {
    Some(match code {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

/// Writes a record of `rec_len` bytes at `offset` of a block: `ino` 0 makes it an unused one.
///
/// `file_type` is `None` on a file system without `filetype`. The name has at most 255 bytes and
/// fits the record, and the record fits the block; bytes behind the name are left as they are.
pub(crate) fn put(
    block: &mut [u8],
    offset: usize,
    rec_len: usize,
    ino: Ino,
    name: &[u8],
    file_type: Option<FileType>,
) {
    let header = DirEntryHeader {
        inode: ino.0.into(),
        rec_len: encode_rec_len(rec_len, block.len()).into(),
        name_len: len8(name.len()),
        file_type: file_type.map_or(0, file_type_code),
    };
    let (head, rest) = block[offset..].split_at_mut(DIR_ENTRY_HEADER_LEN);
    head.copy_from_slice(header.as_bytes());
    rest[..name.len()].copy_from_slice(name);
}

/// Iterates over the used records of one block (or inline region), stopping at the first damage.
#[derive(Clone, Debug)]
pub struct DirBlock<'a> {
    bytes: &'a [u8],
    block_len: usize,
    at: Option<Pblk>,
    offset: usize,
    filetype: bool,
    hashes: bool,
}

impl<'a> DirBlock<'a> {
    /// Over `bytes`, read from block `at` (`None` for inline data). With [`Incompat::FILETYPE`] in
    /// `incompat` the byte after `name_len` is a type, else the high half of the name's length.
    pub fn new(bytes: &'a [u8], at: Option<Pblk>, incompat: Incompat) -> Self {
        Self {
            bytes,
            block_len: bytes.len(),
            at,
            offset: 0,
            filetype: incompat.contains(Incompat::FILETYPE),
            hashes: false,
        }
    }

    /// The same with hashes behind the names, as in directories that are both encrypted and
    /// case-insensitive.
    pub fn with_hashes(self) -> Self {
        Self {
            hashes: true,
            ..self
        }
    }

    /// Starts at `offset` within the block; it must be the start of a record.
    pub fn starting_at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    fn hash_behind(&self, body: &[u8], name_len: usize, rec_len: usize) -> Option<DirHash> {
        let at = name_len.next_multiple_of(4);
        let free = rec_len.saturating_sub(rec_len_for(name_len));
        let fits = self.hashes && free >= DIR_ENTRY_HASH_LEN;
        let (hash, rest) = U32::ref_from_prefix(body.get(at..)?).ok()?;
        let (minor_hash, _) = U32::ref_from_prefix(rest).ok()?;
        fits.then_some(DirHash {
            hash: hash.get(),
            minor_hash: minor_hash.get(),
        })
    }

    fn step(&mut self) -> Result<Option<DirEntry<'a>>, Damage> {
        while self.offset < self.bytes.len() {
            let offset = self.offset;
            let rest = &self.bytes[offset..];
            let bad = |why, rec_len| Damage::DirEntry {
                block: self.at,
                offset: len32(offset),
                why,
                rec_len: len32(rec_len),
            };
            let Ok((header, body)) = DirEntryHeader::ref_from_prefix(rest) else {
                return Err(bad("record header past the end of the block", rest.len()));
            };
            let rec_len = decode_rec_len(header.rec_len.get(), self.block_len);
            let name_len = usize::from(header.name_len);
            if rec_len < DIR_ENTRY_HEADER_LEN + 4 && rec_len < rest.len()
                || rec_len < DIR_ENTRY_HEADER_LEN
            {
                return Err(bad("record shorter than any", rec_len));
            }
            if !rec_len.is_multiple_of(4) {
                return Err(bad("record length not a multiple of 4", rec_len));
            }
            if rec_len > rest.len() {
                return Err(bad("record past the end of the block", rec_len));
            }
            self.offset = offset.saturating_add(rec_len);
            if header.inode.get() == 0 {
                continue;
            }
            if name_len == 0 || DIR_ENTRY_HEADER_LEN + name_len > rec_len {
                return Err(bad("name does not fit its record", rec_len));
            }
            return Ok(Some(DirEntry {
                ino: Ino(header.inode.get()),
                name: &body[..name_len],
                file_type: if self.filetype {
                    file_type_from_code(header.file_type)
                } else {
                    None
                },
                hash: self.hash_behind(body, name_len, rec_len),
                offset,
                rec_len,
            }));
        }
        Ok(None)
    }
}

impl<'a> Iterator for DirBlock<'a> {
    type Item = Result<DirEntry<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.offset = self.bytes.len();
        }
        step.transpose()
    }
}

/// Records of removed names whose bytes still stand in what the records in use leave free of a
/// block. Bytes of something else may look like one: a caller must know better.
pub fn removed(bytes: &[u8], incompat: Incompat) -> Vec<DirEntry<'_>> {
    let mut found = Vec::new();
    let mut from = 0;
    for record in DirBlock::new(bytes, None, incompat).map_while(Result::ok) {
        removed_in(bytes, from, record.offset, incompat, &mut found);
        from = record.offset.saturating_add(rec_len_for(record.name.len()));
    }
    removed_in(bytes, from, bytes.len(), incompat, &mut found);
    found
}

/// The same between two offsets.
fn removed_in<'a>(
    bytes: &'a [u8],
    from: usize,
    to: usize,
    incompat: Incompat,
    found: &mut Vec<DirEntry<'a>>,
) {
    let filetype = incompat.contains(Incompat::FILETYPE);
    let mut at = from;
    while let Some(rest) = bytes.get(at..to).filter(|rest| !rest.is_empty()) {
        let record = record_in(rest, bytes.len().saturating_sub(at), filetype);
        let len = record.map_or(4, |record| rec_len_for(record.name.len()));
        found.extend(record.map(|record| DirEntry {
            offset: at,
            ..record
        }));
        at = at.saturating_add(len);
    }
}

/// A record with a name that a file can have, if the bytes begin like one of at most `most` bytes.
fn record_in(bytes: &[u8], most: usize, filetype: bool) -> Option<DirEntry<'_>> {
    let (header, body) = DirEntryHeader::ref_from_prefix(bytes).ok()?;
    let name = body.get(..usize::from(header.name_len))?;
    let rec_len = usize::from(header.rec_len.get());
    let file_type = file_type_from_code(header.file_type);
    let is_name =
        !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, 0 | b'/'));
    let is_record = header.inode.get() != 0
        && rec_len.is_multiple_of(4)
        && (rec_len_for(name.len())..=most).contains(&rec_len)
        && file_type.is_some() == filetype;
    (is_name && is_record).then_some(DirEntry {
        ino: Ino(header.inode.get()),
        name,
        file_type,
        hash: None,
        offset: 0,
        rec_len,
    })
}

/// The checksum record at the end of a block, if there is one.
pub fn tail(block: &[u8]) -> Option<&DirEntryTail> {
    let (_, tail) = DirEntryTail::ref_from_suffix(block).ok()?;
    let is_tail = tail.det_reserved_zero1.get() == 0
        && usize::from(tail.det_rec_len.get()) == DIR_TAIL_LEN
        && tail.det_reserved_zero2 == 0
        && tail.det_reserved_ft == DIR_TAIL_TYPE;
    is_tail.then_some(tail)
}

/// Verifies the checksum of a leaf block; `seed` is the directory inode's.
///
/// # Errors
/// [`Damage::NoChecksum`] if there is no checksum record, [`Damage::BlockChecksum`].
pub fn verify_tail(bytes: &[u8], block: Pblk, seed: CsumSeed) -> Result<(), Damage> {
    let Some(tail) = tail(bytes) else {
        return Err(Damage::NoChecksum {
            structure: "directory block",
            block,
        });
    };
    let computed = seed.over(&bytes[..bytes.len().saturating_sub(DIR_TAIL_LEN)]);
    Damage::check_sum("directory block", block, tail.det_checksum.get(), computed)
}

/// Writes the checksum record at the end of a block whose other records end before it.
/// `bytes` is at least 12 long.
pub fn update_tail(bytes: &mut [u8], seed: CsumSeed) {
    let end = bytes.len().saturating_sub(DIR_TAIL_LEN);
    put_tail(bytes, seed.over(&bytes[..end]));
}

/// As [`update_tail`] with a sum that is computed elsewhere.
pub(crate) fn put_tail(bytes: &mut [u8], sum: u32) {
    let tail = DirEntryTail {
        det_reserved_zero1: U32::ZERO,
        det_rec_len: len16(DIR_TAIL_LEN).into(),
        det_reserved_zero2: 0,
        det_reserved_ft: DIR_TAIL_TYPE,
        det_checksum: sum.into(),
    };
    if let Some(place) = bytes.last_chunk_mut::<DIR_TAIL_LEN>() {
        place.copy_from_slice(tail.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ino: u32, rec_len: u16, name: &[u8]) -> Vec<u8> {
        let header = DirEntryHeader {
            inode: ino.into(),
            rec_len: rec_len.into(),
            name_len: name.len() as u8,
            file_type: 1,
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(name);
        bytes.resize(usize::from(rec_len).max(bytes.len()), 0);
        bytes
    }

    #[test]
    fn walks_used_records_only() {
        let block = [
            record(11, 12, b"a"),
            record(0, 12, b"x"),
            record(12, 1000, b"bcd"),
        ]
        .concat();
        let names: Vec<_> = DirBlock::new(&block, None, Incompat::FILETYPE)
            .map(|e| e.unwrap().name)
            .collect();
        assert_eq!(names, [&b"a"[..], b"bcd"]);
    }

    #[test]
    fn stored_entries_are_read_back() {
        let mut block = [0; 64];
        put(&mut block, 0, 12, Ino(11), b"a", Some(FileType::Symlink));
        put(&mut block, 12, 52, Ino(12), b"bcde", None);
        let entries: Vec<_> = DirBlock::new(&block, None, Incompat::FILETYPE)
            .map(|e| e.unwrap())
            .map(|e| (e.ino, e.name, e.file_type, e.rec_len))
            .collect();
        let expected = [
            (Ino(11), &b"a"[..], Some(FileType::Symlink), 12),
            (Ino(12), b"bcde", None, 52),
        ];
        assert_eq!(entries, expected);
    }

    #[test]
    fn record_past_the_end_is_named() {
        let mut block = record(11, 1024, b"a");
        block.truncate(512);
        let err = DirBlock::new(&block, Some(Pblk(3)), Incompat::FILETYPE)
            .next()
            .unwrap()
            .unwrap_err();
        assert!(
            matches!(err, Damage::DirEntry { rec_len: 1024, .. }),
            "{err:?}"
        );
    }

    #[test]
    fn record_lengths_of_large_blocks() {
        for block_len in [1024, 4096, 32768, 65536] {
            for len in [12, 16, 1020, block_len - 12, block_len] {
                assert_eq!(
                    decode_rec_len(encode_rec_len(len, block_len), block_len),
                    len
                );
            }
        }
    }

    #[test]
    fn removed_names_are_found_in_what_is_free() {
        let mut bytes = record(12, 12, b".");
        bytes.extend(record(2, 500, b".."));
        let at = rec_len_for(2) + 12;
        for (offset, removed) in [
            (at, record(20, 16, b"first")),
            (at + 16, record(21, 488, b"a/b")),
            (at + 40, record(22, 1000, b"too long")),
            (at + 60, record(23, 16, b"second")),
        ] {
            let len = removed.len().min(20);
            bytes[offset..offset + len].copy_from_slice(&removed[..len]);
        }
        let found = removed(&bytes, Incompat::FILETYPE);
        let names: Vec<_> = found.iter().map(|r| (r.ino.0, r.name)).collect();
        assert_eq!(names, [(20, &b"first"[..]), (23, &b"second"[..])]);
        assert_eq!(found[0].file_type, Some(FileType::Regular));
        assert!(removed(&[], Incompat::FILETYPE).is_empty());
        assert!(removed(&[0xFF; 512], Incompat::FILETYPE).is_empty());
    }
}

//! The fields that a structure has at this moment: those of its head, of its entries, and single
//! numbers where it is a list of them.

use uext4_ondisk::dir_entry::{DIR_TAIL_LEN, DirEntryHeader, decode_rec_len};
use uext4_ondisk::extent::{EXTENT_ENTRY_LEN, header};
use uext4_ondisk::htree::{DX_ENTRY_LEN, DX_ROOT_INFO_LEN, DX_ROOT_INFO_OFFSET, entries_offset};
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags};
use uext4_ondisk::journal::{BlockType, JOURNAL_HEADER_LEN, JournalHeader};
use uext4_ondisk::num::index;
use uext4_ondisk::orphan::ORPHAN_TAIL_LEN;
use uext4_ondisk::quota::QUOTA_ENTRIES_PER_LEAF;
use uext4_ondisk::xattr::{
    EXT4_XATTR_MAGIC, RawXattrEntry, XATTR_BLOCK_HEADER_LEN, XATTR_ENTRY_LEN, entry_len,
};
use uext4_ondisk::{Ino, Lblk};
use zerocopy::FromBytes;

use super::fields::{self, Field, Order};
use super::places::Place;
use super::quota::QuotaRole;
use crate::damage::Survey;

/// A field of one structure, or of one of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is called.
    pub name: String,
    /// Its first byte in the structure.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
    /// Their order.
    pub order: Order,
}

/// A list of fields in the making.
#[derive(Debug, Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    /// The fields of a part that begins at this byte.
    fn put(&mut self, of: &str, at: usize, fields: &[Field]) {
        self.0.extend(fields.iter().map(|field| Piece {
            name: match of {
                "" => field.name.to_owned(),
                _ => format!("{of} {}", field.name),
            },
            at: at + field.at,
            len: field.len,
            order: field.order,
        }));
    }

    /// Numbers of four bytes, one after the other: those that are not zero, and the first that is.
    fn numbers(&mut self, of: &str, bytes: &[u8], first: usize, order: Order) {
        let words = bytes.as_chunks::<4>().0.iter().enumerate();
        let mut zeroes = 0;
        for (i, word) in words {
            zeroes += usize::from(*word == [0; 4]);
            if *word != [0; 4] || zeroes == 1 {
                self.0.push(Piece {
                    name: format!("{of}[{i}]"),
                    at: first + 4 * i,
                    len: 4,
                    order,
                });
            }
        }
    }
}

/// The fields of a structure; `image` is what it was, `bytes` what the structure is by now.
pub fn pieces(place: &Place, image: &Survey, bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Pieces::default();
    match place {
        Place::Superblock | Place::Backup(_) => pieces.put("", 0, fields::SUPERBLOCK),
        Place::Descriptor(_) => pieces.put("", 0, fields::DESCRIPTOR),
        Place::Inode(ino) => inode(&mut pieces, image, *ino, bytes),
        Place::Node(ino, _) => {
            let known = image.known(*ino);
            match known.is_some_and(|known| known.has(InodeFlags::EXTENTS)) {
                true => extents(&mut pieces, bytes),
                false => pieces.numbers("number", bytes, 0, Order::Little),
            }
        }
        Place::Names(..) => records(&mut pieces, image, bytes),
        Place::Index(_, at) => htree(&mut pieces, image, at.lblk, bytes),
        Place::Attributes(_) => {
            pieces.put("", 0, fields::XATTR_HEADER);
            attributes(&mut pieces, bytes, XATTR_BLOCK_HEADER_LEN);
        }
        Place::JournalSuperblock => {
            pieces.put("", 0, fields::JOURNAL_HEADER);
            pieces.put("", 0, fields::JOURNAL_SUPERBLOCK);
        }
        Place::Log(_) => log(&mut pieces, image, bytes),
        Place::Quota(quota) => match quota.role {
            QuotaRole::Header => pieces.put("", 0, fields::QUOTA_HEADER),
            QuotaRole::Tree => pieces.numbers("child", bytes, 0, Order::Little),
            QuotaRole::Leaf => {
                pieces.put("", 0, fields::QUOTA_LEAF);
                let entry = |i| 16 + 72 * i;
                for i in 0..QUOTA_ENTRIES_PER_LEAF.min(4) {
                    pieces.put(&format!("entry {i}"), entry(i), fields::QUOTA_ENTRY);
                }
            }
        },
        Place::Orphans(_) => {
            let end = bytes.len() - ORPHAN_TAIL_LEN;
            pieces.numbers("orphan", &bytes[..end], 0, Order::Little);
            pieces.put("", end, fields::ORPHAN_TAIL);
        }
        Place::Mmp(_) => pieces.put("", 0, fields::MMP),
        Place::LogData(_) | Place::FastCommit(_) => {
            pieces.numbers("word", bytes, 0, Order::Little);
        }
        Place::Bitmap(..) => {}
    }
    pieces.0.retain(|piece| piece.at + piece.len <= bytes.len());
    pieces.0
}

fn inode(pieces: &mut Pieces, image: &Survey, ino: Ino, bytes: &[u8]) {
    pieces.put("", 0, fields::INODE);
    // The fields that decide are few among all.
    for name in [
        "i_mode",
        "i_size_lo",
        "i_links_count",
        "i_flags",
        "i_blocks_lo",
    ] {
        let all = fields::INODE.iter().filter(|field| field.name == name);
        pieces.put("", 0, &all.copied().collect::<Vec<_>>());
    }
    let i_block = &bytes[fields::I_BLOCK..][..I_BLOCK_LEN];
    let has_extents = image
        .known(ino)
        .is_some_and(|known| known.has(InodeFlags::EXTENTS));
    if !has_extents {
        pieces.numbers("i_block", i_block, fields::I_BLOCK, Order::Little);
    }
    let extra = bytes
        .get(GOOD_OLD_INODE_SIZE..)
        .and_then(|b| b.first_chunk::<2>());
    let Some(extra) = extra else {
        return;
    };
    let start = GOOD_OLD_INODE_SIZE + usize::from(u16::from_le_bytes(*extra));
    let magic = bytes.get(start..).and_then(|b| b.first_chunk::<4>());
    if magic.is_some_and(|magic| u32::from_le_bytes(*magic) == EXT4_XATTR_MAGIC) {
        attributes(pieces, bytes, start + 4);
    }
}

fn extents(pieces: &mut Pieces, bytes: &[u8]) {
    pieces.put("", 0, fields::EXTENT_HEADER);
    let Some(head) = header(bytes) else {
        return;
    };
    let entry = match head.eh_depth.get() {
        0 => fields::EXTENT,
        _ => fields::EXTENT_INDEX,
    };
    for i in 0..usize::from(head.eh_entries.get()) {
        pieces.put(&format!("entry {i}"), EXTENT_ENTRY_LEN * (i + 1), entry);
    }
}

fn records(pieces: &mut Pieces, image: &Survey, bytes: &[u8]) {
    let mut at = 0;
    let mut number = 0;
    while let Ok((head, _)) = DirEntryHeader::ref_from_prefix(&bytes[at..]) {
        let len = decode_rec_len(head.rec_len.get(), bytes.len());
        let is_tail = image.geometry.csum_seed.is_some() && at + DIR_TAIL_LEN == bytes.len();
        if is_tail {
            pieces.put("", at, fields::RECORD_TAIL);
            return;
        }
        let name = format!("record {number}");
        pieces.put(&name, at, fields::RECORD);
        pieces.0.push(Piece {
            name: format!("{name} name"),
            at: at + size_of::<DirEntryHeader>(),
            len: 1,
            order: Order::Little,
        });
        if len < size_of::<DirEntryHeader>() || at + len >= bytes.len() {
            return;
        }
        at += len;
        number += 1;
    }
}

fn htree(pieces: &mut Pieces, image: &Survey, lblk: Lblk, bytes: &[u8]) {
    if lblk == Lblk(0) {
        pieces.put("\".\"", 0, fields::RECORD);
        pieces.put("\"..\"", 12, fields::RECORD);
        pieces.put("", DX_ROOT_INFO_OFFSET, fields::DX_INFO);
        debug_assert_eq!(DX_ROOT_INFO_OFFSET + DX_ROOT_INFO_LEN, entries_offset(lblk));
    } else {
        pieces.put("empty record", 0, fields::RECORD);
    }
    let first = entries_offset(lblk);
    pieces.put("", first, fields::DX_COUNT);
    let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (limit, count) = (half(first), half(first + 2));
    for i in 0..count.min(64) {
        pieces.put(
            &format!("entry {i}"),
            first + DX_ENTRY_LEN * i,
            fields::DX_ENTRY,
        );
    }
    if image.geometry.csum_seed.is_some() {
        pieces.put("", first + DX_ENTRY_LEN * limit, fields::DX_TAIL);
    }
}

fn attributes(pieces: &mut Pieces, bytes: &[u8], first: usize) {
    let mut at = first;
    let mut number = 0;
    while let Some((raw, _)) = bytes
        .get(at..)
        .and_then(|b| RawXattrEntry::ref_from_prefix(b).ok())
    {
        if bytes[at..at + 4] == [0; 4] {
            return;
        }
        let name = format!("attribute {number}");
        pieces.put(&name, at, fields::XATTR_ENTRY);
        pieces.0.push(Piece {
            name: format!("{name} name"),
            at: at + XATTR_ENTRY_LEN,
            len: 1,
            order: Order::Little,
        });
        at += entry_len(raw.e_name_len.into());
        number += 1;
    }
}

fn log(pieces: &mut Pieces, image: &Survey, bytes: &[u8]) {
    pieces.put("", 0, fields::JOURNAL_HEADER);
    let (Some((kind, _)), Some(sb)) = (JournalHeader::parse(bytes), super::log::superblock(image))
    else {
        return;
    };
    match kind {
        BlockType::Descriptor => {
            let tag = match sb.checksum_version() {
                3 => fields::TAG3,
                _ => fields::TAG,
            };
            for (i, at) in super::log::tag_places(bytes, &sb).into_iter().enumerate() {
                pieces.put(&format!("tag {i}"), at, tag);
            }
        }
        BlockType::Revoke => {
            pieces.put("", 0, fields::REVOKE);
            let numbers = bytes.get(JOURNAL_HEADER_LEN + 4..).unwrap_or_default();
            let numbers = &numbers[..numbers.len().min(index(64))];
            pieces.numbers("revoked", numbers, JOURNAL_HEADER_LEN + 4, Order::Big);
        }
        BlockType::Commit => pieces.put("", 0, fields::COMMIT),
        _ => {}
    }
}

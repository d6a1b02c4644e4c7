//! Fast commits: small logical changes in the last blocks of the journal.
//!
//! ```text
//! tag u16 | len u16 | value …          all little endian, none crosses a block
//! HEAD  change change … TAIL  change … TAIL  …      stale blocks behind
//! ```
//! A commit counts only once its TAIL is there and sums it: the crc32c (from 0) of every record
//! since the TAIL before, heads of records included, up to the sum itself. A TAIL fills its block.
//!
//! Left out: doing what the records say. [`FastCommit`] is what they say together.

mod outcome;

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::damage::Damage;
use crate::dir_entry::EXT4_NAME_LEN;
use crate::extent::{Extent, RawExtent};
use crate::inode::GOOD_OLD_INODE_SIZE;
use crate::num::len64;
use crate::units::{Ino, Lblk};

pub use outcome::{ChangedInode, ChangedNames, End, FIXED_FLAGS, FastCommit, Names};

/// Tag: blocks now map so.
pub const FC_TAG_ADD_RANGE: u16 = 1;
/// Tag: blocks now are a hole.
pub const FC_TAG_DEL_RANGE: u16 = 2;
/// Tag: a new inode got its first name.
pub const FC_TAG_CREAT: u16 = 3;
/// Tag: an inode got another name.
pub const FC_TAG_LINK: u16 = 4;
/// Tag: a name is gone.
pub const FC_TAG_UNLINK: u16 = 5;
/// Tag: the inode now is so.
pub const FC_TAG_INODE: u16 = 6;
/// Tag: nothing, up to the end of the block.
pub const FC_TAG_PAD: u16 = 7;
/// Tag: end of a commit.
pub const FC_TAG_TAIL: u16 = 8;
/// Tag: start of the area.
pub const FC_TAG_HEAD: u16 = 9;
/// Length of tag and length.
pub const FC_HEADER_LEN: usize = 4;
/// Bytes of a tail that its sum covers: its head and its tid.
const FC_TAIL_SUMMED: usize = FC_HEADER_LEN + 4;
/// `fc_features` that are understood: there are none yet.
pub const FC_KNOWN_FEATURES: u32 = 0;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    fc_tag: U16,
    fc_len: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAddRange {
    fc_ino: U32,
    fc_ex: RawExtent,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDelRange {
    fc_ino: U32,
    fc_lblk: U32,
    fc_len: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDentry {
    fc_parent_ino: U32,
    fc_ino: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTail {
    fc_tid: U32,
    fc_crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    fc_features: U32,
    fc_tid: U32,
}

const _: () = {
    assert!(size_of::<RawHeader>() == FC_HEADER_LEN);
    assert!(size_of::<RawAddRange>() == 16);
    assert!(size_of::<RawDelRange>() == 12);
    assert!(size_of::<RawDentry>() == 8);
    assert!(size_of::<RawTail>() == 8);
    assert!(size_of::<RawHead>() == 8);
};

/// A name that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry<'a> {
    /// The directory.
    pub parent: Ino,
    /// The inode the name is of.
    pub ino: Ino,
    /// The name as stored, 1 to 255 bytes.
    pub name: &'a [u8],
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Blocks of `ino` now map so. The extent's length may be 0: nothing.
    AddRange {
        /// The file.
        ino: Ino,
        /// Logical and physical blocks.
        extent: Extent,
    },
    /// Blocks of `ino` now are a hole.
    DelRange {
        /// The file.
        ino: Ino,
        /// First block.
        lblk: Lblk,
        /// Blocks.
        len: u32,
    },
    /// A new inode got its first name.
    Create(Dentry<'a>),
    /// An inode got another name.
    Link(Dentry<'a>),
    /// A name is gone.
    Unlink(Dentry<'a>),
    /// The inode now is so, but for its place of data (`i_block`) where that is an extent tree.
    Inode {
        /// The inode.
        ino: Ino,
        /// Its first bytes, 128 at least, more than the file system's inodes never.
        raw: &'a [u8],
    },
    /// Nothing.
    Pad,
    /// End of a commit.
    Tail {
        /// Transaction the commit builds on.
        tid: u32,
        /// Sum of the commit.
        crc: u32,
    },
    /// Start of the area.
    Head {
        /// What must be understood to replay it.
        features: u32,
        /// Transaction the commits build on.
        tid: u32,
    },
}

fn bad(field: &'static str, value: u64, why: &'static str) -> Damage {
    Damage::Field {
        structure: "fast commit",
        field,
        value,
        why,
    }
}

/// The value as one structure of exactly its length.
fn exact<T: FromBytes + KnownLayout + Immutable>(value: &[u8]) -> Result<T, Damage> {
    T::read_from_bytes(value).map_err(|_| bad("fc_len", len64(value.len()), "not the tag's length"))
}

impl<'a> Record<'a> {
    /// Decodes the value of a tag; `inode_size` is the file system's.
    ///
    /// # Errors
    /// [`Damage::Field`] for an unknown tag or a length the tag cannot have.
    pub fn decode(tag: u16, value: &'a [u8], inode_size: u16) -> Result<Self, Damage> {
        let wrong_len = || bad("fc_len", len64(value.len()), "not the tag's length");
        Ok(match tag {
            FC_TAG_ADD_RANGE => {
                let raw: RawAddRange = exact(value)?;
                Self::AddRange {
                    ino: Ino(raw.fc_ino.get()),
                    extent: raw.fc_ex.get(),
                }
            }
            FC_TAG_DEL_RANGE => {
                let raw: RawDelRange = exact(value)?;
                Self::DelRange {
                    ino: Ino(raw.fc_ino.get()),
                    lblk: Lblk(raw.fc_lblk.get()),
                    len: raw.fc_len.get(),
                }
            }
            FC_TAG_CREAT => Self::Create(dentry(value)?),
            FC_TAG_LINK => Self::Link(dentry(value)?),
            FC_TAG_UNLINK => Self::Unlink(dentry(value)?),
            FC_TAG_INODE => {
                let (ino, raw) = U32::ref_from_prefix(value).map_err(|_| wrong_len())?;
                if raw.len() < GOOD_OLD_INODE_SIZE || raw.len() > usize::from(inode_size) {
                    return Err(wrong_len());
                }
                let ino = Ino(ino.get());
                Self::Inode { ino, raw }
            }
            FC_TAG_PAD => Self::Pad,
            FC_TAG_TAIL => {
                let (raw, _) = RawTail::ref_from_prefix(value).map_err(|_| wrong_len())?;
                Self::Tail {
                    tid: raw.fc_tid.get(),
                    crc: raw.fc_crc.get(),
                }
            }
            FC_TAG_HEAD => {
                let raw: RawHead = exact(value)?;
                Self::Head {
                    features: raw.fc_features.get(),
                    tid: raw.fc_tid.get(),
                }
            }
            _ => return Err(bad("fc_tag", tag.into(), "no such tag")),
        })
    }
}

fn dentry(value: &[u8]) -> Result<Dentry<'_>, Damage> {
    match RawDentry::ref_from_prefix(value) {
        Ok((raw, name)) if (1..=EXT4_NAME_LEN).contains(&name.len()) => Ok(Dentry {
            parent: Ino(raw.fc_parent_ino.get()),
            ino: Ino(raw.fc_ino.get()),
            name,
        }),
        _ => Err(bad("fc_len", len64(value.len()), "not the tag's length")),
    }
}

/// Iterates over the records of one block, stopping at the first damage. The bytes each record
/// takes, its head included, come with it.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    inode_size: u16,
}

impl<'a> Records<'a> {
    /// Over a whole block of the area; `inode_size` is the file system's.
    pub fn new(block: &'a [u8], inode_size: u16) -> Self {
        Self {
            rest: block,
            inode_size,
        }
    }

    fn step(&mut self) -> Result<Option<(Record<'a>, &'a [u8])>, Damage> {
        // Fewer bytes than a head at the end of a block are nothing.
        let Ok((header, body)) = RawHeader::ref_from_prefix(self.rest) else {
            return Ok(None);
        };
        let len = usize::from(header.fc_len.get());
        let value = body
            .get(..len)
            .ok_or_else(|| bad("fc_len", len64(len), "past the end of the block"))?;
        let record = Record::decode(header.fc_tag.get(), value, self.inode_size)?;
        let (bytes, rest) = self.rest.split_at(FC_HEADER_LEN + len);
        self.rest = rest;
        Ok(Some((record, bytes)))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(Record<'a>, &'a [u8]), Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        step.transpose()
    }
}

/// The records of all whole commits in the area, in order, without heads, tails and padding.
///
/// `blocks` are the area's, in order; `tid` is the first transaction that is not in the log (the
/// next to be committed when the file system was lost). Whatever follows the last good TAIL is
/// stale and left alone, damage in it included.
///
/// # Errors
/// [`Damage::Field`] if the area asks for features that are not known.
pub fn committed_records<'a>(
    blocks: impl IntoIterator<Item = &'a [u8]>,
    tid: u32,
    inode_size: u16,
) -> Result<Vec<Record<'a>>, Damage> {
    let mut records = Vec::new();
    let (mut committed, mut crc, mut started) = (0, 0, false);
    'area: for block in blocks {
        for step in Records::new(block, inode_size) {
            let Ok((record, bytes)) = step else {
                break 'area;
            };
            match record {
                Record::Head { tid: found, .. } if found != tid => break 'area,
                Record::Head { features, .. } if features & !FC_KNOWN_FEATURES != 0 => {
                    return Err(bad("fc_features", features.into(), "not known"));
                }
                Record::Head { .. } => started = true,
                _ if !started => break 'area,
                Record::Tail {
                    tid: found,
                    crc: stored,
                } => {
                    // Of the tail only what stands before the sum itself is summed.
                    crc = crc32c(crc, &bytes[..FC_TAIL_SUMMED]);
                    if found != tid || stored != crc {
                        break 'area;
                    }
                    committed = records.len();
                    crc = 0;
                    continue;
                }
                Record::Pad => {}
                change => records.push(change),
            }
            crc = crc32c(crc, bytes);
        }
    }
    records.truncate(committed);
    Ok(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(tag: u16, value: &[u8]) -> Vec<u8> {
        let header = RawHeader {
            fc_tag: tag.into(),
            fc_len: (value.len() as u16).into(),
        };
        [header.as_bytes(), value].concat()
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|&w| U32::new(w).to_bytes()).collect()
    }

    /// Ends a commit whose records are `block[from..]` with a tail that fills the block.
    fn close(block: &mut Vec<u8>, from: usize, len: usize, tid: u32) {
        let room = len - block.len() - FC_HEADER_LEN;
        block.extend_from_slice(&record(FC_TAG_TAIL, &vec![0; room])[..FC_HEADER_LEN]);
        block.extend_from_slice(&words(&[tid]));
        let crc = crc32c(0, &block[from..]);
        block.extend_from_slice(&words(&[crc]));
        block.resize(len, 0);
    }

    /// A block with one commit of transaction 7: inode 13 gets the name "n" and loses a block.
    fn one_commit() -> Vec<u8> {
        let mut block = record(FC_TAG_HEAD, &words(&[0, 7]));
        block.extend(record(FC_TAG_CREAT, &[&words(&[2, 13])[..], b"n"].concat()));
        block.extend(record(FC_TAG_DEL_RANGE, &words(&[13, 4, 1])));
        close(&mut block, 0, 1024, 7);
        block
    }

    #[test]
    fn whole_commits_count() {
        let block = one_commit();
        let records = committed_records([&block[..]], 7, 256).unwrap();
        let dentry = Dentry {
            parent: Ino(2),
            ino: Ino(13),
            name: b"n",
        };
        let del = Record::DelRange {
            ino: Ino(13),
            lblk: Lblk(4),
            len: 1,
        };
        assert_eq!(records, [Record::Create(dentry), del]);
    }

    #[test]
    fn commits_without_a_good_tail_do_not() {
        let first = one_commit();
        let mut second = record(FC_TAG_DEL_RANGE, &words(&[14, 0, 9]));
        close(&mut second, 0, 1024, 7);
        let both = committed_records([&first[..], &second], 7, 256).unwrap();
        assert_eq!(both.len(), 3);
        second[8] ^= 1;
        let one = committed_records([&first[..], &second], 7, 256).unwrap();
        assert_eq!(one.len(), 2);
        assert_eq!(committed_records([&first[..]], 8, 256), Ok(vec![]));
        assert_eq!(committed_records([&second[..]], 7, 256), Ok(vec![]));
    }

    #[test]
    fn unknown_features_are_refused() {
        let block = record(FC_TAG_HEAD, &words(&[4, 7]));
        assert!(committed_records([&block[..]], 7, 256).is_err());
    }

    #[test]
    fn lengths_are_those_of_the_tag() {
        for (tag, len) in [
            (FC_TAG_ADD_RANGE, 15),
            (FC_TAG_DEL_RANGE, 16),
            (FC_TAG_CREAT, 8),
            (FC_TAG_CREAT, 8 + 256),
            (FC_TAG_INODE, 4 + 127),
            (FC_TAG_INODE, 4 + 257),
            (FC_TAG_TAIL, 7),
            (FC_TAG_HEAD, 9),
            (10, 0),
            (0, 0),
        ] {
            assert!(Record::decode(tag, &vec![0; len], 256).is_err(), "{tag}");
        }
    }

    proptest! {
        #[test]
        fn random_records_never_panic(
            parts in prop::collection::vec((0u16..11, prop::collection::vec(any::<u8>(), 0..300)), 0..8),
            cut in 0usize..600,
        ) {
            let mut block = record(FC_TAG_HEAD, &words(&[0, 7]));
            parts.iter().for_each(|(tag, value)| block.extend(record(*tag, value)));
            block.truncate(cut);
            let _ = committed_records([&block[..]], 7, 256);
            prop_assert!(Records::new(&block, 256).count() <= 9);
        }
    }
}

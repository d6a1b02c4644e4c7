//! jbd2 blocks: the only big-endian structures of the format.
//!
//! ```text
//! superblock | descriptor, data, data, … | revoke | commit | descriptor, … | fast-commit area
//! ```
//! Sequence numbers wrap; the log is a ring from `s_first` to [`JournalSuperblock::log_end`].

mod encode;

use std::mem::{offset_of, size_of};
use std::ops::Range;

use bitflags::bitflags;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(doc)]
use crate::checksum::crc32_be;
use crate::checksum::crc32c;
use crate::damage::Damage;
use crate::features::{Features, Incompat};
use crate::num::{index, lo16};
use crate::units::Pblk;
pub use encode::{
    Descriptor, commit_block, needs_escape, revoke_block, revoke_capacity, update_commit,
    update_tail,
};

/// `h_magic` of every journal block that is not data.
pub const JBD2_MAGIC: u32 = 0xC03B_3998;
/// Length of the block header.
pub const JOURNAL_HEADER_LEN: usize = 12;
/// Length of the UUID behind the first tag of a descriptor.
const UUID_LEN: usize = 16;
/// Length of the journal superblock.
pub const JOURNAL_SUPERBLOCK_LEN: usize = 1024;
/// `s_num_fc_blks` when it is 0.
pub const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Smallest journal, in blocks.
pub const MIN_JOURNAL_BLOCKS: u32 = 1024;
/// Checksum type crc32c (`s_checksum_type`, `h_chksum_type`).
pub const JBD2_CRC32C_CHKSUM: u8 = 4;
/// Checksum type crc32 (v1: of the data of a transaction).
pub const JBD2_CRC32_CHKSUM: u8 = 1;

/// What a journal block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Tags of the data blocks that follow.
    Descriptor,
    /// End of a transaction.
    Commit,
    /// Superblock without features.
    SuperblockV1,
    /// Superblock.
    SuperblockV2,
    /// Blocks not to be replayed from earlier transactions.
    Revoke,
}

impl BlockType {
    /// As `h_blocktype`.
    pub const fn code(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }

    /// From `h_blocktype`.
    pub fn from_code(code: u32) -> Option<Self> {
        use BlockType::{Commit, Descriptor, Revoke, SuperblockV1, SuperblockV2};
        let all = [Descriptor, Commit, SuperblockV1, SuperblockV2, Revoke];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

bitflags! {
    /// `s_feature_compat` of the journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalCompat: u32 {
        /// v1: commit blocks sum the data of their transaction.
        const CHECKSUM = 0x1;
        const _ = !0;
    }
}

bitflags! {
    /// `s_feature_incompat` of the journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalIncompat: u32 {
        /// Revoke blocks may exist.
        const REVOKE = 0x1;
        /// Block numbers are 64 bits wide.
        const BIT64 = 0x2;
        /// Commit blocks are written without waiting.
        const ASYNC_COMMIT = 0x4;
        /// v2 checksums.
        const CSUM_V2 = 0x8;
        /// v3 checksums.
        const CSUM_V3 = 0x10;
        /// A fast-commit area exists.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }
}

impl JournalIncompat {
    /// What the log of a file system with these features should have: wide block numbers where
    /// the others are wide, and checksums where the others have checksums.
    pub fn wanted(features: Features) -> Self {
        let mut wanted = Self::empty();
        let incompat = features.incompat;
        wanted.set(Self::BIT64, incompat.contains(Incompat::BIT64));
        wanted.set(Self::CSUM_V3, features.metadata_csum());
        wanted
    }
}

/// Journal features this implementation replays.
pub const KNOWN_INCOMPAT: JournalIncompat = JournalIncompat::from_bits_retain(0x3F);

bitflags! {
    /// Flags of a tag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TagFlags: u16 {
        /// The data began with the magic and had it zeroed.
        const ESCAPE = 0x1;
        /// Same UUID as the tag before: none follows.
        const SAME_UUID = 0x2;
        /// The block was deleted by this transaction (unused).
        const DELETED = 0x4;
        /// Last tag of the descriptor.
        const LAST_TAG = 0x8;
        const _ = !0;
    }
}

/// Head of every journal block that is not data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct JournalHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

/// The journal superblock, in block 0 of the journal.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct JournalSuperblock {
    pub s_header: JournalHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [[u8; 16]; 48],
}

/// A v3 tag (`csum_v3`): always 16 bytes, before its UUID.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct BlockTag3 {
    pub t_blocknr: U32,
    pub t_flags: U32,
    pub t_blocknr_high: U32,
    pub t_checksum: U32,
}

/// A tag before v3: 12 bytes with `64bit`, else 8, before its UUID.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct BlockTag {
    pub t_blocknr: U32,
    pub t_checksum: U16,
    pub t_flags: U16,
    pub t_blocknr_high: U32,
}

/// Last bytes of descriptor and revoke blocks with v2 or v3 checksums.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct BlockTail {
    pub t_checksum: U32,
}

/// Head of a revoke block; `r_count` counts bytes used, this head included.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct RevokeHeader {
    pub r_header: JournalHeader,
    pub r_count: U32,
}

/// A commit block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct CommitBlock {
    pub h_header: JournalHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

const _: () = {
    assert!(size_of::<JournalHeader>() == JOURNAL_HEADER_LEN);
    assert!(size_of::<JournalSuperblock>() == JOURNAL_SUPERBLOCK_LEN);
    assert!(offset_of!(JournalSuperblock, s_feature_compat) == 0x24);
    assert!(offset_of!(JournalSuperblock, s_checksum_type) == 0x50);
    assert!(offset_of!(JournalSuperblock, s_num_fc_blks) == 0x54);
    assert!(offset_of!(JournalSuperblock, s_checksum) == 0xFC);
    assert!(size_of::<BlockTag3>() == 16);
    assert!(size_of::<BlockTag>() == 12);
    assert!(size_of::<CommitBlock>() == 60);
};

impl JournalHeader {
    /// Head of a block of this type in transaction `sequence`.
    pub fn new(block_type: BlockType, sequence: u32) -> Self {
        Self {
            h_magic: JBD2_MAGIC.into(),
            h_blocktype: block_type.code().into(),
            h_sequence: sequence.into(),
        }
    }

    /// The head of `block` if it has the magic and a known type: its type and sequence.
    pub fn parse(block: &[u8]) -> Option<(BlockType, u32)> {
        let (header, _) = Self::ref_from_prefix(block).ok()?;
        if header.h_magic.get() != JBD2_MAGIC {
            return None;
        }
        Some((
            BlockType::from_code(header.h_blocktype.get())?,
            header.h_sequence.get(),
        ))
    }
}

impl JournalSuperblock {
    /// All zero bytes: the start of a new one.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads block 0 of a journal: magic, version and checksum are tested, nothing else.
    ///
    /// # Errors
    /// [`Damage::Truncated`], [`Damage::JournalSuperblock`], [`Damage::JournalChecksum`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let (sb, _) = Self::read_from_prefix(bytes).map_err(|_| {
            Damage::truncated("journal superblock", JOURNAL_SUPERBLOCK_LEN, bytes.len())
        })?;
        let (magic, kind) = (sb.s_header.h_magic.get(), sb.s_header.h_blocktype.get());
        if magic != JBD2_MAGIC || !matches!(kind, 3 | 4) {
            return Err(Damage::JournalSuperblock {
                why: "magic or block type",
                value: u64::from(kind),
            });
        }
        if sb.checksum_version() >= 2 {
            sb.check_checksum_features()?;
            let (stored, computed) = (sb.s_checksum.get(), sb.checksum());
            if stored != computed {
                return Err(Damage::JournalChecksum {
                    what: "superblock",
                    block: 0,
                    stored,
                    computed,
                });
            }
        }
        Ok(sb)
    }

    /// True for a superblock that has feature words.
    pub fn has_features(&self) -> bool {
        self.s_header.h_blocktype.get() == BlockType::SuperblockV2.code()
    }

    /// Feature words that must be understood; none in a v1 superblock.
    pub fn incompat(&self) -> JournalIncompat {
        let bits = if self.has_features() {
            self.s_feature_incompat.get()
        } else {
            0
        };
        JournalIncompat::from_bits_retain(bits)
    }

    /// Feature words that may be ignored; none in a v1 superblock.
    pub fn compat(&self) -> JournalCompat {
        let bits = if self.has_features() {
            self.s_feature_compat.get()
        } else {
            0
        };
        JournalCompat::from_bits_retain(bits)
    }

    /// 0 (none), 1, 2 or 3: how this journal is summed.
    pub fn checksum_version(&self) -> u8 {
        let incompat = self.incompat();
        if incompat.contains(JournalIncompat::CSUM_V3) {
            3
        } else if incompat.contains(JournalIncompat::CSUM_V2) {
            2
        } else {
            u8::from(self.compat().contains(JournalCompat::CHECKSUM))
        }
    }

    /// Seed of v2 and v3 checksums: crc32c of the journal's UUID.
    pub fn csum_seed(&self) -> u32 {
        crc32c(!0, &self.s_uuid)
    }

    /// crc32c of the 1,024 bytes with a zero sum.
    pub fn checksum(&self) -> u32 {
        let mut copy = *self;
        copy.s_checksum = U32::ZERO;
        crc32c(!0, copy.as_bytes())
    }

    /// Length of a tag before its UUID.
    pub fn tag_len(&self) -> usize {
        let incompat = self.incompat();
        if incompat.contains(JournalIncompat::CSUM_V3) {
            return size_of::<BlockTag3>();
        }
        // v2 takes two bytes more although its checksum lies within the tag: a quirk of the format.
        let v2 = incompat.contains(JournalIncompat::CSUM_V2);
        match (incompat.contains(JournalIncompat::BIT64), v2) {
            (false, false) => 8,
            (false, true) => 10,
            (true, false) => 12,
            (true, true) => 14,
        }
    }

    /// Length of the tail of descriptor and revoke blocks.
    pub fn tail_len(&self) -> usize {
        if self.checksum_version() >= 2 {
            size_of::<BlockTail>()
        } else {
            0
        }
    }

    /// v2 and v3 exclude each other and v1, and know one kind of checksum.
    fn check_checksum_features(&self) -> Result<(), Damage> {
        let both = JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3;
        let bad = |why, value: u32| Damage::JournalSuperblock {
            why,
            value: u64::from(value),
        };
        if self.incompat().contains(both) || self.compat().contains(JournalCompat::CHECKSUM) {
            Err(bad(
                "more than one version of checksums",
                self.incompat().bits(),
            ))
        } else if self.s_checksum_type != JBD2_CRC32C_CHKSUM {
            Err(bad(
                "checksum type is not crc32c",
                self.s_checksum_type.into(),
            ))
        } else {
            Ok(())
        }
    }

    /// End of the ring: the first block that log and data blocks never use.
    pub fn log_end(&self) -> u32 {
        let len = self.s_maxlen.get();
        match len.checked_sub(self.fast_commit_blocks()) {
            Some(end) if end >= MIN_JOURNAL_BLOCKS => end,
            // Too short to give blocks away: the kernel then keeps it all for the log.
            _ => len,
        }
    }

    /// Blocks of the fast-commit area; empty without one.
    ///
    /// It starts one block after the ring's end: the kernel leaves that block unused.
    pub fn fast_commit_area(&self) -> Range<u32> {
        let len = self.s_maxlen.get();
        self.log_end().saturating_add(1).min(len)..len
    }

    /// Blocks at the end set aside for fast commits, as recorded; see [`Self::log_end`].
    pub fn fast_commit_blocks(&self) -> u32 {
        match (
            self.incompat().contains(JournalIncompat::FAST_COMMIT),
            self.s_num_fc_blks.get(),
        ) {
            (false, _) => 0,
            (true, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (true, n) => n,
        }
    }
}

/// One tag of a descriptor, in host form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Home location of the data block that follows.
    pub block: Pblk,
    /// The tag's flags.
    pub flags: TagFlags,
    /// Checksum of the data with v2 (16 bits) and v3 (32 bits), else 0.
    pub checksum: u32,
}

/// The tags of a descriptor block: up to the one marked as the last, or as many as fit.
///
/// The block's checksum must have been tested. Empty if the block has no room for one.
pub fn parse_tags(block: &[u8], sb: &JournalSuperblock) -> Vec<Tag> {
    let end = block.len().saturating_sub(sb.tail_len());
    let block = block.get(..end).unwrap_or_default();
    let mut rest = block.get(JOURNAL_HEADER_LEN..).unwrap_or_default();
    let mut tags = Vec::new();
    while let Some((bytes, behind)) = rest.split_at_checked(sb.tag_len()) {
        let tag = parse_tag(bytes, sb.incompat());
        tags.push(tag);
        if tag.flags.contains(TagFlags::LAST_TAG) {
            break;
        }
        rest = match tag.flags.contains(TagFlags::SAME_UUID) {
            true => behind,
            false => behind.get(UUID_LEN..).unwrap_or_default(),
        };
    }
    tags
}

/// Decodes one tag; `bytes` has the length the features call for (8, 12 or 16).
fn parse_tag(bytes: &[u8], incompat: JournalIncompat) -> Tag {
    let word = |at: usize| {
        let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
        word.map_or(0, |word| U32::from_bytes(*word).get())
    };
    let wide = incompat.contains(JournalIncompat::BIT64);
    let high = if wide { u64::from(word(8)) << 32 } else { 0 };
    let block = Pblk(high | u64::from(word(0)));
    if incompat.contains(JournalIncompat::CSUM_V3) {
        Tag {
            block,
            flags: TagFlags::from_bits_retain(lo16(word(4))),
            checksum: word(12),
        }
    } else {
        // The second word is checksum and flags, 16 bits each.
        Tag {
            block,
            flags: TagFlags::from_bits_retain(lo16(word(4))),
            checksum: word(4) >> 16,
        }
    }
}

/// The blocks a revoke block names. As for the kernel, a count too small for its own head means
/// none, and what is left behind the last whole number counts for nothing.
///
/// # Errors
/// [`Damage::JournalBlock`] if the count does not fit the block.
pub fn parse_revokes(block: &[u8], sb: &JournalSuperblock, at: u32) -> Result<Vec<Pblk>, Damage> {
    let bad = |why| Damage::JournalBlock { at, why };
    let (header, _) = RevokeHeader::ref_from_prefix(block).map_err(|_| bad("revoke header"))?;
    let end = index(header.r_count.get());
    if end > block.len().saturating_sub(sb.tail_len()) {
        return Err(bad("revoke count"));
    }
    let body = block.get(size_of::<RevokeHeader>()..end);
    let body = body.unwrap_or_default();
    let wide = sb.incompat().contains(JournalIncompat::BIT64);
    let (wides, narrows) = if wide {
        (body.as_chunks::<8>().0, [].as_slice())
    } else {
        ([].as_slice(), body.as_chunks::<4>().0)
    };
    let narrows = narrows.iter().map(|n| u64::from(U32::from_bytes(*n).get()));
    let wides = wides.iter().map(|n| U64::from_bytes(*n).get());
    Ok(wides.chain(narrows).map(Pblk).collect())
}

/// True if the tail of a descriptor or revoke block is right (or the journal has none).
pub fn tail_matches(block: &[u8], sb: &JournalSuperblock) -> bool {
    if sb.tail_len() == 0 {
        return true;
    }
    let Some(at) = block.len().checked_sub(size_of::<BlockTail>()) else {
        return false;
    };
    let Ok(tail) = BlockTail::read_from_bytes(&block[at..]) else {
        return false;
    };
    tail.t_checksum.get() == crc32c(crc32c(sb.csum_seed(), &block[..at]), &[0; 4])
}

/// True if the sum of a commit block is right under v2 or v3 (or the journal has none).
///
/// Only the head of a commit block says anything. If the sectors behind it did not make it to the
/// medium the block still counts: then the sum is that of the head followed by zeroes.
pub fn commit_matches(block: &[u8], sb: &JournalSuperblock) -> bool {
    if sb.checksum_version() < 2 {
        return true;
    }
    let Ok((mut head, behind)) = CommitBlock::read_from_prefix(block) else {
        return false;
    };
    let stored = std::mem::take(&mut head.h_chksum[0]).get();
    let crc = crc32c(sb.csum_seed(), head.as_bytes());
    stored == crc32c(crc, behind) || stored == crc32c(crc, &vec![0; behind.len()])
}

/// What a commit block says about the data of its transaction under v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitSumV1 {
    /// It carries no sum.
    None,
    /// [`crc32_be`] from `!0` over the descriptors and data blocks of
    /// the transaction, in log order.
    Crc32(u32),
    /// A sum of a kind that does not exist.
    Unknown,
}

impl CommitBlock {
    /// The sum of the transaction's data; meaningful only with [`JournalCompat::CHECKSUM`].
    pub fn sum_v1(&self) -> CommitSumV1 {
        match (
            self.h_chksum_type,
            self.h_chksum_size,
            self.h_chksum[0].get(),
        ) {
            (JBD2_CRC32_CHKSUM, 4, sum) => CommitSumV1::Crc32(sum),
            (0, 0, 0) => CommitSumV1::None,
            _ => CommitSumV1::Unknown,
        }
    }
}

/// The sum a tag of transaction `sequence` should carry for the data block as it lies in the log.
pub fn tag_checksum(sb: &JournalSuperblock, sequence: u32, data: &[u8]) -> u32 {
    let crc = crc32c(sb.csum_seed(), &U32::new(sequence).to_bytes());
    let crc = crc32c(crc, data);
    if sb.checksum_version() == 2 {
        crc & 0xFFFF
    } else {
        crc
    }
}

/// Undoes the escape of a data block: puts the magic back.
///
/// `data` begins `skip` bytes into the block and may end anywhere.
pub fn unescape(data: &mut [u8], skip: u64) {
    let magic = U32::new(JBD2_MAGIC).to_bytes();
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    for (to, from) in data.iter_mut().zip(magic.iter().skip(skip)) {
        *to = *from;
    }
}

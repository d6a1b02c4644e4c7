//! Journal blocks as they are written: descriptors, revokes, commits.

use std::mem::{offset_of, size_of};

use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32, U64};

use super::{
    BlockTag, BlockTag3, BlockTail, BlockType, CommitBlock, JBD2_CRC32_CHKSUM, JBD2_CRC32C_CHKSUM,
    JBD2_MAGIC, JOURNAL_HEADER_LEN, JournalCompat, JournalHeader, JournalIncompat,
    JournalSuperblock, RevokeHeader, TagFlags, UUID_LEN, tag_checksum,
};
use crate::checksum::crc32c;
use crate::inode::Timestamp;
use crate::num::{hi32, len32, lo16, lo32};
use crate::units::Pblk;

/// A descriptor block while it takes up tags.
#[derive(Clone, Debug)]
pub struct Descriptor<'a> {
    sb: &'a JournalSuperblock,
    sequence: u32,
    /// What is written so far.
    block: Vec<u8>,
    block_size: usize,
    /// Offset of the last tag.
    last: Option<usize>,
}

impl<'a> Descriptor<'a> {
    /// An empty descriptor of transaction `sequence`, `block_size` bytes long.
    pub fn new(sb: &'a JournalSuperblock, sequence: u32, block_size: usize) -> Self {
        let header = JournalHeader::new(BlockType::Descriptor, sequence);
        let mut block = Vec::with_capacity(block_size);
        block.extend_from_slice(header.as_bytes());
        Self {
            sb,
            sequence,
            block,
            block_size,
            last: None,
        }
    }

    /// Most tags a descriptor of `block_size` bytes has room for.
    pub fn capacity(sb: &JournalSuperblock, block_size: usize) -> usize {
        let room = block_size.saturating_sub(JOURNAL_HEADER_LEN + UUID_LEN);
        let tags = room.saturating_sub(sb.tail_len());
        tags.checked_div(sb.tag_len()).unwrap_or(0)
    }

    /// Whether another tag fits.
    pub fn has_room(&self) -> bool {
        let free = self.block_size.saturating_sub(self.block.len());
        let uuid = if self.last.is_none() { UUID_LEN } else { 0 };
        let tag = self.sb.tag_len().saturating_add(uuid);
        tag.saturating_add(self.sb.tail_len()) <= free
    }

    /// Adds the tag of a block, of which there must be room. `data` is the block as it will lie in
    /// the log: with its first four bytes zeroed if `flags` have [`TagFlags::ESCAPE`].
    pub fn push(&mut self, home: Pblk, data: &[u8], mut flags: TagFlags) {
        flags.set(TagFlags::SAME_UUID, self.last.is_some());
        let sum = match self.sb.checksum_version() {
            0 | 1 => 0,
            _ => tag_checksum(self.sb, self.sequence, data),
        };
        let wide = self.sb.incompat().contains(JournalIncompat::BIT64);
        let high = if wide { hi32(home.0) } else { 0 };
        let low = lo32(home.0);
        let first = self.last.replace(self.block.len()).is_none();
        if self.sb.incompat().contains(JournalIncompat::CSUM_V3) {
            let tag = BlockTag3 {
                t_blocknr: low.into(),
                t_flags: u32::from(flags.bits()).into(),
                t_blocknr_high: high.into(),
                t_checksum: sum.into(),
            };
            self.block.extend_from_slice(tag.as_bytes());
        } else {
            let tag = BlockTag {
                t_blocknr: low.into(),
                t_checksum: U16::new(lo16(sum)),
                t_flags: flags.bits().into(),
                t_blocknr_high: high.into(),
            };
            // A tag is shorter than all its fields, or padded with zeroes.
            let bytes = tag.as_bytes().iter().chain(&[0; 2]).copied();
            self.block.extend(bytes.take(self.sb.tag_len()));
        }
        if first {
            self.block.extend_from_slice(&self.sb.s_uuid);
        }
    }

    /// The block, its last tag marked and summed.
    pub fn finish(mut self) -> Vec<u8> {
        if let Some(last) = self.last {
            // Both kinds of tag keep these flags at the same place.
            let flags = &mut self.block[last..][offset_of!(BlockTag, t_flags)..];
            let mark = U16::new(TagFlags::LAST_TAG.bits()).to_bytes();
            flags
                .iter_mut()
                .zip(mark)
                .for_each(|(to, mark)| *to |= mark);
        }
        self.block.resize(self.block_size, 0);
        update_tail(&mut self.block, self.sb);
        self.block
    }
}

/// Sums a descriptor or revoke block; does nothing where the journal has no such sums.
pub fn update_tail(block: &mut [u8], sb: &JournalSuperblock) {
    if sb.tail_len() == 0 {
        return;
    }
    if let Some((rest, tail)) = block.split_last_chunk_mut() {
        let sum = crc32c(crc32c(sb.csum_seed(), rest), &[0; size_of::<BlockTail>()]);
        *tail = U32::new(sum).to_bytes();
    }
}

/// How many block numbers a revoke block of `block_size` bytes has room for.
pub fn revoke_capacity(sb: &JournalSuperblock, block_size: usize) -> usize {
    let room = block_size.saturating_sub(size_of::<RevokeHeader>());
    let numbers = room.saturating_sub(sb.tail_len());
    numbers.checked_div(revoke_len(sb)).unwrap_or(0)
}

fn revoke_len(sb: &JournalSuperblock) -> usize {
    if sb.incompat().contains(JournalIncompat::BIT64) {
        8
    } else {
        4
    }
}

/// A revoke block of transaction `sequence` that names `blocks`, at most [`revoke_capacity`] of
/// them.
pub fn revoke_block(
    sb: &JournalSuperblock,
    sequence: u32,
    block_size: usize,
    blocks: &[Pblk],
) -> Vec<u8> {
    let mut block = vec![0; block_size];
    let len = revoke_len(sb);
    let head = size_of::<RevokeHeader>();
    let header = RevokeHeader {
        r_header: JournalHeader::new(BlockType::Revoke, sequence),
        r_count: len32(blocks.len().saturating_mul(len).saturating_add(head)).into(),
    };
    block[..head].copy_from_slice(header.as_bytes());
    for (to, from) in block[head..].chunks_exact_mut(len).zip(blocks) {
        if len == 8 {
            to.copy_from_slice(&U64::new(from.0).to_bytes());
        } else {
            to.copy_from_slice(&U32::new(lo32(from.0)).to_bytes());
        }
    }
    update_tail(&mut block, sb);
    block
}

/// The commit block of transaction `sequence`, written at `time`. `data_sum` is the v1 sum of what
/// was written before it ([`CommitSumV1::Crc32`](super::CommitSumV1)); it is used only where the
/// journal asks for it.
pub fn commit_block(
    sb: &JournalSuperblock,
    sequence: u32,
    block_size: usize,
    time: Timestamp,
    data_sum: u32,
) -> Vec<u8> {
    let mut commit = CommitBlock {
        h_header: JournalHeader::new(BlockType::Commit, sequence),
        h_chksum_type: 0,
        h_chksum_size: 0,
        h_padding: [0; 2],
        h_chksum: [U32::ZERO; 8],
        h_commit_sec: time.sec.cast_unsigned().into(),
        h_commit_nsec: time.nsec.into(),
    };
    if sb.compat().contains(JournalCompat::CHECKSUM) {
        commit.h_chksum_type = JBD2_CRC32_CHKSUM;
        commit.h_chksum_size = 4;
        commit.h_chksum[0] = data_sum.into();
    }
    let mut block = vec![0; block_size];
    block[..size_of::<CommitBlock>()].copy_from_slice(commit.as_bytes());
    update_commit(&mut block, sb);
    block
}

/// Sums a commit block under v2 or v3; does nothing where the journal has no such sums.
pub fn update_commit(block: &mut [u8], sb: &JournalSuperblock) {
    let at = offset_of!(CommitBlock, h_chksum);
    if sb.checksum_version() < 2 || block.len() < size_of::<CommitBlock>() {
        return;
    }
    block[at..][..4].fill(0);
    let sum = crc32c(sb.csum_seed(), block);
    block[at..][..4].copy_from_slice(&U32::new(sum).to_bytes());
}

impl JournalSuperblock {
    /// Turns on what an empty journal of a file system may come to need: revokes, and 64-bit
    /// block numbers (`BIT64`) and v3 checksums (`CSUM_V3`) where these are `wanted`; its other
    /// flags are ignored. The superblock's own checksum is for the caller to bring up to date.
    /// False, and nothing is changed, for a journal before there were features.
    pub fn set_features(&mut self, wanted: JournalIncompat) -> bool {
        if !self.has_features() {
            return false;
        }
        let mut incompat = self.incompat() | JournalIncompat::REVOKE;
        incompat |= wanted & JournalIncompat::BIT64;
        if wanted.contains(JournalIncompat::CSUM_V3) {
            incompat.remove(JournalIncompat::CSUM_V2);
            incompat |= JournalIncompat::CSUM_V3;
            let compat = self.compat().difference(JournalCompat::CHECKSUM);
            self.s_feature_compat = compat.bits().into();
            self.s_checksum_type = JBD2_CRC32C_CHKSUM;
        }
        self.s_feature_incompat = incompat.bits().into();
        true
    }

    /// Puts the checksum in, where the journal has one.
    pub fn update_checksum(&mut self) {
        if self.checksum_version() >= 2 {
            self.s_checksum_type = JBD2_CRC32C_CHKSUM;
            self.s_checksum = self.checksum().into();
        }
    }
}

/// Whether a block must be escaped: it begins as a journal block would.
pub fn needs_escape(data: &[u8]) -> bool {
    data.get(..4) == Some(&U32::new(JBD2_MAGIC).to_bytes()[..])
}

#[cfg(test)]
mod tests {
    use super::super::{commit_matches, parse_revokes, parse_tags, tail_matches};
    use super::*;

    fn journals() -> impl Iterator<Item = JournalSuperblock> {
        let kinds = [
            JournalIncompat::empty(),
            JournalIncompat::CSUM_V2,
            JournalIncompat::CSUM_V3,
        ];
        kinds.into_iter().flat_map(|kind| {
            [JournalIncompat::empty(), JournalIncompat::BIT64].map(|wide| {
                let mut sb = JournalSuperblock::zeroed();
                sb.s_header = JournalHeader::new(BlockType::SuperblockV2, 0);
                sb.s_feature_incompat = (kind | wide | JournalIncompat::REVOKE).bits().into();
                sb.s_checksum_type = JBD2_CRC32C_CHKSUM;
                sb.s_uuid = *b"sixteen bytes...";
                sb
            })
        })
    }

    #[test]
    fn written_structures_are_read_back() {
        for sb in journals() {
            let wide = sb.incompat().contains(JournalIncompat::BIT64);
            let high = if wide { 7 << 32 } else { 0 };
            for len in [1024, 4096] {
                let mut descriptor = Descriptor::new(&sb, 9, len);
                let mut homes = Vec::new();
                while descriptor.has_room() {
                    let home = Pblk(high + homes.len() as u64);
                    let flags = match homes.len() {
                        1 => TagFlags::ESCAPE,
                        _ => TagFlags::empty(),
                    };
                    descriptor.push(home, &[homes.len() as u8; 64], flags);
                    homes.push(home);
                }
                assert_eq!(homes.len(), Descriptor::capacity(&sb, len));
                let block = descriptor.finish();
                assert!(tail_matches(&block, &sb));
                let tags = parse_tags(&block, &sb);
                assert_eq!(tags.iter().map(|t| t.block).collect::<Vec<_>>(), homes);
                assert!(tags[1].flags.contains(TagFlags::ESCAPE));
                assert!(!tags[2].flags.contains(TagFlags::ESCAPE));
                if sb.checksum_version() > 1 {
                    assert_eq!(tags[2].checksum, tag_checksum(&sb, 9, &[2; 64]));
                }
                homes.truncate(revoke_capacity(&sb, len));
                let block = revoke_block(&sb, 9, len, &homes);
                assert!(tail_matches(&block, &sb));
                assert_eq!(parse_revokes(&block, &sb, 0).unwrap(), homes);
                let time = Timestamp {
                    sec: 1 << 33,
                    nsec: 5,
                };
                let block = commit_block(&sb, 9, len, time, 0);
                assert!(commit_matches(&block, &sb));
                let (kind, sequence) = JournalHeader::parse(&block).unwrap();
                assert_eq!((kind, sequence), (BlockType::Commit, 9));
            }
        }
    }
}

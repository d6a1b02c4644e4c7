//! Arbitrary bytes as a journal superblock, and as every kind of block of such a journal.

use uext4_ondisk::fast_commit::{FC_TAG_HEAD, Records, committed_records};
use uext4_ondisk::journal::{
    CommitBlock, JournalHeader, JournalSuperblock, commit_matches, parse_revokes, parse_tags,
    tag_checksum, tail_matches, unescape,
};
use zerocopy::{FromBytes, IntoBytes};

/// The first byte chooses the journal's features, the rest is the block.
pub fn exercise(data: &[u8]) {
    let Some((&options, block)) = data.split_first() else {
        return;
    };
    superblock(block);
    let mut sb = JournalSuperblock::zeroed();
    sb.s_header = JournalHeader::new(uext4_ondisk::journal::BlockType::SuperblockV2, 0);
    sb.s_feature_incompat = u32::from(options & 0x3F).into();
    sb.s_feature_compat = u32::from(options >> 6 & 1).into();
    let _ = JournalHeader::parse(block);
    assert!(parse_tags(block, &sb).len() * 8 <= block.len());
    if let Ok(revokes) = parse_revokes(block, &sb, 3) {
        assert!(revokes.len() * 4 <= block.len());
    }
    let _ = (tail_matches(block, &sb), commit_matches(block, &sb));
    let _ = tag_checksum(&sb, 7, block);
    let _ = CommitBlock::read_from_prefix(block).map(|(commit, _)| commit.sum_v1());
    unescape(&mut block.to_vec(), 0);
    fast_commits(block, options);
}

fn superblock(bytes: &[u8]) {
    let _ = JournalSuperblock::parse(bytes);
    let Ok((mut sb, _)) = JournalSuperblock::read_from_prefix(bytes) else {
        return;
    };
    sb.s_header = JournalHeader::new(uext4_ondisk::journal::BlockType::SuperblockV2, 0);
    sb.s_checksum = sb.checksum().into();
    let Ok(sb) = JournalSuperblock::parse(sb.as_bytes()) else {
        return;
    };
    let area = sb.fast_commit_area();
    assert!(sb.log_end() <= sb.s_maxlen.get() && area.end <= sb.s_maxlen.get());
    assert!(area.is_empty() || area.start > sb.log_end());
    assert!(sb.tag_len() >= 8 && sb.tail_len() <= 4);
}

/// Two blocks of the area, the first with a head before it.
fn fast_commits(block: &[u8], tid: u8) {
    let head = [FC_TAG_HEAD as u8, 0, 8, 0, 0, 0, 0, 0, tid, 0, 0, 0];
    let first = [&head[..], block].concat();
    let blocks = [&first[..], block];
    let records = committed_records(blocks, tid.into(), 256).unwrap_or_default();
    let all: usize = blocks.map(|b| Records::new(b, 256).count()).iter().sum();
    assert!(records.len() <= all && all <= first.len() + block.len());
}

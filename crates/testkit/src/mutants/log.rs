//! The log of a journal that is to be replayed: its blocks, and their checksums.

use uext4_ondisk::journal::{
    self, BlockTag, BlockTag3, BlockType, JOURNAL_HEADER_LEN, JournalHeader, JournalSuperblock,
    TagFlags, parse_tags, tag_checksum,
};
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::FromBytes;

use crate::damage::{Mapped, Survey, Target};

/// A block with content of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataBlock {
    /// Where it is.
    pub at: Pblk,
    /// The block that it becomes.
    pub home: Pblk,
    /// The block of its descriptor.
    descriptor: Pblk,
    /// Its tag in there: the first byte.
    tag: usize,
    sequence: u32,
}

/// The superblock of the journal as it was.
pub(super) fn superblock(image: &Survey) -> Option<JournalSuperblock> {
    let at = image.known(Ino::JOURNAL)?.blocks.first()?.pblk;
    JournalSuperblock::parse(image.block(at)).ok()
}

/// Sums a block of the log that is not content, by what its head says it is.
pub(super) fn update_sum(block: &mut [u8], sb: &JournalSuperblock) {
    match JournalHeader::parse(block) {
        Some((BlockType::Commit, _)) => journal::update_commit(block, sb),
        Some(_) => journal::update_tail(block, sb),
        None => {}
    }
}

/// Where the tags of a descriptor begin.
pub(super) fn tag_places(block: &[u8], sb: &JournalSuperblock) -> Vec<usize> {
    let mut at = JOURNAL_HEADER_LEN;
    let place = |tag: journal::Tag| {
        let place = at;
        at += sb.tag_len();
        if !tag.flags.contains(TagFlags::SAME_UUID) {
            at += sb.s_uuid.len();
        }
        place
    };
    parse_tags(block, sb).into_iter().map(place).collect()
}

/// The blocks of a journal that a replay reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// Descriptors, revoke and commit blocks.
    pub heads: Vec<Mapped>,
    /// Blocks with content.
    pub data: Vec<DataBlock>,
    /// Blocks of fast commits.
    pub fast: Vec<Mapped>,
}

/// Walks the log of an image; `None` if it has no journal.
pub(super) fn walk(image: &Survey) -> Option<Log> {
    let (sb, known) = (superblock(image)?, image.known(Ino::JOURNAL)?);
    let mut log = Log::default();
    let mut walk = Walk {
        image,
        sb: &sb,
        blocks: &known.blocks,
        at: sb.s_start.get(),
        left: sb.s_maxlen.get(),
    };
    let mut sequence = sb.s_sequence.get();
    while let Some(head) = walk.next() {
        let block = image.block(head.pblk);
        match JournalHeader::parse(block) {
            Some((kind, found)) if found == sequence => {
                log.heads.push(head);
                match kind {
                    BlockType::Descriptor => log.data.extend(walk.data_of(head, sequence)),
                    BlockType::Commit => sequence = sequence.wrapping_add(1),
                    _ => {}
                }
            }
            _ => break,
        }
    }
    let fast = sb.fast_commit_area();
    let is_written = |mapped: &&Mapped| {
        let is_there = fast.contains(&mapped.lblk.0);
        is_there && image.block(mapped.pblk).iter().any(|&byte| byte != 0)
    };
    log.fast = known.blocks.iter().filter(is_written).copied().collect();
    Some(log)
}

/// The blocks of a log in their order.
struct Walk<'a> {
    image: &'a Survey,
    sb: &'a JournalSuperblock,
    blocks: &'a [Mapped],
    at: u32,
    left: u32,
}

impl Walk<'_> {
    fn next(&mut self) -> Option<Mapped> {
        self.left = self.left.checked_sub(1)?;
        // An empty log begins nowhere.
        let lblk = Some(self.at).filter(|&at| at != 0)?;
        self.at = match lblk + 1 {
            end if end >= self.sb.log_end() => self.sb.s_first.get(),
            next => next,
        };
        self.blocks.iter().find(|m| m.lblk == Lblk(lblk)).copied()
    }

    fn data_of(&mut self, head: Mapped, sequence: u32) -> Vec<DataBlock> {
        let block = self.image.block(head.pblk);
        let tags = parse_tags(block, self.sb);
        let tags = tags.into_iter().zip(tag_places(block, self.sb));
        let data = tags.filter_map(|(tag, place)| {
            Some(DataBlock {
                at: self.next()?.pblk,
                home: tag.block,
                descriptor: head.pblk,
                tag: place,
                sequence,
            })
        });
        data.collect()
    }
}

impl DataBlock {
    /// Changes the content; its tag and the descriptor follow where checksums are to be right.
    pub(super) fn change(
        &self,
        t: &mut Target<'_>,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Option<()> {
        let sb = superblock(t.clean)?;
        change(t.block(self.at));
        if !t.has_right_sums() || sb.checksum_version() < 2 {
            return Some(());
        }
        let sum = tag_checksum(&sb, self.sequence, t.block(self.at));
        let block = t.block(self.descriptor);
        let tag = block.get_mut(self.tag..)?;
        match sb.checksum_version() {
            3 => BlockTag3::mut_from_prefix(tag).ok()?.0.t_checksum = sum.into(),
            _ => BlockTag::mut_from_prefix(tag).ok()?.0.t_checksum = (sum as u16).into(),
        }
        journal::update_tail(block, &sb);
        Some(())
    }
}

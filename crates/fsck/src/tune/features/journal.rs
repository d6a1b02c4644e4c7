//! The journal that is made or removed, and the blocks for fast commits.

use uext4_ondisk::features::{Compat, FeatureBit};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::little_endian::U32;

use super::Target;
use crate::error::Result;
use crate::journal::{default_area, default_blocks};
use crate::tune::change::{Amount, refused};

/// Fewest and most blocks of the log of a journal.
const JOURNAL_BLOCKS: std::ops::RangeInclusive<u64> = 1024..=10_240_000;

/// What was said about the journal.
#[derive(Debug, Default)]
pub(super) struct Wished {
    /// Bytes of the log.
    pub log: Option<u64>,
    /// Bytes for fast commits.
    pub fast_commits: Option<u64>,
    /// Where it begins.
    pub place: Option<Amount>,
    /// One on another device is given up.
    pub forgets_device: bool,
}

impl Target {
    /// A journal is made, which is none of the features' but of `-J`.
    pub(super) fn new_journal(&mut self) -> Result<()> {
        if self.before.features().compat.contains(Compat::HAS_JOURNAL) {
            return refused(
                "the file system has a journal: remove it by -O ^has_journal, then make another",
            );
        }
        self.compat(Compat::HAS_JOURNAL, true)
    }

    pub(super) fn no_journal(&mut self) -> Result<()> {
        if self.superblock.s_journal_inum.get() == 0 && !self.wished.forgets_device {
            return refused(
                "the journal is on another device, which is not changed: -f -O ^has_journal gives \
                 it up",
            );
        }
        // The kernel and e2fsck want no orphan file without a journal.
        if self.features().compat.contains(Compat::ORPHAN_FILE) {
            self.compat(Compat::ORPHAN_FILE, false)?;
        }
        if self.superblock.s_journal_inum.get() == Ino::JOURNAL.0 {
            self.cleared.push(Ino::JOURNAL);
        }
        self.superblock.s_journal_inum = 0.into();
        self.superblock.s_journal_dev = 0.into();
        self.superblock.s_journal_uuid = [0; 16];
        self.superblock.s_jnl_backup_type = 0;
        self.superblock.s_jnl_blocks = [U32::ZERO; 17];
        self.set(FeatureBit::Compat(Compat::HAS_JOURNAL), false)
    }

    /// Sizes and places, once all features are known.
    pub(super) fn settle_journal(&mut self) -> Result<()> {
        let after = self.features().compat;
        let log2 = self.geometry.block_size.log2();
        let area = self.wished.fast_commits.map(|bytes| bytes >> log2);
        match area {
            Some(_) if !after.contains(Compat::FAST_COMMIT) => {
                return refused(
                    "fast_commit_size needs the feature fast_commit: set it by -O fast_commit",
                );
            }
            Some(0) => return refused("fast_commit_size is less than a block"),
            _ => {}
        }
        if !after.contains(Compat::HAS_JOURNAL) {
            return Ok(());
        }
        if self.before.features().compat.contains(Compat::HAS_JOURNAL) {
            self.fast_commit_area = area.map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX));
            return Ok(());
        }
        let all = self.geometry.blocks_count;
        let said = self.wished.log.map(|bytes| bytes >> log2);
        let log = said.or_else(|| default_blocks(all).map(u64::from));
        let log = log.unwrap_or(0);
        let total = match (after.contains(Compat::FAST_COMMIT), area) {
            (false, _) => log,
            (true, area) => log.saturating_add(area.unwrap_or(default_area(all).into())),
        };
        let most = (*JOURNAL_BLOCKS.end()).min(all / 2);
        if said.is_some_and(|log| !JOURNAL_BLOCKS.contains(&log))
            || (said.is_some() || area.is_some()) && total > most
        {
            return refused(format!(
                "a journal of {log} blocks, {total} with those for fast commits, cannot be: it \
                 has at least 1024, at most 10240000, and at most half of the file system's {all}"
            ));
        }
        let blocks = |count: Option<u64>| count.and_then(|count| u32::try_from(count).ok());
        self.make.journal_blocks = blocks(said);
        self.make.fast_commit_blocks = blocks(area);
        self.make.journal_goal = self.wished.place.map(|place| match place {
            Amount::Blocks(block) => Pblk(block),
            Amount::Bytes(byte) => Pblk(byte >> log2),
        });
        match self.make.journal_goal {
            Some(goal) if !self.geometry.contains(goal, 1) => refused(format!(
                "block {} for the journal lies outside the file system, which has {all} blocks",
                goal.0
            )),
            _ => Ok(()),
        }
    }
}

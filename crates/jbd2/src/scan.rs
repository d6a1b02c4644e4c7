//! One walk over the log from its start: which transactions are whole, and what they hold.
//!
//! Distances are blocks from the start of the log, transactions are counted from the first one in
//! it; so both only grow, however the ring and the sequence wrap.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use uext4_ondisk::checksum::crc32_be;
use uext4_ondisk::journal::{
    BlockType, CommitBlock, CommitSumV1, JournalCompat, JournalHeader, JournalIncompat, TagFlags,
    commit_matches, parse_tags, tail_matches,
};
use uext4_ondisk::{Damage, Pblk};
use zerocopy::FromBytes;

use crate::Error;
use crate::log::Log;

/// A data block of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) home: Pblk,
    /// Distance of the copy.
    pub(crate) distance: u32,
    pub(crate) transaction: u32,
    /// As the tag says.
    pub(crate) checksum: u32,
    pub(crate) escaped: bool,
}

/// What the log holds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) records: Vec<Record>,
    /// Revoke blocks: distance and transaction.
    pub(crate) revokes: Vec<(u32, u32)>,
    /// Whole transactions.
    pub(crate) transactions: u32,
    /// Distance of the block behind each of them.
    pub(crate) ends: Vec<u32>,
    /// The sequence of a transaction whose commit block does not match.
    pub(crate) failed_commit: Option<u32>,
}

/// What becomes of a committed transaction that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDamage {
    /// The recovery fails.
    Fail,
    /// What is damaged is left out. Before a transaction of which it is not known what it changed
    /// the log ends.
    LeaveOut,
}

struct Scanner<'a> {
    log: &'a Log<'a>,
    on_damage: OnDamage,
    found: Scan,
    /// Distance of the block to look at next.
    distance: u32,
    /// v1 sum of the running transaction.
    crc: u32,
    /// Seconds of the last commit: an older one is left over from an earlier round of the ring.
    last_commit: u64,
    /// A descriptor or revoke block of the running transaction does not match.
    suspect: Option<Damage>,
    /// A commit that may be unfinished ended the log; one more behind it shows that it was not.
    doubted: bool,
}

/// Walks the log. The superblock says that it is not empty.
pub(crate) fn scan(log: &Log<'_>, on_damage: OnDamage) -> Result<Scan, Error> {
    let mut scanner = Scanner {
        log,
        on_damage,
        found: Scan::default(),
        distance: 0,
        crc: !0,
        last_commit: 0,
        suspect: None,
        doubted: false,
    };
    let (mut records, mut revokes) = (0, 0);
    let mut block = vec![0; log.block_size.len()];
    while scanner.distance < log.ring_len() {
        log.read(log.at(scanner.distance), &mut block)?;
        let Some((kind, sequence)) = JournalHeader::parse(&block) else {
            break;
        };
        if sequence != scanner.sequence() {
            break;
        }
        let goes_on = match kind {
            BlockType::Descriptor => scanner.descriptor(&block)?,
            BlockType::Revoke => scanner.revoke(&block),
            BlockType::Commit => {
                let goes_on = scanner.commit(&block)?;
                if goes_on && !scanner.doubted {
                    records = scanner.found.records.len();
                    revokes = scanner.found.revokes.len();
                }
                goes_on
            }
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => false,
        };
        if !goes_on {
            break;
        }
    }
    // What follows the last commit was never committed.
    scanner.found.records.truncate(records);
    scanner.found.revokes.truncate(revokes);
    Ok(scanner.found)
}

impl Scanner<'_> {
    /// The sequence the next control block must carry.
    fn sequence(&self) -> u32 {
        let first = self.log.sb.s_sequence.get();
        let sequence = first.wrapping_add(self.found.transactions);
        sequence.wrapping_add(self.doubted.into())
    }

    /// To the next block: the ring has fewer than 2^32, and each is read once.
    fn advance(&mut self) {
        self.distance = self.distance.saturating_add(1);
    }

    fn suspect(&mut self, what: &'static str) {
        let at = self.log.at(self.distance);
        self.suspect
            .get_or_insert(Damage::JournalBlock { at, why: what });
    }

    /// Notes the data blocks of a descriptor and steps over them. False if they cannot all be
    /// there: the log would have to be longer than its ring.
    fn descriptor(&mut self, block: &[u8]) -> Result<bool, Error> {
        if !tail_matches(block, &self.log.sb) {
            self.suspect("the checksum of a committed descriptor does not match");
        }
        let summed = self.log.sb.compat().contains(JournalCompat::CHECKSUM) && !self.doubted;
        if summed {
            self.crc = crc32_be(self.crc, block);
        }
        self.advance();
        let mut data = vec![0; if summed { block.len() } else { 0 }];
        for tag in parse_tags(block, &self.log.sb) {
            if self.distance >= self.log.ring_len() {
                return Ok(false);
            }
            if summed {
                self.log.read(self.log.at(self.distance), &mut data)?;
                self.crc = crc32_be(self.crc, &data);
            }
            self.found.records.push(Record {
                home: tag.block,
                distance: self.distance,
                transaction: self.found.transactions,
                checksum: tag.checksum,
                escaped: tag.flags.contains(TagFlags::ESCAPE),
            });
            self.advance();
        }
        Ok(true)
    }

    fn revoke(&mut self, block: &[u8]) -> bool {
        if !tail_matches(block, &self.log.sb) {
            self.suspect("the checksum of a committed revoke block does not match");
        }
        let place = (self.distance, self.found.transactions);
        self.found.revokes.push(place);
        self.advance();
        true
    }

    /// Closes the transaction. False if there is nothing more to learn: the log ends before this
    /// commit block, or ended before another.
    fn commit(&mut self, block: &[u8]) -> Result<bool, Error> {
        let Ok((commit, _)) = CommitBlock::ref_from_prefix(block) else {
            return Ok(false);
        };
        if self.doubted {
            self.found.failed_commit = Some(self.sequence().wrapping_sub(1));
            return Ok(false);
        }
        let time = commit.h_commit_sec.get();
        if let Some(damage) = self.suspect.take() {
            let stale = time < self.last_commit;
            if stale || self.may_be_torn()? {
                return Ok(false);
            }
            if self.on_damage == OnDamage::LeaveOut {
                self.found.failed_commit = Some(self.sequence());
                return Ok(false);
            }
            return Err(damage.into());
        }
        if !self.sums_match(block, commit) {
            if time < self.last_commit {
                return Ok(false);
            }
            if !self.is_async() {
                self.found.failed_commit = Some(self.sequence());
                return Ok(false);
            }
            // Under async_commit that is how an unfinished transaction looks. With v1 sums the
            // kernel walks on, to see whether another one was finished after it.
            self.doubted = self.log.sb.checksum_version() == 1;
            self.advance();
            return Ok(self.doubted);
        }
        self.last_commit = time;
        self.crc = !0;
        self.found.transactions = self.found.transactions.saturating_add(1);
        self.advance();
        self.found.ends.push(self.distance);
        Ok(true)
    }

    fn sums_match(&self, block: &[u8], commit: &CommitBlock) -> bool {
        if !self.log.sb.compat().contains(JournalCompat::CHECKSUM) {
            return commit_matches(block, &self.log.sb);
        }
        match commit.sum_v1() {
            CommitSumV1::None => true,
            CommitSumV1::Crc32(sum) => sum == self.crc,
            CommitSumV1::Unknown => false,
        }
    }

    fn is_async(&self) -> bool {
        let incompat = self.log.sb.incompat();
        incompat.contains(JournalIncompat::ASYNC_COMMIT)
    }

    /// Whether the commit block here may be on the medium without what it commits: only with
    /// `async_commit`, and only if no transaction follows.
    fn may_be_torn(&self) -> Result<bool, Error> {
        if !self.is_async() {
            return Ok(false);
        }
        let mut next = vec![0; self.log.block_size.len()];
        self.log
            .read(self.log.at(self.distance.saturating_add(1)), &mut next)?;
        let follower = JournalHeader::parse(&next).map(|(_, sequence)| sequence);
        Ok(follower != Some(self.sequence().wrapping_add(1)))
    }
}

//! Older copies of blocks that a log still holds although they were checkpointed.
//!
//! A log is a ring: what was written stays in it until the ring comes round. So where the block in
//! its home location was overwritten by something else, its last copy may still be there. This is
//! no recovery: nothing says that the copy is what the block held at last, and a caller must judge
//! it.
//!
//! The walk looks at each block of the ring. A descriptor begins a chain of control blocks with its
//! sequence, as in `scan`; the chain counts only if it ends in a commit block. Where the log has
//! checksums, descriptors, commits and data must have the right ones. A copy does not count if a
//! transaction that is as new, or newer, revokes its block, for the block was freed then. Revokes
//! are looked for in a second walk, when the copies are known: only theirs take memory.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use std::collections::{HashMap, HashSet};

use uext4_blockdev::BlockDevice;
use uext4_ondisk::journal::{
    BlockType, JournalHeader, TagFlags, commit_matches, parse_revokes, parse_tags, tag_checksum,
    tail_matches,
};
use uext4_ondisk::{BlockSize, Pblk};

use crate::log::{Log, advance};
use crate::{Error, LogRun, ReplayedBlock};

/// How many times as many blocks may be read as the ring has.
const ROUNDS_MAX: u64 = 8;
/// Most blocks of the ring that are looked at: as many as mke2fs gives a journal at most.
const RING_MAX: u32 = 10_240_000;
/// Blocks after which the progress is reported.
const STEP: u64 = 1024;

/// The newest copy of each block in the log of the journal on `runs`, sorted by home location,
/// whether it is in its home location or not. Nothing is written.
///
/// `watch` is called from time to time with how far it has come, and of how much. If it returns
/// false, the walk ends, and nothing is found.
///
/// # Errors
/// As [`crate::recover`] for a journal whose superblock is damaged; of the device. Damage in the
/// log is passed over.
pub fn older_copies(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks_count: u64,
    runs: &[LogRun],
    watch: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Vec<ReplayedBlock>, Error> {
    let log = Log::open(device, block_size, blocks_count, runs)?;
    let mut walk = Walk::new(&log, block_size, watch);
    walk.run()?;
    walk.is_second = true;
    walk.run()?;
    if walk.is_stopped {
        return Ok(Vec::new());
    }
    let (copies, revokes) = (walk.copies, walk.revokes);
    let is_live = |home: &Pblk, copy: &Copied| {
        let revoked = revokes.get(home);
        revoked.is_none_or(|&sequence| is_newer(copy.sequence, sequence))
    };
    let mut live: Vec<ReplayedBlock> = copies
        .into_iter()
        .filter(|(home, copy)| is_live(home, copy))
        .map(|(_, copy)| copy.block)
        .collect();
    live.sort_unstable_by_key(|block| block.home);
    Ok(live)
}

/// A copy of a block in a transaction of the log that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OlderCopy {
    /// How many transactions before the newest one that has a copy of any block.
    pub age: u32,
    /// The copy.
    pub block: ReplayedBlock,
}

/// All copies of each block in the log of the journal on `runs`, sorted by home location, the
/// newest first, those included that are revoked: for readers that want what a block held before it
/// was freed. Nothing is written, and `watch` is called as by [`older_copies`].
///
/// # Errors
/// As [`older_copies`].
pub fn all_copies(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks_count: u64,
    runs: &[LogRun],
    watch: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Vec<OlderCopy>, Error> {
    let log = Log::open(device, block_size, blocks_count, runs)?;
    let mut walk = Walk::new(&log, block_size, watch);
    walk.all = Some(Vec::new());
    walk.run()?;
    let all = walk.all.filter(|_| !walk.is_stopped).unwrap_or_default();
    let newest =
        all.iter()
            .map(|copy| copy.sequence)
            .reduce(|newest, own| match is_newer(own, newest) {
                true => own,
                false => newest,
            });
    let newest = newest.unwrap_or(0);
    let of = |copy: Copied| OlderCopy {
        age: newest.wrapping_sub(copy.sequence),
        block: copy.block,
    };
    let mut all: Vec<OlderCopy> = all.into_iter().map(of).collect();
    all.sort_unstable_by_key(|copy| (copy.block.home, copy.age, copy.block.log));
    all.dedup();
    Ok(all)
}

/// Whether a sequence comes after another; they wrap.
fn is_newer(sequence: u32, other: u32) -> bool {
    sequence.wrapping_sub(other).cast_signed() > 0
}

/// A copy of a block.
struct Copied {
    sequence: u32,
    block: ReplayedBlock,
}

struct Walk<'a> {
    log: &'a Log<'a>,
    watch: &'a mut dyn FnMut(u64, u64) -> bool,
    /// Where in the ring the walk is.
    at: u32,
    /// The first walk looks for copies, the second one for what revokes them.
    is_second: bool,
    is_stopped: bool,
    /// Blocks that may still be read.
    budget: u64,
    block: Vec<u8>,
    data: Vec<u8>,
    copies: HashMap<Pblk, Copied>,
    /// Every copy, in place of the newest ones, where these are wanted.
    all: Option<Vec<Copied>>,
    /// The last sequence that revokes a block of which there is a copy.
    revokes: HashMap<Pblk, u32>,
}

impl<'a> Walk<'a> {
    fn new(
        log: &'a Log<'a>,
        block_size: BlockSize,
        watch: &'a mut dyn FnMut(u64, u64) -> bool,
    ) -> Self {
        Self {
            watch,
            at: 0,
            is_second: false,
            is_stopped: false,
            budget: 0,
            block: vec![0; block_size.len()],
            data: vec![0; block_size.len()],
            copies: HashMap::new(),
            all: None,
            revokes: HashMap::new(),
            log,
        }
    }

    /// Walks through the ring.
    fn run(&mut self) -> Result<(), Error> {
        let len = self.log.ring_len().min(RING_MAX);
        let budget = u64::from(len).saturating_mul(ROUNDS_MAX);
        // So that the first read reports, too.
        self.budget = budget.next_multiple_of(STEP);
        self.at = 0;
        while self.at < len && !self.is_stopped {
            let chain = self.chain(self.at)?;
            self.at = self.at.saturating_add(chain.unwrap_or(1).max(1));
        }
        Ok(())
    }

    /// The log block `distance` blocks behind the first one of the ring.
    fn at(&self, distance: u32) -> u32 {
        let (first, end) = self.log.bounds();
        advance(first..end, first, distance)
    }

    /// Follows a transaction that begins here to its commit block, and returns how many blocks it
    /// has. `None` if none begins here, or if it is not whole.
    fn chain(&mut self, start: u32) -> Result<Option<u32>, Error> {
        let mut copies = Vec::new();
        let mut revokes = HashSet::new();
        let mut len = 0_u32;
        let mut sequence = None;
        while len < self.log.ring_len() && self.spend() {
            let at = self.at(start.saturating_add(len));
            self.log.read(at, &mut self.block)?;
            let Some((kind, own)) = JournalHeader::parse(&self.block) else {
                return Ok(None);
            };
            if *sequence.get_or_insert(own) != own {
                return Ok(None);
            }
            len = len.saturating_add(1);
            match kind {
                BlockType::Descriptor if tail_matches(&self.block, &self.log.sb) => {
                    let first = start.saturating_add(len);
                    let Some(count) = self.tags(own, first, &mut copies)? else {
                        return Ok(None);
                    };
                    len = len.saturating_add(count);
                }
                BlockType::Revoke if tail_matches(&self.block, &self.log.sb) => {
                    let Ok(named) = parse_revokes(&self.block, &self.log.sb, at) else {
                        return Ok(None);
                    };
                    let known = |home: &Pblk| self.is_second && self.copies.contains_key(home);
                    revokes.extend(named.into_iter().filter(known));
                }
                BlockType::Commit if commit_matches(&self.block, &self.log.sb) => {
                    self.note(own, copies, revokes);
                    return Ok(Some(len));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    fn spend(&mut self) -> bool {
        if self.budget.checked_rem(STEP) == Some(0) {
            let len = u64::from(self.log.ring_len().min(RING_MAX));
            let before = if self.is_second { len } else { 0 };
            let done = before.saturating_add(u64::from(self.at));
            self.is_stopped |= !(self.watch)(done, len.saturating_mul(2));
        }
        if self.is_stopped {
            return false;
        }
        let left = self.budget.checked_sub(1);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    /// Adds the data blocks of the descriptor that was read, and returns how many it has. `None` if
    /// there are more than the ring can hold, or one is not what its tag says.
    fn tags(
        &mut self,
        sequence: u32,
        first: u32,
        copies: &mut Vec<ReplayedBlock>,
    ) -> Result<Option<u32>, Error> {
        let tags = parse_tags(&self.block, &self.log.sb);
        let mut count = 0_u32;
        for tag in tags {
            if count >= self.log.ring_len() || !self.spend() {
                return Ok(None);
            }
            let at = self.at(first.saturating_add(count));
            if self.log.sb.checksum_version() >= 2 {
                self.log.read(at, &mut self.data)?;
                if tag_checksum(&self.log.sb, sequence, &self.data) != tag.checksum {
                    return Ok(None);
                }
            }
            count = count.saturating_add(1);
            let is_wanted = !self.is_second && tag.block.0 < self.log.blocks_count;
            if is_wanted && !self.log.owns(tag.block) {
                copies.push(ReplayedBlock {
                    home: tag.block,
                    log: self.log.block(at)?,
                    escaped: tag.flags.contains(TagFlags::ESCAPE),
                });
            }
        }
        Ok(Some(count))
    }

    /// Notes what a whole transaction holds, where nothing newer is known.
    fn note(&mut self, sequence: u32, copies: Vec<ReplayedBlock>, revokes: HashSet<Pblk>) {
        if let Some(all) = &mut self.all {
            all.extend(copies.iter().map(|&block| Copied { sequence, block }));
            return;
        }
        for block in copies {
            let known = self.copies.get(&block.home);
            if known.is_none_or(|known| !is_newer(known.sequence, sequence)) {
                self.copies.insert(block.home, Copied { sequence, block });
            }
        }
        for home in revokes {
            let known = self.revokes.entry(home).or_insert(sequence);
            if is_newer(sequence, *known) {
                *known = sequence;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_wrap() {
        assert!(is_newer(2, 1) && !is_newer(1, 1) && !is_newer(1, 2));
        assert!(is_newer(3, u32::MAX - 3) && !is_newer(u32::MAX - 3, 3));
    }
}

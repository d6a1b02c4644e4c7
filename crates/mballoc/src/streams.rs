//! Where streams go on: goals of large files that have nothing mapped beside what they ask for.
//!
//! Vanilla 3.15 has one for the whole file system. Mainline since 2025 has an array of them, at most
//! one a group quarter, chosen by the file's number, stored and read without a lock; so has the
//! bounded search, but for a stream that begins while nothing is kept for any other file: nobody
//! writes beside it, and it goes on behind the last one, whichever that was. How many there may be is a tunable here and not the machine's number of
//! processors, so that the same requests give the same layout everywhere.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4_ondisk::Pblk;

use crate::{Allocator, Run, Search};

/// No goal yet.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Streams {
    goals: Box<[AtomicU64]>,
    /// Behind what any stream was given last.
    latest: AtomicU64,
}

impl Streams {
    /// At most `most` goals, fewer on a file system of few groups, one with the linear search.
    pub(crate) fn new(search: Search, most: u32, groups: u32) -> Self {
        let count = match search {
            Search::Linear => 1,
            Search::Criteria | Search::LargestRun => most.min(groups / 4).max(1),
        };
        Self {
            goals: (0..count).map(|_| AtomicU64::new(NONE)).collect(),
            latest: AtomicU64::new(NONE),
        }
    }

    /// Whether a stream of another place than this file's goes on within `blocks`.
    pub(crate) fn others_in(&self, file: u64, blocks: &Range<u64>) -> bool {
        let own = self.place(file);
        let mut goals = self.goals.iter().enumerate();
        goals.any(|(at, goal)| at != own && blocks.contains(&goal.load(Relaxed)))
    }

    fn place(&self, file: u64) -> usize {
        (file % self.goals.len() as u64) as usize
    }

    fn of(&self, file: u64) -> &AtomicU64 {
        &self.goals[self.place(file)]
    }
}

impl Allocator {
    /// Where a file of this number that grows as a stream goes on, if it has nothing mapped beside
    /// what it asks for; `None` before the first stream of its kind. No lock; files share goals.
    pub fn stream_goal(&self, file: u64) -> Option<Pblk> {
        let streams = self.streams();
        let goal = streams.of(file).load(Relaxed);
        (goal != NONE).then_some(Pblk(goal))
    }

    /// Behind what any stream was given last.
    pub(crate) fn latest_stream_goal(&self) -> Option<Pblk> {
        let goal = self.streams().latest.load(Relaxed);
        (goal != NONE).then_some(Pblk(goal))
    }

    /// A stream of this file was given `run`. The kernel goes on in the group of its start, where the
    /// whole group is looked through; the bounded search goes on behind it.
    pub fn set_stream_goal(&self, file: u64, run: Run) {
        let goal = match self.options().search {
            Search::Linear | Search::Criteria => run.start.0,
            Search::LargestRun => run.start.0 + u64::from(run.len),
        };
        let streams = self.streams();
        streams.of(file).store(goal, Relaxed);
        streams.latest.store(goal, Relaxed);
    }
}

//! Where streams go on: goals of large files that have nothing mapped in addition to what they
//! ask for.
//!
//! An array of goals, at most one for four groups, chosen by the file's number, stored and read
//! without a lock. A stream that begins while nothing is preallocated for any other file goes on
//! behind the last stream, whichever that was: no other file is written next to it. The number of
//! goals does not depend on that of the machine's processors, so that the same requests give the
//! same layout everywhere.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4_ondisk::Pblk;

/// Goals at most.
const GOALS_MAX: u32 = 16;
/// No goal yet.
const NONE: u64 = u64::MAX;

/// See the file's head. All goals are blocks of the device.
#[derive(Debug)]
pub(super) struct Streams {
    goals: Box<[AtomicU64]>,
    /// Behind what any stream was given last.
    latest: AtomicU64,
}

impl Streams {
    /// For a file system of so many groups.
    pub(super) fn new(groups: u32) -> Self {
        Self {
            goals: (0..Self::count(groups))
                .map(|_| AtomicU64::new(NONE))
                .collect(),
            latest: AtomicU64::new(NONE),
        }
    }

    /// How many goals a file system of so many groups has.
    pub(super) fn count(groups: u32) -> usize {
        GOALS_MAX.min(groups / 4).max(1) as usize
    }

    /// How many goals there are.
    pub(super) fn len(&self) -> usize {
        self.goals.len()
    }

    /// Whether a stream of another place than this file's goes on within `blocks`.
    pub(super) fn others_in(&self, file: u64, blocks: &Range<u64>) -> bool {
        let own = self.place(file);
        let mut goals = self.goals.iter().enumerate();
        goals.any(|(at, goal)| at != own && blocks.contains(&goal.load(Relaxed)))
    }

    fn place(&self, file: u64) -> usize {
        (file % self.goals.len() as u64) as usize
    }

    /// Where a file of this number goes on; `None` before the first stream of its place.
    pub(super) fn goal(&self, file: u64) -> Option<Pblk> {
        known(&self.goals[self.place(file)])
    }

    /// Behind what any stream was given last.
    pub(super) fn latest(&self) -> Option<Pblk> {
        known(&self.latest)
    }

    /// A stream of this file was given a run that ends before block `end`.
    pub(super) fn set(&self, file: u64, end: u64) {
        self.goals[self.place(file)].store(end, Relaxed);
        self.latest.store(end, Relaxed);
    }
}

fn known(goal: &AtomicU64) -> Option<Pblk> {
    let goal = goal.load(Relaxed);
    (goal != NONE).then_some(Pblk(goal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_goal_and_the_last_one_is_known() {
        let streams = Streams::new(64);
        assert_eq!((streams.goal(7), streams.latest()), (None, None));
        streams.set(7, 100);
        assert_eq!(streams.goal(7), Some(Pblk(100)));
        assert_eq!(streams.goal(7 + u64::from(GOALS_MAX)), Some(Pblk(100)));
        assert_eq!(streams.goal(8), None);
        assert_eq!(streams.latest(), Some(Pblk(100)));
        assert!(streams.others_in(8, &(90..101)));
        assert!(!streams.others_in(7, &(90..101)));
        assert!(!streams.others_in(8, &(90..100)));
    }
}

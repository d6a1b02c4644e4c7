//! What the allocator has done, under the kernel's names where it has them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A snapshot of the counters since the allocator was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `reqs`: requests.
    pub reqs: u64,
    /// `success`: requests answered with a run.
    pub success: u64,
    /// Blocks handed out.
    pub allocated: u64,
    /// `goal_hits`: requests answered at their goal.
    pub goal_hits: u64,
    /// `groups_considered`: groups looked into beside the goal's.
    pub groups_considered: u64,
    /// Requests answered with less than they asked for.
    pub shortened: u64,
    /// `buddies_generated`: times a bitmap was read and cut into chunks.
    pub buddies_generated: u64,
    /// Blocks given back.
    pub freed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reqs: AtomicU64,
    pub(crate) success: AtomicU64,
    pub(crate) allocated: AtomicU64,
    pub(crate) goal_hits: AtomicU64,
    pub(crate) groups_considered: AtomicU64,
    pub(crate) shortened: AtomicU64,
    pub(crate) buddies_generated: AtomicU64,
    pub(crate) freed: AtomicU64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            reqs: self.reqs.load(Relaxed),
            success: self.success.load(Relaxed),
            allocated: self.allocated.load(Relaxed),
            goal_hits: self.goal_hits.load(Relaxed),
            groups_considered: self.groups_considered.load(Relaxed),
            shortened: self.shortened.load(Relaxed),
            buddies_generated: self.buddies_generated.load(Relaxed),
            freed: self.freed.load(Relaxed),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

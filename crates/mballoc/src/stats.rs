//! What the allocator has done, under the kernel's names where it has them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Steps of a search at most; the kernel has five, its criteria.
pub(crate) const CRITERIA: usize = 5;

/// What was done under one criterion of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CriterionStats {
    /// `hits`: requests answered.
    pub hits: u64,
    /// `groups_considered`: groups asked whether they may do.
    pub groups_considered: u64,
    /// `extents_scanned`: free runs measured.
    pub extents_scanned: u64,
    /// `useless_loops`: times no group had anything.
    pub useless_loops: u64,
}

#[derive(Debug, Default)]
pub(crate) struct CriterionCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) groups_considered: AtomicU64,
    pub(crate) extents_scanned: AtomicU64,
    pub(crate) useless_loops: AtomicU64,
}

impl CriterionCounters {
    fn snapshot(&self) -> CriterionStats {
        CriterionStats {
            hits: self.hits.load(Relaxed),
            groups_considered: self.groups_considered.load(Relaxed),
            extents_scanned: self.extents_scanned.load(Relaxed),
            useless_loops: self.useless_loops.load(Relaxed),
        }
    }
}

/// Declares the counters once: as atomics, and as the snapshot with what each means.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of the counters since the allocator was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// By step of the search: whole stripes, runs that are long enough, the longest there
            /// are, what is certain, and new places for streams.
            pub criteria: [CriterionStats; CRITERIA],
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) criteria: [CriterionCounters; CRITERIA],
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats {
                    $($name: self.$name.load(Relaxed),)*
                    criteria: self.criteria.each_ref().map(CriterionCounters::snapshot),
                }
            }
        }
    };
}

counters! {
    /// `reqs`: requests.
    reqs,
    /// `success`: requests answered with a run.
    success,
    /// Blocks handed out.
    allocated,
    /// Requests answered with less than they asked for.
    shortened,
    /// Blocks given back.
    freed,
    /// `goal_hits`: requests answered at their goal.
    goal_hits,
    /// `len_goal_hits`: requests answered with exactly what they asked for.
    len_goal_hits,
    /// Requests answered where their stream goes on.
    stream_goal_hits,
    /// `groups_considered`: groups asked whether they may do, next to the goal's.
    groups_considered,
    /// `groups_scanned`: groups whose free runs were looked at.
    groups_scanned,
    /// `extents_scanned`: free runs measured.
    extents_scanned,
    /// `breaks`: searches that had seen enough, by the bound of their work.
    breaks,
    /// `buddies_generated`: times a bitmap was read and cut into chunks.
    buddies_generated,
    /// `preallocated`: blocks taken beyond the need.
    preallocated,
    /// `discarded`: blocks preallocated and given back.
    discarded,
    /// Blocks reported to the device as unused.
    trimmed,
    /// Locks of groups taken.
    lock_acquired,
    /// Those of them that had to be waited for.
    lock_contended,
    /// Groups left out because another thread held their lock.
    trylock_skipped,
    /// Most groups considered for one request.
    max_groups,
    /// Most free runs measured for one request.
    max_extents,
}

impl Counters {
    pub(crate) fn add(&self, counter: &AtomicU64, by: u64) {
        if by > 0 {
            counter.fetch_add(by, Relaxed);
        }
    }

    /// A request was answered after so much work.
    pub(crate) fn most_work(&self, groups: u64, extents: u64) {
        self.max_groups.fetch_max(groups, Relaxed);
        self.max_extents.fetch_max(extents, Relaxed);
    }
}

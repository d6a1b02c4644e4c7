//! What an index has done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

uext4_support::counters! {
    /// A snapshot of what an index has counted since it was made.
    pub struct Stats {
        /// Most entries examined for one answer.
        pub chain_max: u64,
    }
    pub(super) enum Counter;
    /// Locks of hash chains taken.
    bucket_locks BucketLocks,
    /// Locks of lists of entries taken, or of parts of the product's index.
    list_locks ListLocks,
    /// Locks of single entries taken.
    entry_locks EntryLocks,
    /// Of all these, the ones that had to be waited for.
    lock_contended LockContended,
    /// Of all these, the ones that another thread had held before.
    lock_handoffs LockHandoffs,
    /// Entries of hash chains looked at.
    chain_steps ChainSteps,
    /// Entries that a scan looked at.
    scanned Scanned,
    /// Entries that a scan left because they had been used.
    second_chances SecondChances,
    /// Entries that were looked at under the lock of all entries, for one to use anew.
    alloc_walk AllocWalk,
    /// Entries dropped by the worker (`mb_cache_shrink_worker`).
    shrunk_worker ShrunkWorker,
    /// Entries dropped for one that comes (`mb_cache_shrink`).
    shrunk_sync ShrunkSync,
}

impl Stats {
    /// What the product's index has counted in its cache.
    pub fn of_product(stats: &uext4_mbcache::Stats) -> Self {
        Self {
            chain_max: stats.chain_max,
            list_locks: stats.list_locks,
            lock_contended: stats.lock_contended,
            lock_handoffs: stats.lock_handoffs,
            chain_steps: stats.chain_steps,
            scanned: stats.scanned,
            second_chances: stats.referenced_second_chances,
            shrunk_sync: stats.shrunk_sync,
            ..Self::default()
        }
    }

    /// Locks of any kind taken.
    pub fn locks(&self) -> u64 {
        self.bucket_locks + self.list_locks + self.entry_locks
    }
}

/// All counters of an index.
#[derive(Debug, Default)]
pub(super) struct Counters {
    chain_max: AtomicU64,
    tally: Tally,
}

impl Counters {
    pub(super) fn one(&self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(super) fn add(&self, counter: Counter, by: u64) {
        if by > 0 {
            self.tally.add(counter as usize, by);
        }
    }

    /// An answer took so many entries.
    pub(super) fn chain(&self, steps: u64) {
        self.add(Counter::ChainSteps, steps);
        if steps > self.chain_max.load(Relaxed) {
            self.chain_max.fetch_max(steps, Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> Stats {
        Stats {
            chain_max: self.chain_max.load(Relaxed),
            ..snapshot(&self.tally)
        }
    }
}

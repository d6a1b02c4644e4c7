//! What a cache has done.
//!
//! The kernel has no statistics of its mbcache. Counters that count what one of its functions does
//! name that function. Searches, reuse, refusals and waits are counted whatever the index, as are
//! entries dropped because memory is short; the rest counts the shipped index, and stays 0 with one
//! that is given, which counts for itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

uext4_support::counters! {
    /// A snapshot of the counters since the cache was made.
    pub struct Stats {
        /// Entries now.
        pub entries: u64,
        /// `c_max_entries`: entries from which on some must go; 0: no such number.
        pub max: u64,
        /// Bytes now, about.
        pub memory: u64,
        /// Most entries examined for one answer.
        pub chain_max: u64,
    }
    pub(crate) enum Counter;
    /// `mb_cache_entry_create`: entries that came.
    creates Creates,
    /// `mb_cache_entry_create` with `EBUSY`: there was one already.
    ebusy Ebusy,
    /// Entries not made: no room, or none that may go.
    refused Refused,
    /// `mb_cache_entry_find_first`: searches for a content.
    finds Finds,
    /// Of these, the ones that found a block.
    hits Hits,
    /// Blocks handed out to be read and compared, by `mb_cache_entry_find_first` and `_next`.
    compares Compares,
    /// Entries looked at for an answer.
    chain_steps ChainSteps,
    /// Blocks that got one more user.
    reuse_ok ReuseOk,
    /// Blocks found and compared in vain, because their entry had left the index
    /// ([`crate::Stale`]).
    reuse_retry ReuseRetry,
    /// Blocks that came to have as many users as they may.
    saturated Saturated,
    /// Blocks that were found although they had as many users as they may.
    found_saturated FoundSaturated,
    /// `mb_cache_entry_delete_or_get`: entries that went because their block changes or is freed.
    deletes Deletes,
    /// Of these attempts, the ones that failed because another thread had found the block.
    deletes_lost DeletesLost,
    /// `mb_cache_entry_wait_unused`: waits for threads that had found a block that is to go.
    waits_unused WaitsUnused,
    /// `mb_cache_entry_touch`: marks of use.
    touches Touches,
    /// Entries dropped for one that comes (`mb_cache_shrink`).
    shrunk_sync ShrunkSync,
    /// Entries dropped because memory is short (`mb_cache_scan`).
    shrunk_pressure ShrunkPressure,
    /// Entries that a scan looked at.
    scanned Scanned,
    /// Entries that a scan left because they had been used.
    referenced_second_chances SecondChances,
    /// Blocks read that were not let in because they had not been seen before.
    ghost_refused GhostRefused,
    /// Hashes of contents computed.
    content_hashes ContentHashes,
    /// Locks of parts of the index taken.
    list_locks ListLocks,
    /// Of these, the ones that had to be waited for.
    lock_contended LockContended,
    /// Of these, the ones that another thread had held before.
    lock_handoffs LockHandoffs,
    /// Compare-and-swaps that another thread was faster at.
    swaps_lost SwapsLost,
    /// Times a thread went to sleep.
    sleeps Sleeps,
    /// Threads woken.
    wakeups Wakeups,
    /// Of these, the ones that had to sleep on.
    wakeups_wasted WakeupsWasted,
}

/// All counters of a cache.
#[derive(Debug)]
pub(crate) struct Counters {
    chain_max: AtomicU64,
    tally: Tally,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            chain_max: AtomicU64::new(0),
            tally: Tally::default(),
        }
    }

    pub(crate) fn one(&self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(crate) fn add(&self, counter: Counter, by: u64) {
        if by > 0 {
            self.tally.add(counter as usize, by);
        }
    }

    /// An answer took so many entries.
    pub(crate) fn chain(&self, steps: u64) {
        self.add(Counter::ChainSteps, steps);
        if steps > self.chain_max.load(Relaxed) {
            self.chain_max.fetch_max(steps, Relaxed);
        }
    }

    /// All but the first three numbers.
    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            chain_max: self.chain_max.load(Relaxed),
            ..snapshot(&self.tally)
        }
    }
}

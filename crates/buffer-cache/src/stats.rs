//! Counters of a cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a cache did since it was made. The numbers are read one after the other while threads
/// work on, so sums may be off by what happens meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of `bread` and `getblk_zeroed`.
    pub lookups: u64,
    /// Lookups answered by a thread's own LRU.
    pub lru_hits: u64,
    /// Lookups answered by the table.
    pub hits: u64,
    /// Lookups that found nothing.
    pub misses: u64,
    /// Blocks read from the device, readahead included.
    pub reads: u64,
    /// Blocks read ahead.
    pub readahead: u64,
    /// Blocks written to the device.
    pub writes: u64,
    /// Clean blocks dropped for memory.
    pub evictions: u64,
    /// Blocks that were looked at for that.
    pub clock_steps: u64,
    /// Times a block was verified.
    pub verifications: u64,
    /// Blocks held now.
    pub nr_buffers: u64,
    /// Blocks held now that differ from the device.
    pub nr_dirty: u64,
    /// Times a lookup in the table had to wait for another thread's.
    pub lock_contended: u64,
}

/// The counters of one shard: apart, so that threads seldom meet on one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) readahead: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) clock_steps: AtomicU64,
    pub(crate) verifications: AtomicU64,
    pub(crate) lock_contended: AtomicU64,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Stats {
    pub(crate) fn add(&mut self, counters: &Counters) {
        let (hits, misses) = (counters.hits.load(Relaxed), counters.misses.load(Relaxed));
        self.lookups += hits + misses;
        self.hits += hits;
        self.misses += misses;
        self.reads += counters.reads.load(Relaxed);
        self.readahead += counters.readahead.load(Relaxed);
        self.writes += counters.writes.load(Relaxed);
        self.evictions += counters.evictions.load(Relaxed);
        self.clock_steps += counters.clock_steps.load(Relaxed);
        self.verifications += counters.verifications.load(Relaxed);
        self.lock_contended += counters.lock_contended.load(Relaxed);
    }
}

//! Counters of a cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::bh_lru::BH_LRU_SIZE_MAX;

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
    /// Times a look-up in the table had to wait for another thread's.
    pub lock_contended: u64,
    /// What the small caches in front did; see [`BufferCache::count_bh_lru`](crate::BufferCache::count_bh_lru).
    pub bh_lru: BhLruStats,
}

/// What the small caches in front of the table did while it was counted. The kernel has no such
/// statistics; units are those of the cost model in `docs/lab.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BhLruStats {
    /// Hits, by the place where the block was found: its slot in an array, its way in a set.
    pub hit_pos: [u64; BH_LRU_SIZE_MAX],
    /// Look-ups that went on to the table.
    pub misses: u64,
    /// Of these, because another thread of the same core was at it.
    pub contended: u64,
    /// Keys compared; a word of tags counts as one.
    pub compares: u64,
    /// Entries written.
    pub slot_writes: u64,
    /// Bytes copied or cleared by installs that copy the array.
    pub bytes_copied: u64,
    /// Reference counts changed.
    pub atomics: u64,
    /// Blocks offered after a miss.
    pub installs: u64,
    /// Blocks that gave way to another.
    pub evictions: u64,
    /// Blocks expected to be used once that came again.
    pub ghost_hits: u64,
    /// Fronts that were told to let go of what they held.
    pub invalidations: u64,
    /// References held now.
    pub parked: u64,
}

impl Default for BhLruStats {
    fn default() -> Self {
        Self {
            hit_pos: [0; BH_LRU_SIZE_MAX],
            misses: 0,
            contended: 0,
            compares: 0,
            slot_writes: 0,
            bytes_copied: 0,
            atomics: 0,
            installs: 0,
            evictions: 0,
            ghost_hits: 0,
            invalidations: 0,
            parked: 0,
        }
    }
}

impl BhLruStats {
    /// Look-ups that found the block.
    pub fn hits(&self) -> u64 {
        self.hit_pos.iter().sum()
    }
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

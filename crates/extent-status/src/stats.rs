//! What the cache has done, under the kernel's names where it has them.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use uext4_support::PerThread;
use uext4_tunables::Tunable;

use crate::scan::Scan;

/// `es_stats=`: how lookups and scans are counted. What `count` needs is always counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StatsMode {
    /// Nothing is.
    Off,
    /// Every scan, and one lookup in 64 of a thread's, for 64.
    #[default]
    Sampled,
    /// Every scan and every lookup.
    On,
}

impl StatsMode {
    /// Every mode there is, as [`TUNABLES`] names them.
    const ALL: [Self; 3] = [Self::Off, Self::Sampled, Self::On];
}

/// The names of [`StatsMode::ALL`].
const MODES: &[&str] = &["off", "sampled", "on"];

/// What users set by name.
pub const TUNABLES: &[Tunable<StatsMode>] = &[Tunable::word(
    "es_stats",
    MODES,
    "Statistics of the extent status cache: lookups, hits, reclaim",
    |mode| MODES.get(*mode as usize).copied(),
    // The index is one of the words'.
    |mode, index| *mode = StatsMode::ALL.get(index).copied().unwrap_or_default(),
)];

/// A snapshot of the counters since the cache was made.
///
/// What is marked "switched" stands still while statistics are off. Lookups are estimated from
/// one in 64 while they are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `es_stats_cache_hits`: lookups that were answered (switched).
    pub es_stats_cache_hits: u64,
    /// `es_stats_cache_misses`: lookups of blocks not known (switched).
    pub es_stats_cache_misses: u64,
    /// `es_stats_all_cnt`: extents now.
    pub es_stats_all_cnt: u64,
    /// `es_stats_shk_cnt`: of these, extents that may be dropped.
    pub es_stats_shk_cnt: u64,
    /// `s_es_nr_inode`: trees that hold such extents.
    pub s_es_nr_inode: u64,
    /// `es_stats_scan_time`: nanoseconds a scan, its waits for the list included; a moving
    /// average, three parts old and one part new (switched).
    pub es_stats_scan_time: u64,
    /// `es_stats_max_scan_time`: the longest scan, in nanoseconds (switched).
    pub es_stats_max_scan_time: u64,
    /// `es_stats_shrunk`: extents a scan dropped, averaged alike (switched).
    pub es_stats_shrunk: u64,
    /// Scans (switched, as all that follow where nothing else is said).
    pub scans: u64,
    /// Extents dropped by scans.
    pub freed: u64,
    /// Trees passed over because they were in use.
    pub trylock_failed: u64,
    /// Rounds after the first that scans went because it got them nothing.
    pub second_rounds: u64,
    /// All steps of scans ([`Scan::steps`]).
    pub steps: u64,
    /// The most steps any scan made under one lock.
    pub max_steps_under_lock: u64,
    /// Leaves dropped.
    pub leaves_evicted: u64,
    /// Leaves that came back soon after they were dropped (always counted).
    pub ghost_hits: u64,
    /// Lookups that took a lock and were answered.
    pub lookup_hit_locks: u64,
}

/// One lookup in so many is counted while statistics are sampled; a power of two.
const SAMPLE: u32 = 64;

thread_local! {
    /// Lookups of this thread, whatever the cache.
    static LOOKUPS: Cell<u32> = const { Cell::new(0) };
}

/// Says of one lookup in [`SAMPLE`] of this thread's that it is the one to count.
fn is_sampled() -> bool {
    let count = LOOKUPS.get();
    LOOKUPS.set(count.wrapping_add(1));
    count % SAMPLE == SAMPLE - 1
}

/// What the threads of one slot counted. What one thread adds another may take away, so a slot's
/// difference may be negative; the sum over all slots is not.
#[derive(Debug, Default)]
struct Shard {
    hits: AtomicU64,
    misses: AtomicU64,
    hit_locks: AtomicU64,
    extents: AtomicI64,
    reclaimable: AtomicI64,
    trees: AtomicI64,
    /// Trees that hold something reclaimable.
    linked: AtomicI64,
    /// Bytes of extents.
    bytes: AtomicI64,
}

/// What a cache counts, and its clock. Its [`Shrinker`](crate::Shrinker) keeps the counts of
/// extents, trees and bytes after each change; threads add to lines of their own.
pub struct Counters {
    monotonic: Box<dyn Fn() -> Duration + Send + Sync>,
    mode: AtomicU8,
    shards: PerThread<Shard>,
    pub(crate) ghost_hits: AtomicU64,
    /// What scans did: of the snapshot, the fields about them. One update a scan.
    scans: Mutex<Stats>,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counters").field(&self.snapshot()).finish()
    }
}

impl Counters {
    /// Counters at 0. `monotonic` gives the time that scans are measured by, from any origin.
    pub fn new(mode: StatsMode, monotonic: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            monotonic: Box::new(monotonic),
            mode: AtomicU8::new(mode as u8),
            shards: PerThread::default(),
            ghost_hits: AtomicU64::new(0),
            scans: Mutex::default(),
        }
    }

    pub(crate) fn switch(&self, mode: StatsMode) {
        self.mode.store(mode as u8, Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.mode.load(Relaxed) != StatsMode::Off as u8
    }

    /// The time of the cache's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        u64::try_from((self.monotonic)().as_nanos()).unwrap_or(u64::MAX)
    }

    fn shard(&self) -> &Shard {
        self.shards.get()
    }

    /// Notes a lookup: whether it was answered, and whether it took a lock.
    pub(crate) fn looked_up(&self, hit: bool, locked: bool) {
        const ON: u8 = StatsMode::On as u8;
        const SAMPLED: u8 = StatsMode::Sampled as u8;
        let weight = match self.mode.load(Relaxed) {
            ON => 1,
            SAMPLED if is_sampled() => u64::from(SAMPLE),
            _ => return,
        };
        let shard = self.shard();
        let counter = if hit { &shard.hits } else { &shard.misses };
        counter.fetch_add(weight, Relaxed);
        if hit && locked {
            shard.hit_locks.fetch_add(weight, Relaxed);
        }
    }

    /// Counts extents, and reclaimable ones among them, that came (positive) or went.
    pub fn extents(&self, all: i64, reclaimable: i64) {
        let shard = self.shard();
        if all != 0 {
            shard.extents.fetch_add(all, Relaxed);
        }
        if reclaimable != 0 {
            shard.reclaimable.fetch_add(reclaimable, Relaxed);
        }
    }

    /// Trees that came (positive) or went.
    pub(crate) fn trees(&self, by: i64) {
        self.shard().trees.fetch_add(by, Relaxed);
    }

    /// Counts trees that came to hold something reclaimable (positive) or no longer do.
    pub fn linked(&self, by: i64) {
        self.shard().linked.fetch_add(by, Relaxed);
    }

    /// Counts bytes that extents take which came (positive) or went.
    pub fn bytes(&self, by: i64) {
        self.shard().bytes.fetch_add(by, Relaxed);
    }

    pub(crate) fn scanned(&self, scan: &Scan, nanoseconds: u64) {
        let stats = &mut *self.scans.lock();
        let freed = scan.freed as u64;
        let average = |old: u64, new: u64| match stats.scans {
            0 => new,
            _ => old.saturating_mul(3).saturating_add(new) / 4,
        };
        stats.es_stats_scan_time = average(stats.es_stats_scan_time, nanoseconds);
        stats.es_stats_shrunk = average(stats.es_stats_shrunk, freed);
        stats.es_stats_max_scan_time = stats.es_stats_max_scan_time.max(nanoseconds);
        stats.scans += 1;
        stats.freed += freed;
        stats.trylock_failed += scan.trylock_failed;
        stats.second_rounds += scan.second_rounds;
        stats.steps += scan.steps();
        stats.max_steps_under_lock = stats.max_steps_under_lock.max(scan.max_steps_under_lock);
        stats.leaves_evicted += scan.leaves_evicted;
    }

    fn sum(&self, of: impl Fn(&Shard) -> i64) -> u64 {
        // Shards are read one after the other: what moves meanwhile may make the sum negative.
        let sum: i64 = self.shards.iter().map(of).sum();
        u64::try_from(sum).unwrap_or(0)
    }

    /// Extents that could be dropped now.
    pub fn reclaimable(&self) -> u64 {
        self.sum(|shard| shard.reclaimable.load(Relaxed))
    }

    pub(crate) fn all(&self) -> u64 {
        self.sum(|shard| shard.extents.load(Relaxed))
    }

    pub(crate) fn all_trees(&self) -> u64 {
        self.sum(|shard| shard.trees.load(Relaxed))
    }

    pub(crate) fn all_bytes(&self) -> u64 {
        self.sum(|shard| shard.bytes.load(Relaxed))
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let count = |of: fn(&Shard) -> &AtomicU64| -> u64 {
            self.shards.iter().map(|s| of(s).load(Relaxed)).sum()
        };
        Stats {
            es_stats_cache_hits: count(|shard| &shard.hits),
            es_stats_cache_misses: count(|shard| &shard.misses),
            lookup_hit_locks: count(|shard| &shard.hit_locks),
            ghost_hits: self.ghost_hits.load(Relaxed),
            es_stats_all_cnt: self.all(),
            es_stats_shk_cnt: self.reclaimable(),
            s_es_nr_inode: self.sum(|shard| shard.linked.load(Relaxed)),
            ..*self.scans.lock()
        }
    }
}

#[cfg(test)]
mod tests {
    use uext4_tunables::{describe, set};

    use super::*;

    #[test]
    fn modes_are_shown_as_they_are_set() {
        for (mode, word) in StatsMode::ALL.into_iter().zip(MODES) {
            let mut set_mode = StatsMode::default();
            assert_eq!(
                set(TUNABLES, &mut set_mode, &format!("es_stats={word}")),
                Ok(true)
            );
            assert_eq!(set_mode, mode);
            assert_eq!(describe(TUNABLES, &mode)[0].default.as_deref(), Some(*word));
        }
        let error = set(TUNABLES, &mut StatsMode::Off, "es_stats=1").unwrap_err();
        assert_eq!(error.to_string(), "es_stats=1: must be off, sampled or on");
    }
}

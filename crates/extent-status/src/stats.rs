//! What the room has done, under the kernel's names where it has them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::mainline::Scan;

/// A snapshot of the counters since the room was made.
///
/// What is marked "switched" stands still while statistics are off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `es_stats_cache_hits`: look-ups that were answered (switched).
    pub es_stats_cache_hits: u64,
    /// `es_stats_cache_misses`: look-ups of blocks not known (switched).
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
    /// Scans (switched, as all that follow).
    pub scans: u64,
    /// Extents dropped by scans.
    pub freed: u64,
    /// Extents that scans looked at.
    pub visited: u64,
    /// Delayed extents among them.
    pub delayed_seen: u64,
    /// Trees passed over because somebody was using them.
    pub trylock_failed: u64,
    /// Scans that went round again because all they got was trees in use.
    pub second_rounds: u64,
}

/// Shards; a power of two.
const SHARDS: usize = 16;

/// The next thread's shard, before wrapping.
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shard of this thread; `usize::MAX` until it has one.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn shard_of_thread() -> usize {
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT_SHARD.fetch_add(1, Relaxed) % SHARDS);
        }
        shard.get()
    })
}

/// What the threads of one shard counted, on cache lines of its own. What one thread adds another
/// may take away, so a shard's difference may be negative; the sum over all shards is not.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    hits: AtomicU64,
    misses: AtomicU64,
    extents: AtomicI64,
    reclaimable: AtomicI64,
    trees: AtomicI64,
}

/// All counters of a room.
#[derive(Debug)]
pub(crate) struct Counters {
    on: AtomicBool,
    shards: [Shard; SHARDS],
    /// What scans did: of the snapshot, the fields about them. One update a scan.
    scans: Mutex<Stats>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicBool::new(true),
            shards: Default::default(),
            scans: Mutex::default(),
        }
    }

    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    fn shard(&self) -> &Shard {
        &self.shards[shard_of_thread()]
    }

    pub(crate) fn looked_up(&self, hit: bool) {
        if self.is_on() {
            let shard = self.shard();
            let counter = if hit { &shard.hits } else { &shard.misses };
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Extents, and reclaimable ones among them, that came (positive) or went.
    pub(crate) fn extents(&self, all: i64, reclaimable: i64) {
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
        stats.visited += scan.visited as u64;
        stats.delayed_seen += scan.delayed_seen as u64;
        stats.trylock_failed += scan.trylock_failed;
        stats.second_rounds += u64::from(scan.second_round);
    }

    fn sum(&self, of: impl Fn(&Shard) -> i64) -> u64 {
        // Shards are read one after the other: what moves meanwhile may make the sum negative.
        let sum: i64 = self.shards.iter().map(of).sum();
        u64::try_from(sum).unwrap_or(0)
    }

    pub(crate) fn reclaimable(&self) -> u64 {
        self.sum(|shard| shard.reclaimable.load(Relaxed))
    }

    pub(crate) fn all(&self) -> u64 {
        self.sum(|shard| shard.extents.load(Relaxed))
    }

    pub(crate) fn all_trees(&self) -> u64 {
        self.sum(|shard| shard.trees.load(Relaxed))
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let count = |of: fn(&Shard) -> &AtomicU64| -> u64 {
            self.shards.iter().map(|s| of(s).load(Relaxed)).sum()
        };
        Stats {
            es_stats_cache_hits: count(|shard| &shard.hits),
            es_stats_cache_misses: count(|shard| &shard.misses),
            es_stats_all_cnt: self.all(),
            es_stats_shk_cnt: self.reclaimable(),
            ..*self.scans.lock()
        }
    }
}

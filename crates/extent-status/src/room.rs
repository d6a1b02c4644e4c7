//! All trees of one file system: how many extents they hold, and how callers have some dropped.

use std::sync::Arc;
use std::time::Duration;

use crate::leaf_queue::{LeafQueue, TREE_MEMORY};
use crate::scan::Scan;
use crate::shrinker::{EsTree, Shrinker};
use crate::stats::{Counters, Stats, StatsMode};
use crate::trace;

/// The batch in which callers ask [`ExtentStatusCache::scan`]: the kernel's, in extents.
pub const BATCH: usize = 128;

/// What a [`ExtentStatusCache`] is made with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `es_stats=`: how lookups and scans are counted.
    pub stats: StatsMode,
    /// The design, which serves this cache alone. `None`: [`LeafQueue`] as it is by default.
    pub shrinker: Option<Arc<dyn Shrinker>>,
}

/// The trees of one file system.
///
/// Every method may be called by any thread, holding any lock of its own; none waits for a tree.
#[derive(Debug)]
pub struct ExtentStatusCache {
    counters: Counters,
    shrinker: Arc<dyn Shrinker>,
}

impl ExtentStatusCache {
    /// A cache without trees. `monotonic` gives the time that scans are measured by, from any
    /// origin.
    pub fn new(monotonic: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<Self> {
        Self::with_options(Options::default(), monotonic)
    }

    /// A cache without trees with a design and a mode of counting.
    pub fn with_options(
        options: Options,
        monotonic: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        let shipped = || Arc::<LeafQueue>::default() as Arc<dyn Shrinker>;
        Arc::new(Self {
            counters: Counters::new(options.stats, monotonic),
            shrinker: options.shrinker.unwrap_or_else(shipped),
        })
    }

    /// Extents that could be dropped now: all but the delayed ones.
    pub fn count(&self) -> usize {
        let count = usize::try_from(self.counters.reclaimable()).unwrap_or(usize::MAX);
        trace::shrink_count(count);
        count
    }

    /// Drops about `nr` extents and returns how many. As whole leaves go, it may be up to
    /// [`LEAF_EXTENTS`](crate::LEAF_EXTENTS) - 1 more than `nr`.
    ///
    /// 0 does not mean that nothing is left: it may have met only extents in recent use (dropped
    /// at a later visit) or trees in use. [`count`](Self::count) says what is left. Ask in
    /// batches of [`BATCH`].
    pub fn scan(&self, nr: usize) -> usize {
        self.scan_recorded(nr).freed
    }

    /// As [`scan`](Self::scan); returns what it did, step by step.
    pub fn scan_recorded(&self, nr: usize) -> Scan {
        if !self.counters.is_on() {
            return self.shrinker.scan(&self.counters, nr);
        }
        trace::shrink_scan_enter(nr);
        let start = self.counters.now();
        let scan = self.shrinker.scan(&self.counters, nr);
        let nanoseconds = self.counters.now().saturating_sub(start);
        self.counters.scanned(&scan, nanoseconds);
        trace::shrink(&scan, nanoseconds);
        scan
    }

    /// The counters now. Those of other threads' work under way may lag.
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// Switches statistics; what `count` needs is always counted.
    pub fn set_stats(&self, mode: StatsMode) {
        self.counters.switch(mode);
    }

    /// About how many bytes all trees take, delayed extents and what is remembered of dropped ones
    /// included. Overstated rather than not.
    pub fn memory(&self) -> usize {
        let extents = self.counters.all_bytes() + self.shrinker.memory();
        let trees = self.counters.all_trees().saturating_mul(TREE_MEMORY);
        usize::try_from(extents.saturating_add(trees)).unwrap_or(usize::MAX)
    }

    /// What dropping one extent gives back, about, in bytes: its share of what all take.
    pub fn extent_bytes(&self) -> u64 {
        let all = self.counters.all().max(1);
        (self.counters.all_bytes() / all).clamp(16, 512)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A tree of the cache's design.
    pub(crate) fn tree(&self) -> Arc<dyn EsTree> {
        self.shrinker.tree()
    }
}

//! All trees of one file system: how many extents they hold, and the shrinker's way in. Leaves out
//! what is in a tree, and the choice of what to drop.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::list::List;
use crate::options::{Options, Shrinker, StatsMode};
use crate::queues::Queues;
use crate::scan::Scan;
use crate::stats::{Counters, Stats};
use crate::tree::Tree;
use crate::{clock, leaf_queue, lru, mainline, round_robin, trace, vanilla};

/// The batch in which callers ask [`Room::scan`]: the kernel's, in extents.
pub const BATCH: usize = 128;

/// The trees of one file system.
///
/// Every method may be called by any thread, holding any lock of its own; none waits for a tree.
pub struct Room {
    counters: Counters,
    options: Options,
    pub(crate) order: Order,
    monotonic: Box<dyn Fn() -> Duration + Send + Sync>,
}

/// What there is to drop, in the order of the shrinker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Trees on a list.
    Trees(Arc<List>),
    /// Leaves of trees in queues.
    Leaves(Arc<Queues>),
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("options", &self.options)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Room {
    /// A room without trees. `monotonic` tells the time scans are measured by, from any origin.
    pub fn new(monotonic: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<Self> {
        Self::with_options(Options::default(), monotonic)
    }

    /// A room without trees whose shrinker and switches are chosen.
    pub fn with_options(
        options: Options,
        monotonic: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        let order = if options.shrinker.drops_leaves() {
            let queues = Queues::new(options.shrinker, options.shard_count());
            Order::Leaves(Arc::new(queues))
        } else {
            Order::Trees(Arc::new(List::new(options.shrinker)))
        };
        Arc::new(Self {
            counters: Counters::new(options.stats),
            options,
            order,
            monotonic: Box::new(monotonic),
        })
    }

    /// What the room was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Extents that could be dropped now: all but the delayed ones.
    pub fn count(&self) -> usize {
        let count = usize::try_from(self.counters.reclaimable()).unwrap_or(usize::MAX);
        trace::shrink_count(count);
        count
    }

    /// Drops about `nr` extents, or, where the budget counts those, looks at `nr` and drops what it
    /// may; answers how many it dropped. Shrinkers that drop whole leaves may drop up to
    /// [`LEAF_EXTENTS`](crate::LEAF_EXTENTS) - 1 more than `nr`.
    ///
    /// 0 does not mean that nothing is left: it may have met only delayed extents, extents in
    /// recent use (dropped at a later visit), or trees in use. [`count`](Self::count) says what is
    /// left. Ask in batches of [`BATCH`].
    pub fn scan(&self, nr: usize) -> usize {
        self.scan_recorded(nr).freed
    }

    /// As [`scan`](Self::scan); answers what it did, step by step.
    pub fn scan_recorded(&self, nr: usize) -> Scan {
        if !self.counters.is_on() {
            return self.shrink(nr);
        }
        trace::shrink_scan_enter(nr);
        let start = self.now();
        let scan = self.shrink(nr);
        let nanoseconds = self.now().saturating_sub(start);
        self.counters.scanned(&scan, nanoseconds);
        trace::shrink(&scan, nanoseconds);
        scan
    }

    fn shrink(&self, nr: usize) -> Scan {
        match &self.order {
            Order::Trees(list) => match self.options.shrinker {
                Shrinker::Vanilla => vanilla::scan(self, list, nr),
                Shrinker::Lru => lru::scan(self, list, nr),
                Shrinker::RoundRobin => round_robin::scan(self, list, nr),
                _ => mainline::scan(self, list, nr),
            },
            Order::Leaves(queues) => match self.options.shrinker {
                Shrinker::Clock => clock::scan(self, queues, nr),
                _ => leaf_queue::scan(self, queues, nr),
            },
        }
    }

    /// The counters now. Those of other threads' work under way may lag.
    pub fn stats(&self) -> Stats {
        let trees = match &self.order {
            Order::Trees(list) => list.len() as u64,
            Order::Leaves(_) => self.counters.all_linked(),
        };
        Stats {
            s_es_nr_inode: trees,
            ..self.counters.snapshot()
        }
    }

    /// Switches statistics; what `count` needs is always counted.
    pub fn set_stats(&self, mode: StatsMode) {
        self.counters.switch(mode);
    }

    /// About how many bytes all trees take, delayed extents and what is kept of dropped leaves
    /// included. Overstated rather than not.
    pub fn memory(&self) -> usize {
        let extents = match &self.order {
            Order::Trees(_) => self.counters.all().saturating_mul(self.extent_bytes()),
            Order::Leaves(queues) => {
                let beside = queues.memory() + self.ghost_memory() as u64;
                self.counters.all_bytes().saturating_add(beside)
            }
        };
        let trees = self.counters.all_trees().saturating_mul(Tree::MEMORY);
        usize::try_from(extents.saturating_add(trees)).unwrap_or(usize::MAX)
    }

    /// What of [`memory`](Self::memory) is kept of leaves that were dropped, in bytes: no scan gives it
    /// back, and it stays when all trees have gone. At most 128 KiB a shard.
    pub fn ghost_memory(&self) -> usize {
        match &self.order {
            Order::Trees(_) => 0,
            Order::Leaves(queues) => queues.ghost_bytes() as usize,
        }
    }

    /// What dropping one extent gives back, about, in bytes: a node of a B-tree filled in ascending
    /// order, with its place in a queue where there is one; or its share of the leaves there are.
    pub fn extent_bytes(&self) -> u64 {
        match self.options.shrinker {
            Shrinker::Vanilla | Shrinker::Mainline => 40,
            Shrinker::Lru | Shrinker::RoundRobin => 64,
            Shrinker::LeafQueue | Shrinker::Clock => {
                let all = self.counters.all().max(1);
                (self.counters.all_bytes() / all).clamp(16, 512)
            }
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The time in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from((self.monotonic)().as_nanos()).unwrap_or(u64::MAX)
    }
}

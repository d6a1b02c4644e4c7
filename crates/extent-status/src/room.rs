//! All trees of one file system: how many extents they hold, which of them hold something to drop,
//! and the shrinker's way in. Leaves out what is in a tree, and the choice of what to drop.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::mainline;
use crate::stats::{Counters, Stats};
use crate::tree::{Shared, Tree};

/// The batch in which callers ask [`Room::scan`]: the kernel's, in extents. A tree is locked for at
/// most one batch.
pub const BATCH: usize = 128;

/// What one extent takes in a B-tree filled in ascending order, in bytes.
pub const EXTENT_BYTES: u64 = 40;

/// Trees that hold something to drop, in the order in which they began to.
#[derive(Debug, Default)]
struct List {
    /// By ticket. A tree takes itself off before it goes away.
    trees: BTreeMap<u64, Weak<Shared>>,
    /// The last ticket drawn; they are never used again.
    last: u64,
    /// The ticket that was visited last.
    cursor: u64,
}

/// The trees of one file system.
///
/// Every method may be called by any thread, holding any lock of its own; none waits for a tree.
pub struct Room {
    counters: Counters,
    list: Mutex<List>,
    monotonic: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Room {
    /// A room without trees. `monotonic` tells the time scans are measured by, from any origin.
    pub fn new(monotonic: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            counters: Counters::new(),
            list: Mutex::default(),
            monotonic: Box::new(monotonic),
        })
    }

    /// Extents that could be dropped now: all but the delayed ones.
    pub fn count(&self) -> usize {
        usize::try_from(self.counters.reclaimable()).unwrap_or(usize::MAX)
    }

    /// Looks at up to `nr` extents and drops what it may; answers how many it dropped.
    ///
    /// 0 does not mean that nothing is left: it may have met only delayed extents, extents in
    /// recent use (dropped at the next visit), or trees in use. [`count`](Self::count) says what is
    /// left. Ask in batches of [`BATCH`].
    pub fn scan(&self, nr: usize) -> usize {
        if !self.counters.is_on() {
            return mainline::scan(self, nr).freed;
        }
        let start = (self.monotonic)();
        let scan = mainline::scan(self, nr);
        let elapsed = (self.monotonic)().saturating_sub(start);
        let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.counters.scanned(&scan, nanoseconds);
        scan.freed
    }

    /// The counters now. Those of other threads' work under way may lag.
    pub fn stats(&self) -> Stats {
        Stats {
            s_es_nr_inode: self.listed() as u64,
            ..self.counters.snapshot()
        }
    }

    /// Switches statistics on or off; they are on at first. What `count` needs is always counted.
    pub fn set_stats(&self, on: bool) {
        self.counters.switch(on);
    }

    /// About how many bytes all trees take, delayed extents included. Overstated rather than not.
    pub fn memory(&self) -> usize {
        let extents = self.counters.all().saturating_mul(EXTENT_BYTES);
        let trees = self.counters.all_trees().saturating_mul(Tree::MEMORY);
        usize::try_from(extents.saturating_add(trees)).unwrap_or(usize::MAX)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Puts a tree at the end of the list. Answers its ticket.
    pub(crate) fn link(&self, tree: Weak<Shared>) -> u64 {
        let mut list = self.list.lock();
        list.last += 1;
        let ticket = list.last;
        list.trees.insert(ticket, tree);
        ticket
    }

    /// Takes a tree off the list.
    pub(crate) fn unlink(&self, ticket: u64) {
        self.list.lock().trees.remove(&ticket);
    }

    /// Trees on the list.
    pub(crate) fn listed(&self) -> usize {
        self.list.lock().trees.len()
    }

    /// The tree after the one that was visited last, the first again after the last. `None` if
    /// there is none, or if it is going away.
    pub(crate) fn next_tree(&self) -> Option<Arc<Shared>> {
        let mut list = self.list.lock();
        let after = (Excluded(list.cursor), Unbounded);
        let next = list.trees.range(after).next();
        let (ticket, tree) = next.or_else(|| list.trees.iter().next())?;
        let (ticket, tree) = (*ticket, tree.upgrade());
        list.cursor = ticket;
        tree
    }
}

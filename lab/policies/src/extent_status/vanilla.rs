//! The shrinker of Linux 3.11 to 3.18: trees by last use, all under the list's lock.
//!
//! Source: the state that "ext4: extents status tree shrinker improvement" (Zheng Liu, linux-ext4,
//! April 2014) sets out from, as its descriptions have it.
//!
//! - Every lookup notes the time in its tree and puts the tree on the list, if it is not there.
//! - A scan goes over the list from its head and skips trees used since the list was last sorted,
//!   as well as those loaded in advance by request. If that frees nothing, the list is sorted by
//!   last use, the precached ones last, and gone over again.
//! - The budget counts what is *freed*. A tree is walked from its first extent, every time, over
//!   all delayed extents that lie before what may go.
//! - The list is locked from the first step to the last, the sort included. Known weaknesses, all
//!   of them stored.
//!
//! Differences: the scan only *tries* the lock of a tree, as since spring 2014, so no tree has to
//! be named that the caller holds. The time is that of the subsystem's clock, not of jiffies.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::list::{List, Trees};
use super::listed_tree::ListedTree;
use super::map::Map;
use super::pass::Pass;
use uext4_extent_status::{Counters, Scan};

/// Drops up to `nr` extents.
pub(crate) fn scan(counters: &Counters, list: &List, nr: usize) -> Scan {
    by_last_use(counters, list, nr, Map::reclaim_from_first)
}

/// Drops up to `nr` extents of the trees that were not used for longest, as `pass` finds them.
pub(crate) fn by_last_use(
    counters: &Counters,
    list: &List,
    nr: usize,
    pass: fn(&mut Map, usize) -> Pass,
) -> Scan {
    let mut turn = Turn {
        counters,
        nr,
        pass,
        precached_too: false,
        skipped: Vec::new(),
        scan: Scan::default(),
    };
    let now = counters.now();
    let trees = &mut *list.lock();
    turn.scan.list_locks = 1;
    turn.over(trees);
    if turn.scan.freed == 0 && nr > 0 && !turn.skipped.is_empty() {
        turn.scan.second_rounds = 1;
        turn.precached_too = turn.sort(trees);
        trees.last_sorted = now;
        turn.over(trees);
    }
    let mut scan = turn.scan;
    scan.held(scan.steps());
    scan
}

/// One scan under way.
struct Turn<'a> {
    counters: &'a Counters,
    nr: usize,
    pass: fn(&mut Map, usize) -> Pass,
    precached_too: bool,
    /// Slots passed over in this round.
    skipped: Vec<u32>,
    scan: Scan,
}

impl Turn<'_> {
    /// Once over the list; what was skipped is at its end afterwards.
    fn over(&mut self, trees: &mut Trees) {
        self.skipped.clear();
        // No thread is called out to while the list is locked.
        let all = usize::try_from(self.counters.reclaimable()).unwrap_or(usize::MAX);
        let mut slot = trees.ring.first();
        for _ in 0..trees.ring.len() {
            if self.scan.freed >= self.nr.min(all) {
                break;
            }
            let here = slot;
            slot = trees.ring.next(slot);
            // None: it is going away, and waits for the list to take itself off.
            if let Some(tree) = trees.ring.get(here).and_then(std::sync::Weak::upgrade) {
                self.visit(trees, here, &tree);
            }
        }
        for slot in &self.skipped {
            trees.ring.move_to_back(*slot);
        }
    }

    fn visit(&mut self, trees: &mut Trees, slot: u32, tree: &Arc<ListedTree>) {
        self.scan.trees += 1;
        let spared = !self.precached_too && tree.is_precached();
        if tree.touched.load(Relaxed) > trees.last_sorted || spared {
            self.skipped.push(slot);
            return;
        }
        let left = self.nr - self.scan.freed;
        let work = |map: &mut Map, _: &mut u32| (self.pass)(map, left);
        match tree.try_reclaim(self.counters, work, |tree| {
            trees.unlink(self.counters, tree)
        }) {
            Some(pass) => _ = pass.note(&mut self.scan),
            None => self.scan.trylock_failed += 1,
        }
    }

    /// Sorts the list: those loaded by request last, then by last use. Answers whether only such
    /// are there.
    fn sort(&mut self, trees: &mut Trees) -> bool {
        let slots = std::iter::successors(Some(trees.ring.first()), |s| Some(trees.ring.next(*s)));
        let mut order: Vec<(bool, u64, u32)> = slots
            .take(trees.ring.len())
            .map(|slot| {
                let tree = trees.ring.get(slot).and_then(std::sync::Weak::upgrade);
                let key = |tree: Arc<ListedTree>| (tree.is_precached(), tree.touched.load(Relaxed));
                let (precached, touched) = tree.map_or((false, 0), key);
                (precached, touched, slot)
            })
            .collect();
        let compares = Cell::new(0);
        order.sort_by(|a, b| {
            compares.set(compares.get() + 1);
            (a.0, a.1).cmp(&(b.0, b.1))
        });
        self.scan.compares += compares.get();
        for (_, _, slot) in &order {
            trees.ring.move_to_back(*slot);
        }
        order.first().is_some_and(|(precached, _, _)| *precached)
    }
}

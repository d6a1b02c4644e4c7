//! A tree whose lookups take no lock: its cache and its delayed extents apart, both in leaves.
//!
//! Writers and the shrinker hold one lock. They raise the tree's version to an odd number before
//! they change anything and to an even one afterwards; a lookup that sees the same even number
//! before and after has seen no half of a change, and else tries again, at last under the lock.
//! The indices are published as one pointer, so that what a reader looks at is not freed.

use std::ops::Range;
use std::sync::atomic::AtomicBool as Flag;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::leaf::{Packed, Queue};
use super::{index, leaf, owner, queues, side};
use crate::extent::{Extent, FILL_MAX, Status, StatusSet};
use crate::shrinker::{EsTree, Lookup};
use crate::stats::Counters;
use crate::sync::{AtomicU64, fence};

type Leaf = leaf::Leaf<LeafTree>;
type Root = index::Root<LeafTree>;
type Side = side::Side<LeafTree>;
type Owner<'a> = owner::Owner<'a, LeafTree>;
/// The queues of all trees.
pub(super) type Queues = queues::Queues<LeafTree>;

/// Lookups tried without the lock.
const TRIES: u32 = 3;

/// A tree, to which its leaves in the queues lead back.
#[derive(Debug)]
pub(super) struct LeafTree {
    this: Weak<Self>,
    queues: Arc<Queues>,
    /// No other tree of the queues has it.
    number: u64,
    merge: bool,
    /// Even: nothing is being changed. Written under the lock only.
    version: AtomicU64,
    /// `None` for a tree that knows nothing.
    roots: ArcSwapOption<Roots>,
    state: Mutex<State>,
    /// Counts changes of the map. Written under the lock only.
    seq: AtomicU64,
    /// Delayed blocks. Written under the lock only.
    delayed_blocks: AtomicU64,
    precached: Flag,
}

/// What readers start from.
#[derive(Debug, Default)]
struct Roots {
    cached: Root,
    delayed: Root,
}

/// The two sides are disjoint.
#[derive(Debug)]
struct State {
    cached: Side,
    delayed: Side,
    delayed_blocks: u64,
}

/// How many extents a tree holds.
#[derive(Clone, Copy, Default)]
struct ExtentCounts {
    /// Those that may be dropped.
    reclaimable: i64,
    /// Those of delayed blocks.
    delayed: i64,
}

/// What a lookup without the lock saw.
enum Seen {
    Extent(Extent),
    Nothing,
    /// A change was going on.
    Unclear,
}

impl State {
    fn extents(&self) -> ExtentCounts {
        ExtentCounts {
            reclaimable: self.cached.len() as i64,
            delayed: self.delayed.len() as i64,
        }
    }

    /// What readers are to start from.
    fn roots(&self) -> Option<Arc<Roots>> {
        let (cached, delayed) = (self.cached.root(), self.delayed.root());
        let is_empty = cached.is_empty() && delayed.is_empty();
        (!is_empty).then(|| {
            Arc::new(Roots {
                cached: cached.clone(),
                delayed: delayed.clone(),
            })
        })
    }

    fn containing(&self, lblk: u32) -> Option<Packed> {
        let cached = self.cached.containing(lblk);
        cached.or_else(|| self.delayed.containing(lblk))
    }

    /// Forgets the range. Answers the delayed blocks in it.
    fn remove(&mut self, range: Range<u32>, owner: &Owner<'_>) -> u32 {
        self.cached.remove(range.clone(), owner);
        let delayed = self.delayed.remove(range, owner);
        self.delayed_blocks -= u64::from(delayed);
        delayed
    }

    fn insert(&mut self, extent: &Extent, owner: &Owner<'_>) -> u32 {
        let delayed = self.remove(extent.lblk.0..extent.end(), owner);
        if extent.status == Status::Delayed {
            self.delayed_blocks += u64::from(extent.len);
            self.delayed.add(extent, owner);
        } else {
            self.cached.add(extent, owner);
        }
        delayed
    }

    /// Where what is not known at `at` ends, `end` at the latest.
    fn gap_end(&self, at: u32, end: u32) -> u32 {
        let nexts = [self.cached.next_start(at), self.delayed.next_start(at)];
        nexts.into_iter().flatten().fold(end, u32::min)
    }

    /// Puts those extents in of whose range nothing is known. Those in ascending order go in
    /// together.
    fn add_unknown(&mut self, extents: impl Iterator<Item = Extent>, owner: &Owner<'_>) {
        let mut batch: Vec<Extent> = Vec::new();
        // Where nothing is known but the batch.
        let mut free = 0..0;
        for extent in extents {
            let (start, end) = (extent.lblk.0, extent.end());
            if batch.last().is_some_and(|last| start < last.end()) {
                self.cached.add_all(&batch, owner);
                batch.clear();
                free = 0..0;
            }
            if !free.contains(&start) || end > free.end {
                if self.containing(start).is_some() || self.gap_end(start, end) < end {
                    continue;
                }
                let last = batch.last().map(Extent::end);
                let next = last.and_then(|last| self.cached.next_start(last));
                if next.is_some_and(|next| next < start) {
                    self.cached.add_all(&batch, owner);
                    batch.clear();
                }
                free = start..self.gap_end(start, u32::MAX);
            }
            match batch.last_mut() {
                Some(last) if owner.merge && last.joins(&extent) => last.len += extent.len,
                _ => batch.push(extent),
            }
        }
        self.cached.add_all(&batch, owner);
    }

    /// Puts `extent` where nothing is known, going over [`FILL_MAX`] parts of it at most; what is
    /// known stays.
    fn fill(&mut self, extent: &Extent, owner: &Owner<'_>) {
        let end = extent.end();
        let mut at = extent.lblk.0;
        for _ in 0..FILL_MAX {
            if at >= end {
                break;
            }
            if let Some(known) = self.containing(at) {
                at = known.end();
                continue;
            }
            let stop = self.gap_end(at, end);
            self.cached.add(&extent.part(at, stop), owner);
            at = stop;
        }
    }

    /// Answers the delayed blocks of `extent` if all of it is known so already.
    fn is_known(&self, extent: &Extent) -> Option<u32> {
        let known = self.containing(extent.lblk.0)?.extent();
        let (start, end) = (extent.lblk.0, extent.end());
        let same = end <= known.end() && known.part(start, end) == *extent;
        let is_delayed = extent.status == Status::Delayed;
        same.then_some(if is_delayed { extent.len } else { 0 })
    }
}

/// The entry that contains `lblk`, on either side, and its leaf.
fn found<'a>(cached: &'a Root, delayed: &'a Root, lblk: u32) -> Option<(&'a Arc<Leaf>, Packed)> {
    let found = cached.containing(lblk);
    let (leaf, _, packed) = found.or_else(|| delayed.containing(lblk))?;
    Some((leaf, packed))
}

/// The answer to a lookup, which counts as a use of the leaf.
fn referred(queues: &Queues, leaf: &Arc<Leaf>, packed: Packed) -> Extent {
    if let Some((_, place)) = &leaf.queued {
        leaf.refer(queues.tick(place));
    }
    packed.extent()
}

impl LeafTree {
    pub(super) fn new(queues: &Arc<Queues>, merge: bool) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            queues: Arc::clone(queues),
            number: queues.number(),
            merge,
            version: AtomicU64::new(0),
            roots: ArcSwapOption::empty(),
            state: Mutex::new(State {
                cached: Side::new(true),
                delayed: Side::new(false),
                delayed_blocks: 0,
            }),
            seq: AtomicU64::new(0),
            delayed_blocks: AtomicU64::new(0),
            precached: Flag::new(false),
        })
    }

    fn try_lookup(&self, lblk: u32) -> Seen {
        let version = self.version.load(Acquire);
        if version % 2 == 1 {
            return Seen::Unclear;
        }
        let roots = self.roots.load();
        let roots = roots.as_deref();
        let found = roots.and_then(|roots| found(&roots.cached, &roots.delayed, lblk));
        // The fence keeps the loads above it before the one below it.
        fence(Acquire);
        if self.version.load(Relaxed) != version {
            return Seen::Unclear;
        }
        match found {
            Some((leaf, packed)) => Seen::Extent(referred(&self.queues, leaf, packed)),
            None => Seen::Nothing,
        }
    }

    /// Raises the number of changes, while the version is odd already: a reader that sees the new
    /// number cannot see what was there before.
    fn count_change(&self) {
        self.seq.fetch_add(1, Release);
    }

    /// Brings the cache's counters after a change, given the extents before and after it.
    fn count(&self, counters: &Counters, before: ExtentCounts, after: ExtentCounts) {
        let reclaimable = after.reclaimable - before.reclaimable;
        counters.extents(reclaimable + after.delayed - before.delayed, reclaimable);
        if (before.reclaimable > 0) != (after.reclaimable > 0) {
            counters.linked(if after.reclaimable > 0 { 1 } else { -1 });
        }
    }

    /// Drops a leaf. `None` if the tree is in use. Returns its extents, 0 if the tree has dropped
    /// it meanwhile, and the rows of the index copied.
    pub(super) fn try_evict(&self, counters: &Counters, leaf: &Arc<Leaf>) -> Option<(usize, u64)> {
        let state = &mut *self.state.try_lock()?;
        let before = state.cached.copied();
        let work = |state: &mut State, owner: &Owner<'_>| state.cached.drop_leaf(leaf, owner);
        let dropped = self.change(counters, state, work).unwrap_or(0);
        Some((dropped, state.cached.copied() - before))
    }

    fn owner<'a>(&'a self, counters: &'a Counters) -> Owner<'a> {
        Owner {
            counters,
            queues: &self.queues,
            tree: &self.this,
            number: self.number,
            precached: self.precached.load(Relaxed),
            merge: self.merge,
        }
    }

    /// Changes what readers see, and brings the cache's counters after it.
    fn change<R>(
        &self,
        counters: &Counters,
        state: &mut State,
        work: impl FnOnce(&mut State, &Owner<'_>) -> R,
    ) -> R {
        let owner = self.owner(counters);
        let copied = |state: &State| (state.cached.version(), state.delayed.version());
        let (before, roots) = (state.extents(), copied(state));
        // It is odd already if the last one who worked on this panicked.
        let version = self.version.load(Relaxed) | 1;
        self.version.store(version, Relaxed);
        // The fence keeps the stores below it behind the one above it.
        fence(Release);
        let answer = work(state, &owner);
        if copied(state) != roots {
            self.roots.store(state.roots());
        }
        self.version.store(version + 1, Release);
        self.count(counters, before, state.extents());
        self.delayed_blocks.store(state.delayed_blocks, Release);
        answer
    }
}

impl EsTree for LeafTree {
    fn lookup(&self, _: &Counters, lblk: u32) -> Lookup {
        for _ in 0..TRIES {
            let extent = match self.try_lookup(lblk) {
                Seen::Extent(extent) => Some(extent),
                Seen::Nothing => None,
                Seen::Unclear => {
                    std::hint::spin_loop();
                    continue;
                }
            };
            return Lookup {
                extent,
                locked: false,
            };
        }
        let state = self.state.lock();
        let found = found(state.cached.root(), state.delayed.root(), lblk);
        Lookup {
            extent: found.map(|(leaf, packed)| referred(&self.queues, leaf, packed)),
            locked: true,
        }
    }

    fn insert(&self, counters: &Counters, extent: &Extent) -> u32 {
        let state = &mut *self.state.lock();
        if let Some(delayed) = state.is_known(extent) {
            self.seq.fetch_add(1, Release);
            return delayed;
        }
        self.change(counters, state, |state, owner| {
            self.count_change();
            state.insert(extent, owner)
        })
    }

    fn remove(&self, counters: &Counters, range: Range<u32>) -> u32 {
        let state = &mut *self.state.lock();
        self.change(counters, state, |state, owner| {
            self.count_change();
            state.remove(range, owner)
        })
    }

    fn cache(&self, counters: &Counters, extent: &Extent) {
        let state = &mut *self.state.lock();
        self.change(counters, state, |state, owner| state.fill(extent, owner));
    }

    fn cache_all(&self, counters: &Counters, extents: &mut dyn Iterator<Item = Extent>) {
        let state = &mut *self.state.lock();
        self.change(counters, state, |state, owner| {
            state.add_unknown(extents, owner);
        });
    }

    fn find(&self, from: u32, wanted: StatusSet) -> Option<Extent> {
        let state = self.state.lock();
        let is_wanted = |packed: &Packed| wanted.contains(packed.extent().status);
        let first = |side: &Side, any: StatusSet| {
            let mut extents = wanted.intersects(any).then(|| side.after(from))?;
            extents.find(is_wanted)
        };
        let both = [
            first(&state.cached, StatusSet::of(Status::is_reclaimable)),
            first(&state.delayed, StatusSet::DELAYED),
        ];
        let packed = both
            .into_iter()
            .flatten()
            .min_by_key(|packed| packed.start())?;
        Some(packed.extent().part(from.max(packed.start()), packed.end()))
    }

    fn clear_cache(&self, counters: &Counters) {
        let state = &mut *self.state.lock();
        self.precached.store(false, Relaxed);
        self.change(counters, state, |state, owner| state.cached.clear(owner));
    }

    fn set_precached(&self) {
        let state = self.state.lock();
        if !self.precached.swap(true, Relaxed) {
            let root = state.cached.root();
            root.for_each(&mut |leaf| self.queues.requeue(leaf, Queue::Protected));
        }
    }

    fn is_precached(&self) -> bool {
        self.precached.load(Relaxed)
    }

    fn delayed_blocks(&self) -> u64 {
        self.delayed_blocks.load(Acquire)
    }

    fn seq(&self) -> u64 {
        self.seq.load(Acquire)
    }

    fn extents(&self) -> Vec<Extent> {
        let state = self.state.lock();
        let both = state.cached.after(0).chain(state.delayed.after(0));
        let mut all: Vec<Extent> = both.map(Packed::extent).collect();
        all.sort_by_key(|extent| extent.lblk);
        all
    }

    /// No lookup can come any more, so nothing is published.
    fn close(&self, counters: &Counters) {
        let state = &mut *self.state.lock();
        let owner = self.owner(counters);
        let before = state.extents();
        state.cached.clear(&owner);
        state.delayed.clear(&owner);
        self.count(counters, before, ExtentCounts::default());
    }
}

#[cfg(test)]
mod tests;

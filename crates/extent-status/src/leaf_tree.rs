//! A tree whose look-ups take no lock: its cache and its delayed extents apart, both in leaves.
//!
//! Writers and the shrinker hold one lock. They raise the tree's version to an odd number before
//! they change anything and to an even one afterwards; a look-up that sees the same even number
//! before and after has seen no half of a change, and else tries again, at last under the lock. The
//! indices are published as one pointer, so that what a reader looks at is not freed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool as Flag;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::extent::{Extent, FILL_MAX, Status, bit, joins};
use crate::index::Root;
use crate::leaf::{Leaf, Packed};
use crate::queues::{Place, Queues};
use crate::room::Room;
use crate::side::Side;
use crate::sync::{AtomicU64, fence};

/// Look-ups tried without the lock.
const TRIES: u32 = 3;

/// The part of a tree that the shrinker sees, through its leaves.
#[derive(Debug)]
pub(crate) struct Shared {
    /// No other tree of the room has it.
    number: u64,
    merge: bool,
    /// Even: nothing is being changed. Written under the lock only.
    version: AtomicU64,
    /// `None` for a tree that knows nothing.
    roots: ArcSwapOption<Roots>,
    state: Mutex<State>,
    /// Counts changes of the map. Written under the lock only.
    pub(crate) seq: AtomicU64,
    /// Delayed blocks. Written under the lock only.
    pub(crate) delayed_blocks: AtomicU64,
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

/// What a look-up without the lock saw.
enum Seen {
    Extent(Extent),
    Nothing,
    /// A change was going on.
    Unclear,
}

/// Who makes and drops leaves: a tree, and its room.
pub(crate) struct Owner<'a> {
    pub(crate) room: &'a Room,
    pub(crate) queues: &'a Queues,
    pub(crate) tree: &'a Arc<Shared>,
}

impl Owner<'_> {
    pub(crate) fn bytes(&self, by: i64) {
        self.room.counters().bytes(by);
    }

    pub(crate) fn place(&self, first: u32) -> (std::sync::Weak<Shared>, Place) {
        let place = self.queues.place(self.tree.number, first);
        (Arc::downgrade(self.tree), place)
    }

    pub(crate) fn is_remembered(&self, first: u32) -> bool {
        self.queues.is_remembered(self.tree.number, first)
    }

    pub(crate) fn enter(&self, leaf: &Arc<Leaf>, from: Option<&Arc<Leaf>>) {
        let precached = self.tree.precached.load(Relaxed);
        let from = from.map(|from| &**from);
        if self.queues.enter(leaf, from, precached) {
            self.room.counters().ghost_hits.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn renew(&self, old: &Arc<Leaf>, new: &Arc<Leaf>) {
        self.queues.renew(old, new);
    }

    pub(crate) fn leave(&self, leaf: &Arc<Leaf>) {
        self.queues.leave(leaf);
    }
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
        let merge = owner.tree.merge;
        if extent.status == Status::Delayed {
            self.delayed_blocks += u64::from(extent.len);
            self.delayed.add(extent, merge, owner);
        } else {
            self.cached.add(extent, merge, owner);
        }
        delayed
    }

    /// Where what is not known at `at` ends, `end` at the latest.
    fn gap_end(&self, at: u32, end: u32) -> u32 {
        let nexts = [self.cached.next_start(at), self.delayed.next_start(at)];
        nexts.into_iter().flatten().fold(end, u32::min)
    }

    /// Puts those extents in of whose range nothing is known. Those in ascending order go in together.
    fn add_unknown(&mut self, extents: impl Iterator<Item = Extent>, owner: &Owner<'_>) {
        let merge = owner.tree.merge;
        let mut batch: Vec<Extent> = Vec::new();
        // Where nothing is known but the batch.
        let mut free = 0..0;
        for extent in extents {
            let (start, end) = (extent.lblk.0, extent.end());
            if batch.last().is_some_and(|last| start < last.end()) {
                self.cached.add_all(&batch, merge, owner);
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
                    self.cached.add_all(&batch, merge, owner);
                    batch.clear();
                }
                free = start..self.gap_end(start, u32::MAX);
            }
            match batch.last_mut() {
                Some(last) if merge && joins(last, &extent) => last.len += extent.len,
                _ => batch.push(extent),
            }
        }
        self.cached.add_all(&batch, merge, owner);
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
            self.cached
                .add(&extent.part(at, stop), owner.tree.merge, owner);
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

/// The answer to a look-up, which counts as a use of the leaf.
fn referred(queues: &Queues, leaf: &Arc<Leaf>, packed: Packed) -> Extent {
    if let Some((_, place)) = &leaf.queued {
        leaf.refer(queues.tick(place));
    }
    packed.extent()
}

impl Shared {
    pub(crate) fn new(queues: &Queues, merge: bool) -> Arc<Self> {
        Arc::new(Self {
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

    pub(crate) fn is_precached(&self) -> bool {
        self.precached.load(Relaxed)
    }

    /// The extent that contains `lblk`, and whether the lock was taken to find it.
    pub(crate) fn lookup(&self, queues: &Queues, lblk: u32) -> (Option<Extent>, bool) {
        for _ in 0..TRIES {
            match self.try_lookup(queues, lblk) {
                Seen::Extent(extent) => return (Some(extent), false),
                Seen::Nothing => return (None, false),
                Seen::Unclear => std::hint::spin_loop(),
            }
        }
        let state = self.state.lock();
        let found = found(state.cached.root(), state.delayed.root(), lblk);
        (
            found.map(|(leaf, packed)| referred(queues, leaf, packed)),
            true,
        )
    }

    fn try_lookup(&self, queues: &Queues, lblk: u32) -> Seen {
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
            Some((leaf, packed)) => Seen::Extent(referred(queues, leaf, packed)),
            None => Seen::Nothing,
        }
    }

    /// Puts an extent in place of what is known of its range. Answers the delayed blocks replaced.
    pub(crate) fn insert(self: &Arc<Self>, room: &Room, queues: &Queues, extent: &Extent) -> u32 {
        let state = &mut *self.state.lock();
        if let Some(delayed) = state.is_known(extent) {
            self.seq.fetch_add(1, Release);
            return delayed;
        }
        self.change(room, queues, state, |state, owner| {
            self.count_change();
            state.insert(extent, owner)
        })
    }

    pub(crate) fn remove(self: &Arc<Self>, room: &Room, queues: &Queues, range: Range<u32>) -> u32 {
        let state = &mut *self.state.lock();
        self.change(room, queues, state, |state, owner| {
            self.count_change();
            state.remove(range, owner)
        })
    }

    /// Raises the number of changes, while the version is odd already: who sees the new number cannot
    /// see what was there before.
    fn count_change(&self) {
        self.seq.fetch_add(1, Release);
    }

    /// Puts an extent where nothing is known; it must be reclaimable and bounded.
    pub(crate) fn cache(self: &Arc<Self>, room: &Room, queues: &Queues, extent: &Extent) {
        let state = &mut *self.state.lock();
        self.change(room, queues, state, |state, owner| {
            state.fill(extent, owner)
        });
    }

    /// Puts those extents in of whose range nothing is known; they must be reclaimable and bounded.
    pub(crate) fn cache_all(
        self: &Arc<Self>,
        room: &Room,
        queues: &Queues,
        extents: impl Iterator<Item = Extent>,
    ) {
        let state = &mut *self.state.lock();
        self.change(room, queues, state, |state, owner| {
            state.add_unknown(extents, owner);
        });
    }

    /// Forgets all that is not delayed.
    pub(crate) fn clear_cache(self: &Arc<Self>, room: &Room, queues: &Queues) {
        let state = &mut *self.state.lock();
        self.change(room, queues, state, |state, owner| {
            state.cached.clear(owner)
        });
    }

    /// Forgets all, for who lets go of the tree: nobody looks at it any more, so nothing is published.
    pub(crate) fn close(self: &Arc<Self>, room: &Room, queues: &Queues) {
        let state = &mut *self.state.lock();
        let owner = Owner {
            room,
            queues,
            tree: self,
        };
        let before = state.extents();
        state.cached.clear(&owner);
        state.delayed.clear(&owner);
        self.count(room, before, ExtentCounts::default());
    }

    /// Brings the room's counters after a change, given the extents before and after it.
    fn count(&self, room: &Room, before: ExtentCounts, after: ExtentCounts) {
        let reclaimable = after.reclaimable - before.reclaimable;
        let counters = room.counters();
        counters.extents(reclaimable + after.delayed - before.delayed, reclaimable);
        if (before.reclaimable > 0) != (after.reclaimable > 0) {
            counters.linked(if after.reclaimable > 0 { 1 } else { -1 });
        }
    }

    /// Notes whether the tree was loaded in advance by request: its leaves go last then.
    pub(crate) fn set_precached(&self, queues: &Queues, precached: bool) {
        let state = self.state.lock();
        if self.precached.swap(precached, Relaxed) != precached {
            let root = state.cached.root();
            root.for_each(&mut |leaf| queues.requeue(leaf, queues.usual(precached)));
        }
    }

    /// Drops a leaf. `None` if the tree is in use. Answers its extents, 0 if the tree has let go of
    /// it meanwhile, and the rows of the index copied.
    pub(crate) fn try_evict(
        self: &Arc<Self>,
        room: &Room,
        queues: &Queues,
        leaf: &Arc<Leaf>,
    ) -> Option<(usize, u64)> {
        let state = &mut *self.state.try_lock()?;
        let before = state.cached.copied();
        let work = |state: &mut State, owner: &Owner<'_>| state.cached.drop_leaf(leaf, owner);
        let dropped = self.change(room, queues, state, work).unwrap_or(0);
        Some((dropped, state.cached.copied() - before))
    }

    /// Changes what readers see, and brings the room's counters after it.
    fn change<R>(
        self: &Arc<Self>,
        room: &Room,
        queues: &Queues,
        state: &mut State,
        work: impl FnOnce(&mut State, &Owner<'_>) -> R,
    ) -> R {
        let owner = Owner {
            room,
            queues,
            tree: self,
        };
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
        self.count(room, before, state.extents());
        self.delayed_blocks.store(state.delayed_blocks, Release);
        answer
    }

    /// The first extent that ends after `from` and whose status has its bit in `wanted`, cut to start
    /// at `from`.
    pub(crate) fn find(&self, from: u32, wanted: u8) -> Option<Extent> {
        let state = self.state.lock();
        let is_wanted = |packed: &Packed| bit(packed.extent().status) & wanted != 0;
        let delayed = bit(Status::Delayed);
        let first = |side: &Side, any: u8| {
            let mut extents = (wanted & any != 0).then(|| side.after(from))?;
            extents.find(is_wanted)
        };
        let both = [
            first(&state.cached, !delayed),
            first(&state.delayed, delayed),
        ];
        let packed = both
            .into_iter()
            .flatten()
            .min_by_key(|packed| packed.start())?;
        Some(packed.extent().part(from.max(packed.start()), packed.end()))
    }

    /// All that is known, in order.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        let state = self.state.lock();
        let both = state.cached.after(0).chain(state.delayed.after(0));
        let mut all: Vec<Extent> = both.map(Packed::extent).collect();
        all.sort_by_key(|extent| extent.lblk);
        all
    }

    /// Runs `work` under the lock, for tests of who waits for it.
    #[cfg(test)]
    pub(crate) fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        let _state = self.state.lock();
        work()
    }
}

#[cfg(test)]
mod tests;

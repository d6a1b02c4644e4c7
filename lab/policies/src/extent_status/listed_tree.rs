//! A tree behind one readers-writer lock, with its share in the subsystem's counters and in the
//! list.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use uext4_extent_status::{Counters, EsTree, Extent, Lookup, StatusSet};

use super::list::{List, Order, Slot};
use super::map::Map;
use super::pass::Pass;

/// An ordered map of extents, and where it is on the list.
#[derive(Debug)]
pub(crate) struct ListedTree {
    pub(crate) this: Weak<Self>,
    list: Arc<List>,
    state: RwLock<State>,
    /// Counts changes of the map. Written under the lock only.
    seq: AtomicU64,
    /// Delayed blocks. Written under the lock only.
    delayed_blocks: AtomicU64,
    /// When it was last used, in nanoseconds, for the shrinkers that ask.
    pub(crate) touched: AtomicU64,
    precached: AtomicBool,
    /// Its place on the list.
    pub(crate) slot: Slot,
}

#[derive(Debug)]
struct State {
    map: Map,
    /// Where the shrinker goes on.
    cursor: u32,
}

impl ListedTree {
    pub(crate) fn new(list: &Arc<List>, merge: bool) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            list: Arc::clone(list),
            state: RwLock::new(State {
                map: Map::new(list.order.is_queued(), merge),
                cursor: 0,
            }),
            seq: AtomicU64::new(0),
            delayed_blocks: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            precached: AtomicBool::new(false),
            slot: Slot::default(),
        })
    }

    pub(crate) fn is_precached(&self) -> bool {
        self.precached.load(Relaxed)
    }

    /// Looks into the map, under the lock as a reader.
    fn read<R>(&self, work: impl FnOnce(&Map) -> R) -> R {
        work(&self.state.read().map)
    }

    /// Notes that the tree is in use.
    fn touch(&self, counters: &Counters) {
        if self.list.order.is_by_last_use() {
            self.touched.store(counters.now(), Relaxed);
            if self.list.order == Order::Vanilla {
                self.list.link(counters, self);
            }
        }
    }

    /// Changes what the map is.
    fn change<R>(&self, counters: &Counters, change: impl FnOnce(&mut Map) -> R) -> R {
        self.locked(counters, |map| {
            self.seq.fetch_add(1, Ordering::Release);
            change(map)
        })
    }

    /// Changes the map under the lock and brings counters and list after it.
    fn locked<R>(&self, counters: &Counters, work: impl FnOnce(&mut Map) -> R) -> R {
        self.touch(counters);
        let state = &mut *self.state.write();
        let before = Population::of(&state.map);
        let answer = work(&mut state.map);
        if state.map.reclaimable() > 0 {
            self.list.link(counters, self);
        }
        self.settle(counters, state, &before);
        if state.map.reclaimable() == 0 && self.list.order != Order::Vanilla {
            self.list.unlink(counters, self);
        }
        answer
    }

    /// Lets the shrinker drop extents as `work` does, to which it also gives the place where it
    /// last stopped. `None` if the tree is in use. If nothing is left to drop, `unlink` takes the
    /// tree off the list, before anything can be put into it again.
    pub(crate) fn try_reclaim(
        &self,
        counters: &Counters,
        work: impl FnOnce(&mut Map, &mut u32) -> Pass,
        unlink: impl FnOnce(&Self),
    ) -> Option<Pass> {
        let state = &mut *self.state.try_write()?;
        if state.map.reclaimable() == 0 {
            return Some(Pass::default());
        }
        let before = Population::of(&state.map);
        let pass = work(&mut state.map, &mut state.cursor);
        self.settle(counters, state, &before);
        if state.map.reclaimable() == 0 {
            unlink(self);
        }
        Some(pass)
    }

    /// Brings the subsystem's counters after the map.
    fn settle(&self, counters: &Counters, state: &State, before: &Population) {
        let after = Population::of(&state.map);
        let all = after.all - before.all;
        counters.extents(all, after.reclaimable - before.reclaimable);
        counters.bytes(all * self.list.order.extent_bytes());
        self.delayed_blocks
            .store(state.map.delayed_blocks(), Ordering::Release);
    }
}

impl EsTree for ListedTree {
    fn lookup(&self, counters: &Counters, lblk: u32) -> Lookup {
        self.touch(counters);
        Lookup {
            extent: self.read(|map| map.lookup(lblk)),
            locked: true,
        }
    }

    fn insert(&self, counters: &Counters, extent: &Extent) -> u32 {
        self.change(counters, |map| map.insert(extent))
    }

    fn remove(&self, counters: &Counters, range: Range<u32>) -> u32 {
        self.change(counters, |map| map.remove(range))
    }

    fn cache(&self, counters: &Counters, extent: &Extent) {
        self.locked(counters, |map| map.fill(extent));
    }

    fn cache_all(&self, counters: &Counters, extents: &mut dyn Iterator<Item = Extent>) {
        self.locked(counters, |map| {
            extents.for_each(|extent| map.add_unknown(&extent));
        });
    }

    fn find(&self, from: u32, wanted: StatusSet) -> Option<Extent> {
        self.read(|map| map.find(from, wanted))
    }

    fn clear_cache(&self, counters: &Counters) {
        self.precached.store(false, Relaxed);
        self.locked(counters, Map::clear_cache);
    }

    fn set_precached(&self) {
        self.precached.store(true, Relaxed);
    }

    fn is_precached(&self) -> bool {
        self.is_precached()
    }

    fn delayed_blocks(&self) -> u64 {
        self.delayed_blocks.load(Acquire)
    }

    fn seq(&self) -> u64 {
        self.seq.load(Acquire)
    }

    fn extents(&self) -> Vec<Extent> {
        self.read(Map::extents)
    }

    fn close(&self, counters: &Counters) {
        // The old map is freed after the lock is.
        let _map = self.locked(counters, Map::take);
        self.list.unlink(counters, self);
    }
}

/// How many extents a map holds.
struct Population {
    all: i64,
    reclaimable: i64,
}

impl Population {
    fn of(map: &Map) -> Self {
        // Blocks are counted in 32 bits, so extents are too.
        Self {
            all: map.len() as i64,
            reclaimable: map.reclaimable() as i64,
        }
    }
}

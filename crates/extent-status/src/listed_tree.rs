//! A tree behind one readers-writer lock, with its share in the room's counters and list: what the
//! shrinkers that go from tree to tree work on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::extent::Extent;
use crate::list::{List, Slot};
use crate::map::Map;
use crate::options::Shrinker;
use crate::room::Room;
use crate::scan::Pass;

/// The part of a tree that the shrinker sees, through the list.
#[derive(Debug)]
pub(crate) struct Shared {
    state: RwLock<State>,
    /// Counts changes of the map. Written under the lock only.
    pub(crate) seq: AtomicU64,
    /// Delayed blocks. Written under the lock only.
    pub(crate) delayed_blocks: AtomicU64,
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

impl Shared {
    pub(crate) fn new(list: &List, merge: bool) -> Arc<Self> {
        let queued = matches!(list.shrinker, Shrinker::Lru | Shrinker::RoundRobin);
        Arc::new(Self {
            state: RwLock::new(State {
                map: Map::new(queued, merge),
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

    pub(crate) fn set_precached(&self, precached: bool) {
        self.precached.store(precached, Relaxed);
    }

    /// Looks into the map, under the lock as a reader.
    pub(crate) fn read<R>(&self, work: impl FnOnce(&Map) -> R) -> R {
        work(&self.state.read().map)
    }

    pub(crate) fn lookup(self: &Arc<Self>, room: &Room, list: &List, lblk: u32) -> Option<Extent> {
        self.touch(room, list);
        self.read(|map| map.lookup(lblk))
    }

    /// Notes that the tree is in use.
    fn touch(self: &Arc<Self>, room: &Room, list: &List) {
        if matches!(list.shrinker, Shrinker::Vanilla | Shrinker::Lru) {
            self.touched.store(room.now(), Relaxed);
            if list.shrinker == Shrinker::Vanilla {
                list.link(self);
            }
        }
    }

    /// Changes what the map is.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        room: &Room,
        list: &List,
        change: impl FnOnce(&mut Map) -> R,
    ) -> R {
        self.locked(room, list, |map| {
            self.seq.fetch_add(1, Ordering::Release);
            change(map)
        })
    }

    /// Changes the map under the lock and brings counters and list after it.
    pub(crate) fn locked<R>(
        self: &Arc<Self>,
        room: &Room,
        list: &List,
        work: impl FnOnce(&mut Map) -> R,
    ) -> R {
        self.touch(room, list);
        let state = &mut *self.state.write();
        let before = Population::of(&state.map);
        let answer = work(&mut state.map);
        if state.map.reclaimable() > 0 {
            list.link(self);
        }
        self.settle(room, state, &before);
        if state.map.reclaimable() == 0 && list.shrinker != Shrinker::Vanilla {
            list.unlink(self);
        }
        answer
    }

    /// Forgets all and leaves the list.
    pub(crate) fn close(self: &Arc<Self>, room: &Room, list: &List) {
        // The old map is freed after the lock is let go.
        let _map = self.locked(room, list, Map::take);
        list.unlink(self);
    }

    /// Lets the shrinker drop extents as `work` does, to which it also gives the place where it last
    /// stopped. `None` if the tree is in use. If nothing is left to drop, `unlink` takes the tree off
    /// the list, before anybody can put something into it again.
    pub(crate) fn try_reclaim(
        &self,
        room: &Room,
        work: impl FnOnce(&mut Map, &mut u32) -> Pass,
        unlink: impl FnOnce(&Self),
    ) -> Option<Pass> {
        let state = &mut *self.state.try_write()?;
        if state.map.reclaimable() == 0 {
            return Some(Pass::default());
        }
        let before = Population::of(&state.map);
        let pass = work(&mut state.map, &mut state.cursor);
        self.settle(room, state, &before);
        if state.map.reclaimable() == 0 {
            unlink(self);
        }
        Some(pass)
    }

    /// Brings the room's counters after the map.
    fn settle(&self, room: &Room, state: &State, before: &Population) {
        let after = Population::of(&state.map);
        let all = after.all - before.all;
        room.counters()
            .extents(all, after.reclaimable - before.reclaimable);
        self.delayed_blocks
            .store(state.map.delayed_blocks(), Ordering::Release);
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

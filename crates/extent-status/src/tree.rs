//! The tree of one inode: the map behind its lock, and its share in the room's counters and list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use uext4_ondisk::Lblk;

use crate::extent::{self, Extent, Status};
use crate::map::{self, Map, Pass};
use crate::room::Room;

/// What is known of the blocks of one inode.
///
/// `Send + Sync`. It has a leaf lock of its own: look-ups share it, changes exclude them. Dropping
/// it forgets everything, delayed extents too: settle their reservation before.
#[derive(Debug)]
pub struct Tree {
    room: Arc<Room>,
    shared: Arc<Shared>,
}

/// The part of a tree that the shrinker sees, through the room's list.
#[derive(Debug)]
pub(crate) struct Shared {
    state: RwLock<State>,
    /// Counts changes of the map. Written under the lock only.
    seq: AtomicU64,
    /// Delayed blocks. Written under the lock only.
    delayed_blocks: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    map: Map,
    /// The place on the room's list; there is one exactly while something is reclaimable.
    ticket: Option<u64>,
    /// Where the shrinker goes on.
    cursor: u32,
}

impl Tree {
    /// What a tree takes beside its extents, in bytes: itself, and what its first node has spare.
    pub const MEMORY: u64 = size_of::<Shared>() as u64 + 200;

    /// A tree that knows nothing.
    pub fn new(room: &Arc<Room>) -> Self {
        room.counters().trees(1);
        Self {
            room: Arc::clone(room),
            shared: Arc::new(Shared {
                state: RwLock::default(),
                seq: AtomicU64::new(0),
                delayed_blocks: AtomicU64::new(0),
            }),
        }
    }

    /// The whole known extent that contains `lblk`; `None` if it is not known. Marks it as used.
    pub fn lookup(&self, lblk: Lblk) -> Option<Extent> {
        let found = self.shared.state.read().map.lookup(lblk.0);
        self.room.counters().looked_up(found.is_some());
        found
    }

    /// Notes what a range now is, in place of all that was known there.
    ///
    /// Answers how many delayed blocks it replaced, also if they are delayed again: the caller owns
    /// their reservation. A length beyond the last block is cut; an extent that cannot be (its
    /// place passes the end of all numbers) makes the range unknown.
    pub fn insert(&self, extent: Extent) -> u32 {
        let Some((lblk, len)) = extent::bounded(extent.lblk, extent.len) else {
            return 0;
        };
        self.change(|map| match extent.bounded() {
            Some(extent) => map.insert(&extent),
            None => map.remove(lblk.0..lblk.0 + len),
        })
    }

    /// Notes what the map on the device says of a range, where nothing is known yet.
    ///
    /// Never replaces anything. The caller must have read the map under a lock that kept it from
    /// changing until now. Delayed extents are not the map's to tell, and are ignored.
    pub fn cache(&self, extent: Extent) {
        self.cache_all(&[extent]);
    }

    /// [`cache`](Self::cache) for the extents and holes of a whole leaf, in any order, under one
    /// lock.
    pub fn cache_all(&self, extents: &[Extent]) {
        self.locked(|map| {
            for extent in extents {
                if let Some(extent) = extent.bounded()
                    && extent.status.is_reclaimable()
                {
                    map.fill(&extent);
                }
            }
        });
    }

    /// Forgets a range; answers how many delayed blocks it held: their reservation is the caller's.
    pub fn remove(&self, lblk: Lblk, len: u32) -> u32 {
        let Some((lblk, len)) = extent::bounded(lblk, len) else {
            return 0;
        };
        self.change(|map| map.remove(lblk.0..lblk.0 + len))
    }

    /// The first known extent with a wanted status that contains `from` or lies after it, cut to
    /// start at `from` at the earliest. Walks over the extents in between; marks nothing.
    pub fn find(&self, from: Lblk, wanted: impl Fn(Status) -> bool) -> Option<Extent> {
        // Asked before the lock is taken: nothing is called under it.
        let wanted = Status::ALL
            .into_iter()
            .filter(|status| wanted(*status))
            .fold(0, |set, status| set | map::bit(status));
        self.shared.state.read().map.find(from.0, wanted)
    }

    /// Delayed blocks. Takes no lock.
    pub fn delayed_blocks(&self) -> u64 {
        self.shared.delayed_blocks.load(Ordering::Acquire)
    }

    /// A number that grows with every [`insert`](Self::insert) and [`remove`](Self::remove), also
    /// of what was not known, and with nothing else. Takes no lock.
    pub fn seq(&self) -> u64 {
        self.shared.seq.load(Ordering::Acquire)
    }

    /// All that is known, in order: for tests and tools.
    pub fn extents(&self) -> Vec<Extent> {
        self.shared.state.read().map.extents()
    }

    /// Changes what the map is.
    fn change<R>(&self, change: impl FnOnce(&mut Map) -> R) -> R {
        self.locked(|map| {
            self.shared.seq.fetch_add(1, Ordering::Release);
            change(map)
        })
    }

    /// Changes the map under the lock and brings counters and list after it.
    fn locked<R>(&self, work: impl FnOnce(&mut Map) -> R) -> R {
        let state = &mut *self.shared.state.write();
        let before = Population::of(&state.map);
        let answer = work(&mut state.map);
        if state.ticket.is_none() && state.map.reclaimable() > 0 {
            state.ticket = Some(self.room.link(Arc::downgrade(&self.shared)));
        }
        self.shared.settle(&self.room, state, &before);
        answer
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // The old map is freed after the lock is let go.
        let _map = self.locked(std::mem::take);
        self.room.counters().trees(-1);
    }
}

impl Shared {
    /// Lets the shrinker look at up to `nr` extents, from where it last stopped and round to there.
    /// `None` if the tree is in use.
    pub(crate) fn try_reclaim(&self, room: &Room, nr: usize) -> Option<Pass> {
        let state = &mut *self.state.try_write()?;
        if state.map.reclaimable() == 0 {
            return Some(Pass::default());
        }
        let before = Population::of(&state.map);
        let start = state.cursor;
        let (mut pass, mut stop) = state.map.reclaim(start..u32::MAX, nr);
        if stop == u32::MAX {
            let (rest, end) = state.map.reclaim(0..start, nr - pass.visited);
            pass.visited += rest.visited;
            pass.freed += rest.freed;
            pass.delayed_seen += rest.delayed_seen;
            stop = end;
        }
        state.cursor = stop;
        self.settle(room, state, &before);
        Some(pass)
    }

    /// Brings the room's counters after the map, and takes the tree off the list if nothing is left
    /// to reclaim.
    fn settle(&self, room: &Room, state: &mut State, before: &Population) {
        let after = Population::of(&state.map);
        let all = after.all - before.all;
        room.counters()
            .extents(all, after.reclaimable - before.reclaimable);
        self.delayed_blocks
            .store(state.map.delayed_blocks(), Ordering::Release);
        if after.reclaimable == 0
            && let Some(ticket) = state.ticket.take()
        {
            room.unlink(ticket);
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uext4_ondisk::Pblk;

    use super::*;

    fn hole(lblk: u32) -> Extent {
        Extent {
            lblk: Lblk(lblk),
            len: 1,
            pblk: Pblk(0),
            status: Status::Hole,
        }
    }

    #[test]
    fn a_tree_in_use_is_passed_over_and_tried_once_more() {
        let room = Room::new(|| Duration::ZERO);
        let trees = [(); 2].map(|()| Tree::new(&room));
        trees[0].cache(hole(3));
        let user = trees[0].shared.state.read();
        assert_eq!(room.scan(10), 0);
        let stats = room.stats();
        assert_eq!((stats.trylock_failed, stats.second_rounds), (2, 1));
        // With another tree to reclaim from there is no second round.
        trees[1].cache(hole(4));
        assert_eq!((room.scan(10), room.count()), (1, 1));
        let stats = room.stats();
        assert_eq!((stats.trylock_failed, stats.second_rounds), (3, 1));
        drop(user);
        assert_eq!((room.scan(10), room.count()), (1, 0));
    }

    #[test]
    fn one_handed_to_the_shrinker_outlives_its_tree() {
        let room = Room::new(|| Duration::ZERO);
        let tree = Tree::new(&room);
        tree.cache(hole(3));
        let held = room.next_tree().unwrap();
        drop(tree);
        assert_eq!((room.count(), room.listed()), (0, 0));
        assert_eq!(held.try_reclaim(&room, 10), Some(Pass::default()));
    }
}

//! What is known of the blocks of one inode: the face that both kinds of trees show.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use uext4_ondisk::{Lblk, Pblk};

use crate::extent::{self, Extent, Status, bit};
use crate::list::List;
use crate::queues::Queues;
use crate::room::{Order, Room};
use crate::{leaf_tree, listed_tree, trace};

/// What is known of the blocks of one inode.
///
/// `Send + Sync`. It has a leaf lock of its own; whether look-ups take it depends on the room's
/// shrinker. Dropping it forgets everything, delayed extents too: settle their reservation before.
#[derive(Debug)]
pub struct Tree {
    room: Arc<Room>,
    kind: Kind,
}

/// The tree, and the room's order that it takes part in.
#[derive(Debug)]
enum Kind {
    Listed(Arc<listed_tree::Shared>, Arc<List>),
    Leaves(Arc<leaf_tree::Shared>, Arc<Queues>),
}

impl Tree {
    /// What a tree takes beside its extents, in bytes: itself, its roots, what its first node has
    /// spare.
    pub const MEMORY: u64 = size_of::<leaf_tree::Shared>() as u64 + 200;

    /// A tree that knows nothing.
    pub fn new(room: &Arc<Room>) -> Self {
        room.counters().trees(1);
        let merge = room.options().merge;
        Self {
            room: Arc::clone(room),
            kind: match &room.order {
                Order::Trees(list) => {
                    Kind::Listed(listed_tree::Shared::new(list, merge), Arc::clone(list))
                }
                Order::Leaves(queues) => {
                    Kind::Leaves(leaf_tree::Shared::new(queues, merge), Arc::clone(queues))
                }
            },
        }
    }

    /// The whole known extent that contains `lblk`; `None` if it is not known. Marks it as used.
    pub fn lookup(&self, lblk: Lblk) -> Option<Extent> {
        let (found, locked) = match &self.kind {
            Kind::Listed(tree, list) => (tree.lookup(&self.room, list, lblk.0), true),
            Kind::Leaves(tree, queues) => tree.lookup(queues, lblk.0),
        };
        self.room.counters().looked_up(found.is_some(), locked);
        trace::lookup(lblk.0, found.as_ref());
        found
    }

    /// Notes what a range now is, in place of all that was known there.
    ///
    /// Answers how many delayed blocks it replaced, also if they are delayed again: the caller owns
    /// their reservation. A length beyond the last block is cut; an extent that cannot be (its
    /// place passes [`Extent::PLACES`]) makes the range unknown.
    pub fn insert(&self, extent: Extent) -> u32 {
        let Some((lblk, len)) = extent::bounded(extent.lblk, extent.len) else {
            return 0;
        };
        let Some(extent) = extent.bounded() else {
            return self.remove(lblk, len);
        };
        let delayed = match &self.kind {
            Kind::Listed(tree, list) => tree.change(&self.room, list, |map| map.insert(&extent)),
            Kind::Leaves(tree, queues) => tree.insert(&self.room, queues, &extent),
        };
        let name = match extent.status {
            Status::Delayed => "ext4_es_insert_delayed_extent",
            _ => "ext4_es_insert_extent",
        };
        trace::change(name, &extent, || self.seq());
        delayed
    }

    /// Notes what the map on the device says of a range, where nothing is known yet.
    ///
    /// Never replaces anything. It begins at the first block, and ends where 64 parts have been gone
    /// over, known ones and others: what a look-up that fails costs does not grow with what is known.
    ///
    /// The caller must have read the map under a lock that kept it from changing until now. Delayed
    /// extents are not the map's to tell, and are ignored.
    pub fn cache(&self, extent: Extent) {
        let known = extent.bounded().filter(|e| e.status.is_reclaimable());
        if let Some(extent) = &known {
            match &self.kind {
                Kind::Listed(tree, list) => {
                    tree.locked(&self.room, list, |map| map.fill(extent));
                }
                Kind::Leaves(tree, queues) => tree.cache(&self.room, queues, extent),
            }
        }
        trace::cached(known.into_iter(), || self.seq());
    }

    /// Notes what a whole leaf of the map on the device says, its extents and its holes, in any
    /// order. Each of them is noted only if nothing at all is known of its range: a search an
    /// extent, and what was dropped between known ones stays so. Else as [`cache`](Self::cache).
    pub fn cache_all(&self, extents: &[Extent]) {
        let bounded = extents.iter().filter_map(|extent| extent.bounded());
        let known = bounded.filter(|extent| extent.status.is_reclaimable());
        match &self.kind {
            Kind::Listed(tree, list) => tree.locked(&self.room, list, |map| {
                known.clone().for_each(|extent| map.add_unknown(&extent));
            }),
            Kind::Leaves(tree, queues) => tree.cache_all(&self.room, queues, known.clone()),
        }
        // After the lock is let go: nobody is called under it.
        trace::cached(known, || self.seq());
    }

    /// Forgets a range; answers how many delayed blocks it held: their reservation is the caller's.
    pub fn remove(&self, lblk: Lblk, len: u32) -> u32 {
        let Some((lblk, len)) = extent::bounded(lblk, len) else {
            return 0;
        };
        let range = lblk.0..lblk.0 + len;
        let delayed = match &self.kind {
            Kind::Listed(tree, list) => tree.change(&self.room, list, |map| map.remove(range)),
            Kind::Leaves(tree, queues) => tree.remove(&self.room, queues, range),
        };
        let gone = Extent {
            lblk,
            len,
            pblk: Pblk(0),
            status: Status::Hole,
        };
        trace::change("ext4_es_remove_extent", &gone, || self.seq());
        delayed
    }

    /// The first known extent with a wanted status that contains `from` or lies after it, cut to
    /// start at `from` at the earliest. Walks over the extents in between; marks nothing.
    pub fn find(&self, from: Lblk, wanted: impl Fn(Status) -> bool) -> Option<Extent> {
        // Asked before the lock is taken: nothing is called under it.
        let wanted = Status::ALL
            .into_iter()
            .filter(|status| wanted(*status))
            .fold(0, |set, status| set | bit(status));
        match &self.kind {
            Kind::Listed(tree, _) => tree.read(|map| map.find(from.0, wanted)),
            Kind::Leaves(tree, _) => tree.find(from.0, wanted),
        }
    }

    /// Drops all that is not delayed, and the mark of [`set_precached`](Self::set_precached).
    pub fn clear_cache(&self) {
        self.set_precached(false);
        match &self.kind {
            Kind::Listed(tree, list) => tree.locked(&self.room, list, |map| map.clear_cache()),
            Kind::Leaves(tree, queues) => tree.clear_cache(&self.room, queues),
        };
    }

    /// Notes whether somebody asked to load the whole map in advance: such a tree is shrunk last.
    pub fn set_precached(&self, precached: bool) {
        match &self.kind {
            Kind::Listed(tree, _) => tree.set_precached(precached),
            Kind::Leaves(tree, queues) => tree.set_precached(queues, precached),
        };
    }

    /// The mark of [`set_precached`](Self::set_precached).
    pub fn is_precached(&self) -> bool {
        match &self.kind {
            Kind::Listed(tree, _) => tree.is_precached(),
            Kind::Leaves(tree, _) => tree.is_precached(),
        }
    }

    /// Delayed blocks. Takes no lock.
    pub fn delayed_blocks(&self) -> u64 {
        match &self.kind {
            Kind::Listed(tree, _) => tree.delayed_blocks.load(Acquire),
            Kind::Leaves(tree, _) => tree.delayed_blocks.load(Acquire),
        }
    }

    /// A number that grows with every [`insert`](Self::insert) and [`remove`](Self::remove), also
    /// of what was not known, and with nothing else. Takes no lock.
    pub fn seq(&self) -> u64 {
        match &self.kind {
            Kind::Listed(tree, _) => tree.seq.load(Acquire),
            Kind::Leaves(tree, _) => tree.seq.load(Acquire),
        }
    }

    /// All that is known, in order: for tests and tools.
    pub fn extents(&self) -> Vec<Extent> {
        match &self.kind {
            Kind::Listed(tree, _) => tree.read(|map| map.extents()),
            Kind::Leaves(tree, _) => tree.extents(),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        match &self.kind {
            Kind::Listed(tree, list) => tree.close(&self.room, list),
            Kind::Leaves(tree, queues) => tree.close(&self.room, queues),
        };
        self.room.counters().trees(-1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::Shrinker;

    fn hole(lblk: u32) -> Extent {
        Extent {
            lblk: Lblk(lblk),
            len: 1,
            pblk: Pblk(0),
            status: Status::Hole,
        }
    }

    /// Runs `work` while somebody looks into the tree under its lock.
    fn in_use<R>(tree: &Tree, work: impl FnOnce() -> R) -> R {
        match &tree.kind {
            Kind::Listed(tree, _) => tree.read(|_| work()),
            Kind::Leaves(tree, _) => tree.locked(work),
        }
    }

    #[test]
    fn a_tree_in_use_is_passed_over_and_tried_once_more() {
        for shrinker in Shrinker::ALL {
            let room = Room::with_options(shrinker.into(), || Duration::ZERO);
            let trees = [(); 2].map(|()| Tree::new(&room));
            trees[0].cache(hole(3));
            in_use(&trees[0], || assert_eq!(room.scan(10), 0));
            let stats = room.stats();
            assert!(stats.trylock_failed > 0, "{shrinker}");
            assert_eq!((room.count(), stats.freed), (1, 0));
            // What is not in use goes all the same.
            trees[1].cache(hole(4));
            in_use(&trees[0], || {
                (0..4).for_each(|_| _ = room.scan(10));
                assert_eq!(room.count(), 1, "{shrinker}");
            });
            assert_eq!((room.scan(10), room.count()), (1, 0), "{shrinker}");
        }
    }

    #[test]
    fn look_ups_wait_for_the_lock_only_while_something_changes() {
        let room = Room::new(|| Duration::ZERO);
        let tree = Tree::new(&room);
        tree.cache(hole(3));
        in_use(&tree, || assert_eq!(tree.lookup(Lblk(3)), Some(hole(3))));
    }

    #[test]
    fn one_handed_to_the_shrinker_outlives_its_tree() {
        let room = Room::with_options(Shrinker::Mainline.into(), || Duration::ZERO);
        let tree = Tree::new(&room);
        tree.cache(hole(3));
        let Kind::Listed(_, list) = &tree.kind else {
            unreachable!("mainline lists its trees")
        };
        let (held, list) = (list.take_turn().unwrap(), Arc::clone(list));
        drop(tree);
        assert_eq!((room.count(), list.len()), (0, 0));
        let unlink = |tree: &listed_tree::Shared| list.unlink(tree);
        let pass = held.try_reclaim(&room, |map, _| map.reclaim_queued(9), unlink);
        assert_eq!(pass.map(|pass| pass.freed), Some(0));
    }
}

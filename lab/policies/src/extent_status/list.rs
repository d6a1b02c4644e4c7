//! The list of trees that hold something to drop. In which order they go is a file each.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, atomic::AtomicU32};

use parking_lot::{Mutex, MutexGuard};

use super::listed_tree::ListedTree;
use uext4_extent_status::Counters;
use uext4_support::ring::{self, Ring};

/// In which order listed trees are shrunk, and what in them goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Vanilla,
    Lru,
    RoundRobin,
    Mainline,
}

impl Order {
    /// What an extent takes, in bytes: a node of a B-tree filled in ascending order, with its place
    /// in a queue where there is one.
    pub(crate) fn extent_bytes(self) -> i64 {
        if self.is_queued() { 64 } else { 40 }
    }

    /// Whether each tree has a queue of what may be dropped.
    pub(crate) fn is_queued(self) -> bool {
        matches!(self, Self::Lru | Self::RoundRobin)
    }

    /// Whether trees note when they were last used.
    pub(crate) fn is_by_last_use(self) -> bool {
        matches!(self, Self::Vanilla | Self::Lru)
    }
}

/// Listed trees, the one whose turn is next at the front.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) order: Order,
    trees: Mutex<Trees>,
}

#[derive(Debug, Default)]
pub(crate) struct Trees {
    pub(crate) ring: Ring<Weak<ListedTree>>,
    /// When the list was last sorted, in nanoseconds.
    pub(crate) last_sorted: u64,
}

/// Where a tree is on the list: written under the list's lock only.
#[derive(Debug)]
pub(crate) struct Slot(AtomicU32);

impl Default for Slot {
    fn default() -> Self {
        Self(AtomicU32::new(ring::NONE))
    }
}

impl Slot {
    pub(crate) fn is_linked(&self) -> bool {
        self.0.load(Relaxed) != ring::NONE
    }
}

impl List {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            trees: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Trees> {
        self.trees.lock()
    }

    /// Trees on the list.
    pub(crate) fn len(&self) -> usize {
        self.lock().ring.len()
    }

    /// Puts a tree at the end of the list, if it is on none.
    pub(crate) fn link(&self, counters: &Counters, tree: &ListedTree) {
        if !tree.slot.is_linked() {
            let trees = &mut *self.lock();
            if !tree.slot.is_linked() {
                let slot = trees.ring.push_back(Weak::clone(&tree.this));
                tree.slot.0.store(slot, Relaxed);
                counters.linked(1);
            }
        }
    }

    /// Takes a tree off the list, if it is on it.
    pub(crate) fn unlink(&self, counters: &Counters, tree: &ListedTree) {
        if tree.slot.is_linked() {
            self.lock().unlink(counters, tree);
        }
    }

    /// Moves the tree at the front to the end. `None` if there is none, or if it is going away.
    pub(crate) fn take_turn(&self) -> Option<Arc<ListedTree>> {
        let trees = &mut *self.lock();
        let slot = trees.ring.first();
        trees.ring.move_to_back(slot);
        trees.ring.get(slot)?.upgrade()
    }
}

impl Trees {
    /// As [`List::unlink`], under the lock.
    pub(crate) fn unlink(&mut self, counters: &Counters, tree: &ListedTree) {
        let slot = tree.slot.0.swap(ring::NONE, Relaxed);
        if self.ring.remove(slot).is_some() {
            counters.linked(-1);
        }
    }
}

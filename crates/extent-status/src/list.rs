//! The list of trees that hold something to drop, for the shrinkers that go from tree to tree.
//! Leaves out in which order they go: that is a policy each.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, atomic::AtomicU32};

use parking_lot::{Mutex, MutexGuard};

use crate::listed_tree::Shared;
use crate::options::Shrinker;
use crate::ring::{self, Ring};

/// Listed trees, the one whose turn is next at the front.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) shrinker: Shrinker,
    trees: Mutex<Trees>,
}

#[derive(Debug, Default)]
pub(crate) struct Trees {
    pub(crate) ring: Ring<Weak<Shared>>,
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
    pub(crate) fn new(shrinker: Shrinker) -> Self {
        Self {
            shrinker,
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
    pub(crate) fn link(&self, tree: &Arc<Shared>) {
        if !tree.slot.is_linked() {
            let trees = &mut *self.lock();
            if !tree.slot.is_linked() {
                let slot = trees.ring.push_back(Arc::downgrade(tree));
                tree.slot.0.store(slot, Relaxed);
            }
        }
    }

    /// Takes a tree off the list, if it is on it.
    pub(crate) fn unlink(&self, tree: &Shared) {
        if tree.slot.is_linked() {
            self.lock().unlink(tree);
        }
    }

    /// Moves the tree at the front to the end. `None` if there is none, or if it is going away.
    pub(crate) fn take_turn(&self) -> Option<Arc<Shared>> {
        let trees = &mut *self.lock();
        let slot = trees.ring.first();
        trees.ring.move_to_back(slot);
        trees.ring.get(slot)?.upgrade()
    }
}

impl Trees {
    /// As [`List::unlink`], for who holds the lock.
    pub(crate) fn unlink(&mut self, tree: &Shared) {
        let slot = tree.slot.0.swap(ring::NONE, Relaxed);
        self.ring.remove(slot);
    }
}

//! What the leaves of one tree are made and dropped with: the cache's counters, the queues, and
//! the tree that they lead back to.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use super::leaf::{Leaf, Place};
use super::queues::Queues;
use crate::stats::Counters;

/// A tree of type `T` while one of its writers is at work.
pub(super) struct Owner<'a, T> {
    pub(super) counters: &'a Counters,
    pub(super) queues: &'a Queues<T>,
    pub(super) tree: &'a Weak<T>,
    /// No other tree of the queues has it.
    pub(super) number: u64,
    pub(super) precached: bool,
    /// Neighbours of one kind become one extent.
    pub(super) merge: bool,
}

impl<T> Owner<'_, T> {
    pub(super) fn bytes(&self, by: i64) {
        self.counters.bytes(by);
    }

    pub(super) fn place(&self, first: u32) -> (Weak<T>, Place) {
        let place = self.queues.place(self.number, first);
        (Weak::clone(self.tree), place)
    }

    pub(super) fn is_remembered(&self, first: u32) -> bool {
        self.queues.is_remembered(self.number, first)
    }

    /// Puts a new leaf into the queues: next to the one it was split from, or as one that is new.
    pub(super) fn enter(&self, leaf: &Arc<Leaf<T>>, from: Option<&Arc<Leaf<T>>>) {
        let from = from.map(|from| &**from);
        if self.queues.enter(leaf, from, self.precached) {
            self.counters.ghost_hits.fetch_add(1, Relaxed);
        }
    }
}

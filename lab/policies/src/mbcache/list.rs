//! A list of entries in the order in which they are to go: a ring, so that it can begin anywhere.
//!
//! Its owner locks it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use uext4_mbcache::Entry;
use uext4_support::Ring;

/// The list. All operations take constant time.
#[derive(Debug, Default)]
pub(super) struct List(Ring<Arc<Entry>>);

impl List {
    pub(super) fn front(&self) -> Option<&Arc<Entry>> {
        self.0.get(self.0.first())
    }

    /// The entry after this one; `None` after the last.
    pub(super) fn after(&self, entry: &Entry) -> Option<&Arc<Entry>> {
        self.0.get(self.0.next(entry.slot.load(Relaxed)))
    }

    /// Puts an entry that is on no list at the end. `false` if there is no memory.
    pub(super) fn push_back(&mut self, entry: &Arc<Entry>) -> bool {
        let fits = self.0.try_reserve();
        if fits {
            let slot = self.0.push_back(Arc::clone(entry));
            entry.slot.store(slot, Relaxed);
        }
        fits
    }

    /// Takes an entry off; `false` if it is not on it.
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        let slot = entry.slot.swap(Entry::NO_SLOT, Relaxed);
        self.0.remove(slot).is_some()
    }

    /// Puts an entry at the end, if it is on the list.
    pub(super) fn move_to_back(&mut self, entry: &Entry) {
        self.0.move_to_back(entry.slot.load(Relaxed));
    }

    /// Lets the list begin with this entry, if it is on it: those before come after the last.
    pub(super) fn begin_with(&mut self, entry: &Entry) {
        self.0.begin_with(entry.slot.load(Relaxed));
    }
}

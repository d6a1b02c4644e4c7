//! A list of entries in the order in which a hand comes to them; each entry knows its slot.
//!
//! Its owner locks it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use uext4_support::Ring;

use crate::entry::Entry;

/// The list. All operations take constant time.
#[derive(Debug, Default)]
pub(crate) struct List(Ring<Arc<Entry>>);

impl List {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn front(&self) -> Option<&Arc<Entry>> {
        self.0.get(self.0.first())
    }

    /// Puts an entry that is on no list at the end. `false` if there is no memory.
    pub(crate) fn push_back(&mut self, entry: &Arc<Entry>) -> bool {
        let fits = self.0.try_reserve();
        if fits {
            let slot = self.0.push_back(Arc::clone(entry));
            entry.slot.store(slot, Relaxed);
        }
        fits
    }

    /// Takes an entry off; `false` if it is not on it.
    pub(crate) fn remove(&mut self, entry: &Entry) -> bool {
        let slot = entry.slot.swap(Entry::NO_SLOT, Relaxed);
        self.0.remove(slot).is_some()
    }

    /// Puts an entry at the end, if it is on the list.
    pub(crate) fn move_to_back(&mut self, entry: &Entry) {
        self.0.move_to_back(entry.slot.load(Relaxed));
    }
}

//! A list of entries in the order in which they are to go: a ring, so that it can begin anywhere.
//!
//! Its owner locks it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use uext4_mbcache::Entry;

const NO_SLOT: u32 = Entry::NO_SLOT;

#[derive(Debug)]
struct Node {
    before: u32,
    after: u32,
    /// `None`: a free place.
    entry: Option<Arc<Entry>>,
}

/// The list. All operations take constant time.
#[derive(Debug)]
pub(super) struct List {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The first; [`NO_SLOT`] if there is none.
    head: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            head: NO_SLOT,
        }
    }
}

impl List {
    #[cfg(test)]
    fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    pub(super) fn front(&self) -> Option<&Arc<Entry>> {
        self.nodes.get(self.head as usize)?.entry.as_ref()
    }

    /// The entry after this one; `None` after the last.
    pub(super) fn after(&self, entry: &Entry) -> Option<&Arc<Entry>> {
        let after = self.nodes.get(self.slot(entry)? as usize)?.after;
        let node = self
            .nodes
            .get(after as usize)
            .filter(|_| after != self.head);
        node?.entry.as_ref()
    }

    fn slot(&self, entry: &Entry) -> Option<u32> {
        Some(entry.slot.load(Relaxed)).filter(|&slot| slot != NO_SLOT)
    }

    /// Puts an entry that is on no list at the end. `false` if there is no memory.
    pub(super) fn push_back(&mut self, entry: &Arc<Entry>) -> bool {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                // Room in both, so that removing needs none.
                let len = self.nodes.len();
                let reserved = self.nodes.try_reserve(1);
                let reserved = reserved.and_then(|()| self.free.try_reserve(len + 1));
                if reserved.is_err() || len >= NO_SLOT as usize {
                    return false;
                }
                self.nodes.push(Node {
                    before: NO_SLOT,
                    after: NO_SLOT,
                    entry: None,
                });
                len as u32
            }
        };
        self.nodes[slot as usize].entry = Some(Arc::clone(entry));
        entry.slot.store(slot, Relaxed);
        self.link(slot);
        true
    }

    fn link(&mut self, slot: u32) {
        let (before, after) = match self.head {
            NO_SLOT => (slot, slot),
            head => (self.nodes[head as usize].before, head),
        };
        self.nodes[slot as usize].before = before;
        self.nodes[slot as usize].after = after;
        self.nodes[before as usize].after = slot;
        self.nodes[after as usize].before = slot;
        if self.head == NO_SLOT {
            self.head = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Node { before, after, .. } = self.nodes[slot as usize];
        self.nodes[before as usize].after = after;
        self.nodes[after as usize].before = before;
        if self.head == slot {
            self.head = if after == slot { NO_SLOT } else { after };
        }
    }

    /// Takes an entry off; `false` if it is not on it.
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
        let Some(slot) = self.slot(entry) else {
            return false;
        };
        self.unlink(slot);
        self.nodes[slot as usize].entry = None;
        self.free.push(slot);
        entry.slot.store(NO_SLOT, Relaxed);
        true
    }

    /// Puts an entry at the end, if it is on the list.
    pub(super) fn move_to_back(&mut self, entry: &Entry) {
        if let Some(slot) = self.slot(entry) {
            self.unlink(slot);
            self.link(slot);
        }
    }

    /// Lets the list begin with this entry, if it is on it: those before come after the last.
    pub(super) fn begin_with(&mut self, entry: &Entry) {
        if let Some(slot) = self.slot(entry) {
            self.head = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use uext4_mbcache::Key;

    proptest! {
        #[test]
        fn it_is_a_queue_that_turns(steps in prop::collection::vec((0..5u8, 0..12usize), 0..200)) {
            let key = Key { hash: 0, content: 0 };
            let entries: Vec<_> = (0..12).map(|v| Entry::new(key, v, v, 0, 0)).collect();
            let (mut list, mut model) = (List::default(), VecDeque::new());
            for (step, at) in steps {
                let (entry, place) = (&entries[at], model.iter().position(|&v| v == at));
                match (step, place) {
                    (0 | 1, None) => {
                        prop_assert!(list.push_back(entry));
                        model.push_back(at);
                    }
                    (2, place) => {
                        prop_assert_eq!(list.remove(entry), place.is_some());
                        place.map(|place| model.remove(place));
                    }
                    (3, place) => {
                        list.move_to_back(entry);
                        if let Some(at) = place.and_then(|place| model.remove(place)) {
                            model.push_back(at);
                        }
                    }
                    (4, place) => {
                        list.begin_with(entry);
                        model.rotate_left(place.unwrap_or(0));
                    }
                    _ => {}
                }
                let mut found = Vec::new();
                let mut next = list.front();
                while let Some(entry) = next {
                    found.push(entry.value as usize);
                    next = list.after(entry);
                }
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(found, model.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}

//! A hash table of entries by their content, read without a lock and changed under its owner's.
//!
//! Open addressing: a place has a mark, some bits of the content's hash, and the entry, which is
//! put there once and for all. An entry that goes leaves its place with a mark that says so, till
//! the table is laid out anew: to exchange what readers may be looking at would mean to ask every
//! thread there is, at each entry that comes. A thread that reads while the table is laid out anew
//! may miss an entry; it never gets a wrong one. One that must not miss any reads under the owner's
//! lock.

use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::entry::Entry;

/// Least places; a power of two.
const PLACES_MIN: usize = 16;
/// The mark of a place that never had an entry, and of one whose entry has gone. Others are odd.
const EMPTY: u32 = 0;
const LEFT: u32 = 2;

/// The table, as threads read it that do not hold the owner's lock.
#[derive(Debug)]
pub(crate) struct Table(ArcSwap<Places>);

/// The table as the thread has it that holds the owner's lock: it finds all that is there, and need
/// not ask first which places are the table's now.
#[derive(Debug)]
pub(crate) struct Owned(Arc<Places>);

#[derive(Debug)]
struct Places {
    marks: Vec<AtomicU32>,
    entries: Vec<OnceLock<Arc<Entry>>>,
    /// Entries, and places that are not empty; read and changed under the owner's lock only.
    len: AtomicU32,
    taken: AtomicU32,
}

impl Table {
    /// About what an entry takes in it: four places, and one that has gone.
    pub(crate) const ENTRY_BYTES: usize =
        4 * (size_of::<OnceLock<Arc<Entry>>>() + 4) + size_of::<Entry>() + 16;

    /// An empty table, and its owner's side of it.
    pub(crate) fn new() -> (Self, Owned) {
        let places = Arc::new(Places::default());
        (Self(ArcSwap::new(Arc::clone(&places))), Owned(places))
    }

    /// The entry of a content.
    pub(crate) fn get(&self, content: u64) -> Option<Arc<Entry>> {
        let places = self.0.load();
        places.get(content).map(Arc::clone)
    }
}

impl Owned {
    /// The entry of a content.
    pub(crate) fn get(&self, content: u64) -> Option<&Arc<Entry>> {
        self.0.get(content)
    }

    /// Readers of the table, too, have these places from here on.
    fn set(&mut self, table: &Table, places: Places) {
        self.0 = Arc::new(places);
        table.0.store(Arc::clone(&self.0));
    }

    /// Puts in an entry of a content that has none. `false` if there is no memory.
    pub(crate) fn insert(&mut self, table: &Table, entry: &Arc<Entry>) -> bool {
        if self.0.has_room() {
            return self.0.put(entry);
        }
        let Some(new) = self.0.laid_out(None) else {
            return false;
        };
        new.put(entry);
        self.set(table, new);
        true
    }

    /// Puts an entry in the stead of another of its content, if that is there and there is memory;
    /// no reader finds neither.
    pub(crate) fn replace(&mut self, table: &Table, old: &Arc<Entry>, new: &Arc<Entry>) -> bool {
        let Some(at) = self.0.of(old) else {
            return false;
        };
        if !self.0.has_room()
            && let Some(more) = self.0.laid_out(Some(at))
        {
            more.put(new);
            self.set(table, more);
            return true;
        }
        // Without memory, of those that are stored empty. In this order: a thread that sees that
        // the old one has left comes to the new one behind it.
        let is_put = self.0.put(new);
        if is_put {
            self.0.leave(at);
        }
        is_put
    }

    /// Takes out this entry, if it is there.
    pub(crate) fn remove(&mut self, table: &Table, entry: &Arc<Entry>) {
        if let Some(at) = self.0.of(entry) {
            self.0.leave(at);
        }
        if self.0.is_waste()
            && let Some(fewer) = self.0.laid_out(None)
        {
            self.set(table, fewer);
        }
    }
}

fn mark(content: u64) -> u32 {
    (content >> 32) as u32 | 1
}

impl Default for Places {
    fn default() -> Self {
        Self {
            marks: Vec::new(),
            entries: Vec::new(),
            len: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }
    }
}

impl Places {
    /// The places where a content may be, in their order.
    fn places(&self, content: u64) -> impl Iterator<Item = usize> {
        let mask = self.marks.len().wrapping_sub(1);
        (0..self.marks.len()).map(move |step| (content as usize).wrapping_add(step) & mask)
    }

    /// The first place of a content whose entry `is` it.
    fn at(&self, content: u64, is: impl Fn(&Arc<Entry>) -> bool) -> Option<(usize, &Arc<Entry>)> {
        let wanted = mark(content);
        for at in self.places(content) {
            let found = self.marks[at].load(Acquire);
            if found == EMPTY {
                return None;
            }
            if found == wanted
                && let Some(entry) = self.entries[at].get().filter(|entry| is(entry))
            {
                return Some((at, entry));
            }
        }
        None
    }

    /// The entry of a content.
    fn get(&self, content: u64) -> Option<&Arc<Entry>> {
        let (_, found) = self.at(content, |entry| entry.key.content == content)?;
        Some(found)
    }

    /// The place of this entry.
    fn of(&self, entry: &Arc<Entry>) -> Option<usize> {
        let (at, _) = self.at(entry.key.content, |found| Arc::ptr_eq(found, entry))?;
        Some(at)
    }

    /// Whether another entry has a place; a quarter stays empty, for searches to end there.
    fn has_room(&self) -> bool {
        (self.taken.load(Relaxed) as usize + 1) * 4 <= self.marks.len() * 3
    }

    /// Whether far more has gone than is there.
    fn is_waste(&self) -> bool {
        let len = self.len.load(Relaxed) as usize;
        self.taken.load(Relaxed) as usize > 3 * len + PLACES_MIN
    }

    /// Puts an entry in an empty place, if there is one.
    fn put(&self, entry: &Arc<Entry>) -> bool {
        let content = entry.key.content;
        let is_empty = |at: &usize| self.marks[*at].load(Relaxed) == EMPTY;
        let Some(at) = self.places(content).find(is_empty) else {
            return false;
        };
        let is_put = self.entries[at].set(Arc::clone(entry)).is_ok();
        if is_put {
            self.marks[at].store(mark(content), Release);
            self.len.fetch_add(1, Relaxed);
            self.taken.fetch_add(1, Relaxed);
        }
        is_put
    }

    /// The entry of a place goes.
    fn leave(&self, at: usize) {
        self.marks[at].store(LEFT, Release);
        self.len.fetch_sub(1, Relaxed);
    }

    /// The entries that are there, but for that of one place, in places of their own, of which they
    /// take a third at most with one more; `None` if there is no memory.
    fn laid_out(&self, without: Option<usize>) -> Option<Self> {
        let len = self.len.load(Relaxed) as usize;
        let places = ((len + 1) * 3).next_power_of_two().max(PLACES_MIN);
        let mut new = Self::default();
        new.marks.try_reserve_exact(places).ok()?;
        new.entries.try_reserve_exact(places).ok()?;
        new.marks.resize_with(places, || AtomicU32::new(EMPTY));
        new.entries.resize_with(places, OnceLock::new);
        for (at, (mark, entry)) in self.marks.iter().zip(&self.entries).enumerate() {
            if Some(at) != without && !matches!(mark.load(Relaxed), EMPTY | LEFT) {
                entry.get().inspect(|entry| _ = new.put(entry));
            }
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::entry::Key;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..3u8, 0..200u64), 0..400), wide: bool) {
            let (table, mut owned) = Table::new();
            let mut model: HashMap<u64, Arc<Entry>> = HashMap::new();
            // Spread, or all at few places with equal marks.
            let content = |n: u64| match wide {
                true => n.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                false => n / 9 + ((n % 9) << 20),
            };
            for (step, number) in steps {
                let at = content(number);
                let key = Key { hash: 0, content: at };
                let entry = Entry::new(key, number << 9 | model.len() as u64, 0, 0, 0);
                match (step, model.get(&at).map(Arc::clone)) {
                    (0 | 1, None) => {
                        prop_assert!(owned.insert(&table, &entry));
                        model.insert(at, entry);
                    }
                    (1, Some(old)) => {
                        prop_assert!(owned.replace(&table, &old, &entry));
                        prop_assert!(!owned.replace(&table, &old, &entry));
                        model.insert(at, entry);
                    }
                    (2, Some(old)) => {
                        // Another of the same content takes nothing out.
                        owned.remove(&table, &entry);
                        prop_assert!(table.get(at).is_some());
                        owned.remove(&table, &old);
                        model.remove(&at);
                    }
                    _ => {}
                }
                let both = (table.get(at), owned.get(at));
                prop_assert_eq!(
                    both.0.map(|entry| entry.value),
                    both.1.map(|entry| entry.value)
                );
                prop_assert_eq!(
                    table.get(at).map(|entry| entry.value),
                    model.get(&at).map(|entry| entry.value)
                );
            }
            for number in 0..200 {
                let found = table.get(content(number)).map(|entry| entry.value);
                let known = model.get(&content(number)).map(|entry| entry.value);
                prop_assert_eq!(found, known);
            }
        }
    }
}

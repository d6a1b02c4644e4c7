//! A hash table of entries by their content, read without a lock and changed under its owner's.
//!
//! Open addressing: a place has a mark, some bits of the content's hash, and the entry. Who reads while
//! somebody changes the table, or lays it out anew, may miss an entry; he never gets a wrong one. Who
//! must not miss one reads under the owner's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use crate::entry::Entry;

/// Least places; a power of two.
const PLACES_MIN: usize = 16;
/// The mark of a place without an entry.
const EMPTY: u32 = 0;

/// The table.
#[derive(Debug)]
pub(crate) struct Table(ArcSwap<Places>);

#[derive(Debug)]
struct Places {
    marks: Vec<AtomicU32>,
    entries: Vec<ArcSwapOption<Entry>>,
    /// Entries; read and changed under the owner's lock only.
    len: AtomicU32,
}

impl Default for Table {
    fn default() -> Self {
        let none = Places {
            marks: Vec::new(),
            entries: Vec::new(),
            len: AtomicU32::new(0),
        };
        Self(ArcSwap::from_pointee(none))
    }
}

impl Table {
    /// About what an entry takes in it: three places.
    pub(crate) const ENTRY_BYTES: usize = 3 * (size_of::<ArcSwapOption<Entry>>() + 4);

    /// The entry of a content.
    pub(crate) fn get(&self, content: u64) -> Option<Arc<Entry>> {
        let places = self.0.load();
        let (_, found) = places.at(content, |entry| entry.key.content == content)?;
        Guard::into_inner(found)
    }

    /// Puts in an entry of a content that has none. `false` if there is no memory. The owner's lock is held.
    pub(crate) fn insert(&self, entry: &Arc<Entry>) -> bool {
        let places = self.0.load();
        let (len, all) = (places.len.load(Relaxed) as usize, places.marks.len());
        if (len + 1) * 2 <= all {
            places.put(entry);
            return true;
        }
        let Some(more) = places.laid_out((all * 2).max(PLACES_MIN)) else {
            return false;
        };
        more.put(entry);
        self.0.store(Arc::new(more));
        true
    }

    /// Puts an entry in the place of another of its content, if that is there; no reader finds neither. The
    /// owner's lock is held.
    pub(crate) fn replace(&self, old: &Arc<Entry>, new: &Arc<Entry>) -> bool {
        let places = self.0.load();
        let found = places.at(old.key.content, |found| Arc::ptr_eq(found, old));
        if let Some((at, _)) = &found {
            places.entries[*at].store(Some(Arc::clone(new)));
        }
        found.is_some()
    }

    /// Takes out this entry, if it is there. The owner's lock is held.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        let places = self.0.load();
        let content = entry.key.content;
        let found = places.at(content, |found| Arc::ptr_eq(found, entry));
        if let Some((at, _)) = found {
            places.take_out(at);
        }
        let (len, all) = (places.len.load(Relaxed) as usize, places.marks.len());
        if all > PLACES_MIN
            && len * 8 < all
            && let Some(fewer) = places.laid_out(all / 2)
        {
            self.0.store(Arc::new(fewer));
        }
    }
}

fn mark(content: u64) -> u32 {
    (content >> 32) as u32 | 1
}

impl Places {
    /// The places where a content may be, in their order.
    fn places(&self, content: u64) -> impl Iterator<Item = usize> {
        let mask = self.marks.len().wrapping_sub(1);
        (0..self.marks.len()).map(move |step| (content as usize).wrapping_add(step) & mask)
    }

    /// The first place of a content whose entry `is` it.
    fn at(
        &self,
        content: u64,
        is: impl Fn(&Arc<Entry>) -> bool,
    ) -> Option<(usize, Guard<Option<Arc<Entry>>>)> {
        for at in self.places(content) {
            let found = self.marks[at].load(Acquire);
            if found == EMPTY {
                return None;
            }
            if found == mark(content) {
                let entry = self.entries[at].load();
                if entry.as_ref().is_some_and(&is) {
                    return Some((at, entry));
                }
            }
        }
        None
    }

    /// There is room, as [`Table::insert`] sees to.
    fn put(&self, entry: &Arc<Entry>) {
        let content = entry.key.content;
        let is_empty = |at: &usize| self.marks[*at].load(Relaxed) == EMPTY;
        if let Some(at) = self.places(content).find(is_empty) {
            self.entries[at].store(Some(Arc::clone(entry)));
            self.marks[at].store(mark(content), Release);
            self.len.fetch_add(1, Relaxed);
        }
    }

    /// Empties a place; entries behind it move up, so that no search ends too early.
    fn take_out(&self, at: usize) {
        let mask = self.marks.len() - 1;
        let (mut hole, mut next) = (at, (at + 1) & mask);
        while next != at && self.marks[next].load(Relaxed) != EMPTY {
            let entry = self.entries[next].load_full();
            let home = entry.as_ref().map_or(next, |e| e.key.content as usize);
            let from = |place: usize| next.wrapping_sub(place) & mask;
            if from(home) >= from(hole) {
                let mark = self.marks[next].load(Relaxed);
                self.entries[hole].store(entry);
                self.marks[hole].store(mark, Release);
                hole = next;
            }
            next = (next + 1) & mask;
        }
        // The entry stays behind the mark till another comes: exchanging it costs more.
        self.marks[hole].store(EMPTY, Release);
        self.len.fetch_sub(1, Relaxed);
    }

    /// The same entries in so many places; `None` if there is no memory.
    fn laid_out(&self, places: usize) -> Option<Self> {
        let mut new = Self {
            marks: Vec::new(),
            entries: Vec::new(),
            len: AtomicU32::new(0),
        };
        new.marks.try_reserve_exact(places).ok()?;
        new.entries.try_reserve_exact(places).ok()?;
        new.marks.resize_with(places, || AtomicU32::new(EMPTY));
        new.entries.resize_with(places, ArcSwapOption::empty);
        for (mark, entry) in self.marks.iter().zip(&self.entries) {
            if mark.load(Relaxed) != EMPTY {
                entry.load_full().inspect(|entry| new.put(entry));
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
            let table = Table::default();
            let mut model: HashMap<u64, Arc<Entry>> = HashMap::new();
            // Spread, or all at few places with equal marks.
            let content = |n: u64| match wide {
                true => n.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                false => n / 9 + ((n % 9) << 20),
            };
            for (step, number) in steps {
                let at = content(number);
                let key = Key { hash: 0, content: at };
                let entry = Entry::new(key, (number << 9 | model.len() as u64, 0), (0, 0));
                match (step, model.get(&at).map(Arc::clone)) {
                    (0 | 1, None) => {
                        prop_assert!(table.insert(&entry));
                        model.insert(at, entry);
                    }
                    (1, Some(old)) => {
                        prop_assert!(table.replace(&old, &entry) && !table.replace(&old, &entry));
                        model.insert(at, entry);
                    }
                    (2, Some(old)) => {
                        // Another of the same content takes nothing out.
                        table.remove(&entry);
                        prop_assert!(table.get(at).is_some());
                        table.remove(&old);
                        model.remove(&at);
                    }
                    _ => {}
                }
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

//! Names looked up of late, and whose they are: so that the next lookup need not go into the
//! directory.
//!
//! ```text
//! (directory, name) → one of 64 parts → young names, then old ones
//! ```
//! Only names that are there are stored, and none of more than [`NAME_MAX`] bytes. When the young
//! ones of a part have used up their room they become the old ones, and those that were old are
//! forgotten.
//!
//! Rules: who puts a name in holds the names of its directory, shared or alone; who changes a
//! directory holds them alone and reports it here. So what is found here, by a caller that holds
//! the names, is what the directory says. Forgetting anything at any moment changes no answer.
//! Dropping a directory needs no word: it is empty.
//!
//! Where memory is short the old names go first ([`Shrinker`]).
//!
//! Lock: one a part, a leaf. Cost: one hash of the name and one probe or two.

use std::hash::Hasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hashbrown::HashTable;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use uext4_ondisk::Ino;

use crate::base::memory::Shrinker;

/// Longest name that is stored, in bytes: an entry fills 48 with it.
const NAME_MAX: usize = 39;
/// Parts of the table, a power of two.
const PARTS: usize = 64;
/// Most bytes of all tables.
const BYTES_MAX: usize = 32 << 20;

/// A name and whose it is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    dir: Ino,
    ino: Ino,
    len: u8,
    bytes: [u8; NAME_MAX],
}

impl Entry {
    fn name(&self) -> &[u8] {
        // OK to index: no longer name is made an entry.
        &self.bytes[..usize::from(self.len)]
    }

    fn is(&self, dir: Ino, name: &[u8]) -> bool {
        self.dir == dir && self.name() == name
    }
}

#[derive(Debug, Default)]
struct Part {
    young: HashTable<Entry>,
    old: HashTable<Entry>,
}

/// The names in memory of one file system.
#[derive(Debug)]
pub(crate) struct NameCache {
    parts: [Mutex<Part>; PARTS],
    /// Young names a part has room for.
    most: usize,
    /// Bytes of all tables.
    bytes: AtomicUsize,
    /// The part that reclaim visits next.
    hand: AtomicUsize,
}

fn hash_of(dir: Ino, name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u32(dir.0);
    hasher.write(name);
    hasher.finish()
}

impl NameCache {
    /// An empty cache whose tables take no more than `bytes` bytes, nor than 32 MiB.
    pub(crate) fn new(bytes: usize) -> Self {
        let entries = bytes.min(BYTES_MAX) / (2 * PARTS) / (size_of::<Entry>() + 1);
        // A table's room is a power of two, and an eighth of it stays free.
        let room = entries.checked_ilog2().map_or(0, |log| 1usize << log);
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            most: room / 8 * 7,
            bytes: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    fn part(&self, hash: u64) -> &Mutex<Part> {
        // Bits that the table itself makes the least use of.
        &self.parts[(hash >> 32) as usize % PARTS]
    }

    /// Whose a name is, if that is known.
    pub(crate) fn get(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        if name.len() > NAME_MAX {
            return None;
        }
        let hash = hash_of(dir, name);
        let is_it = |entry: &Entry| entry.is(dir, name);
        let part = self.part(hash).lock();
        let found = part.young.find(hash, is_it);
        Some(found.or_else(|| part.old.find(hash, is_it))?.ino)
    }

    /// Keeps a name, whosever it was before.
    pub(crate) fn put(&self, dir: Ino, name: &[u8], ino: Ino) {
        let mut entry = Entry {
            dir,
            ino,
            len: name.len() as u8,
            bytes: [0; NAME_MAX],
        };
        let Some(bytes) = entry.bytes.get_mut(..name.len()) else {
            return;
        };
        bytes.copy_from_slice(name);
        let hash = hash_of(dir, name);
        let is_it = |entry: &Entry| entry.is(dir, name);
        let part = &mut *self.part(hash).lock();
        if let Some(known) = part.old.find_mut(hash, is_it) {
            known.ino = ino;
            return;
        }
        if let Some(known) = part.young.find_mut(hash, is_it) {
            known.ino = ino;
            return;
        }
        if part.young.len() >= self.most {
            std::mem::swap(&mut part.young, &mut part.old);
            part.young.clear();
        }
        if self.most > 0 {
            let again = |entry: &Entry| hash_of(entry.dir, entry.name());
            let before = part.young.allocation_size();
            part.young.insert_unique(hash, entry, again);
            let grown = part.young.allocation_size() - before;
            if grown > 0 {
                self.bytes.fetch_add(grown, Relaxed);
            }
        }
    }

    /// Forgets a name, which is being taken.
    pub(crate) fn remove(&self, dir: Ino, name: &[u8]) {
        if name.len() > NAME_MAX {
            return;
        }
        let hash = hash_of(dir, name);
        let is_it = |entry: &Entry| entry.is(dir, name);
        let part = &mut *self.part(hash).lock();
        for table in [&mut part.young, &mut part.old] {
            if let Ok(found) = table.find_entry(hash, is_it) {
                found.remove();
                return;
            }
        }
    }
}

impl Shrinker for NameCache {
    fn memory(&self) -> u64 {
        self.bytes.load(Relaxed) as u64
    }

    fn count(&self) -> u64 {
        Shrinker::memory(self)
    }

    fn scan(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        // The old names of all parts first.
        for young in [false, true] {
            for _ in 0..PARTS {
                if freed >= bytes {
                    return freed;
                }
                let at = self.hand.fetch_add(1, Relaxed) % PARTS;
                let part = &mut *self.parts[at].lock();
                let table = if young {
                    &mut part.young
                } else {
                    &mut part.old
                };
                let gone = std::mem::take(table).allocation_size();
                self.bytes.fetch_sub(gone, Relaxed);
                freed += gone as u64;
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(12);

    fn name(i: u32) -> Vec<u8> {
        format!("name-{i}").into_bytes()
    }

    #[test]
    fn what_was_put_is_found_until_it_is_removed() {
        let names = NameCache::new(1 << 20);
        names.put(DIR, b"a", Ino(20));
        names.put(Ino(13), b"a", Ino(21));
        assert_eq!(names.get(DIR, b"a"), Some(Ino(20)));
        assert_eq!(names.get(Ino(13), b"a"), Some(Ino(21)));
        assert_eq!(names.get(DIR, b"b"), None);
        names.put(DIR, b"a", Ino(22));
        assert_eq!(names.get(DIR, b"a"), Some(Ino(22)));
        names.remove(DIR, b"a");
        names.remove(DIR, b"b");
        assert_eq!(names.get(DIR, b"a"), None);
        assert_eq!(names.get(Ino(13), b"a"), Some(Ino(21)));
    }

    #[test]
    fn names_of_every_length_work_and_long_ones_are_not_cached() {
        let names = NameCache::new(1 << 20);
        for len in 0..=255 {
            let name = vec![b'x'; len];
            names.put(DIR, &name, Ino(20));
            assert_eq!(names.get(DIR, &name).is_some(), len <= NAME_MAX);
            names.remove(DIR, &name);
            assert_eq!(names.get(DIR, &name), None);
        }
    }

    #[test]
    fn memory_is_bounded_and_the_youngest_stay() {
        let bytes = 1 << 20;
        let names = NameCache::new(bytes);
        for i in 0..100_000 {
            names.put(DIR, &name(i), Ino(i + 1));
        }
        let entry = size_of::<Entry>() + 1;
        let mut taken = 0;
        for part in &names.parts {
            let part = part.lock();
            taken += [&part.young, &part.old]
                .map(|table| (table.capacity() * 8).div_ceil(7) * entry)
                .iter()
                .sum::<usize>();
        }
        assert!(taken <= bytes, "{taken}");
        let known = |i: &u32| names.get(DIR, &name(*i)).is_some();
        assert!((99_000..100_000).all(|i| known(&i)));
        assert!((0..100_000).filter(known).count() >= bytes / 4 / entry);
        for i in 0..100_000 {
            assert!(names.get(DIR, &name(i)).is_none_or(|ino| ino.0 == i + 1));
        }
    }

    #[test]
    fn the_old_go_first_when_memory_is_short() {
        let names = NameCache::new(1 << 20);
        for i in 0..100_000 {
            names.put(DIR, &name(i), Ino(i + 1));
        }
        let all = Shrinker::memory(&names);
        assert!((1 << 19..=1 << 20).contains(&all), "{all}");
        let freed = names.scan(all / 2);
        assert_eq!(Shrinker::memory(&names), all - freed);
        assert!((all / 2..all / 4 * 3).contains(&freed), "{freed} of {all}");
        // Some part's young ones may just have become old.
        let known = |i: &u32| names.get(DIR, &name(*i)).is_some();
        assert!((99_900..100_000).filter(known).count() > 80);
        names.scan(u64::MAX);
        assert_eq!(Shrinker::memory(&names), 0);
        names.put(DIR, b"a", Ino(20));
        assert_eq!(names.get(DIR, b"a"), Some(Ino(20)));
        assert!(Shrinker::memory(&names) > 0);
    }

    #[test]
    fn without_space_nothing_is_cached() {
        let names = NameCache::new(0);
        names.put(DIR, b"a", Ino(20));
        assert_eq!(names.get(DIR, b"a"), None);
    }
}

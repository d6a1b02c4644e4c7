//! Counts of users, in memory until their owner stores them.
//!
//! A thing's count is on disk. Its first change puts it in here, with what the owner needs to store
//! it (`T`, a buffer that is pinned); later changes are made here. The owner [takes](Counts::drain)
//! all at once, when no thread can change any: a hundred changes of one count, or two that undo
//! each other, become one write or none.
//!
//! A count's lock is that of its part of the table. A user that comes to a thing with users, or
//! goes from one that keeps some, shares the lock and changes the count by compare-and-swap, so
//! that no thread waits for another. A user that may be the last, one that fills a thing or finds
//! it full, and the first change of a count take the lock alone.

use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxHashMap;

use crate::lock::AtomicU32;

/// Parts; a power of two.
const PARTS: usize = 256;

#[derive(Debug)]
struct Count<T> {
    users: AtomicU32,
    owner: T,
}

type Part<T> = FxHashMap<u64, Count<T>>;

/// On cache lines of its own: busy things that came one after the other have neighbouring parts.
#[repr(align(128))]
struct PartLock<T>(RwLock<Part<T>>);

/// The counts that are not as on disk.
pub struct Counts<T> {
    parts: Box<[PartLock<T>]>,
    len: AtomicUsize,
}

impl<T> fmt::Debug for Counts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| PartLock(RwLock::default())).collect(),
            len: AtomicUsize::new(0),
        }
    }
}

impl<T> Counts<T> {
    /// The part of a thing, of `PARTS`: things of one part have one lock.
    pub fn part(thing: u64) -> usize {
        // OK to truncate: the lowest bits are wanted.
        thing as usize % PARTS
    }

    /// Shares the lock of a thing's count, if that is gathered. Others' may be shared with it.
    pub fn share(&self, thing: u64) -> Option<Shared<'_, T>> {
        let part = self.parts[Self::part(thing)].0.read();
        part.contains_key(&thing).then_some(Shared { part, thing })
    }

    /// Takes the lock of a thing's count alone, and with it that of others.
    pub fn lock(&self, thing: u64) -> Locked<'_, T> {
        let part = self.parts[Self::part(thing)].0.write();
        let len = &self.len;
        Locked { part, thing, len }
    }

    /// A thing's users, if that is gathered: the number on disk is an old one then.
    pub fn users(&self, thing: u64) -> Option<u32> {
        self.share(thing).map(|count| count.users())
    }

    /// How many counts are gathered, about.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands out all counts, to be stored, and forgets them. No thread changes one meanwhile; `f`
    /// is called under the count's lock.
    pub fn drain(&self, mut f: impl FnMut(u64, &T, u32)) {
        for part in &self.parts {
            let mut part = part.0.write();
            for (&thing, count) in part.iter() {
                f(thing, &count.owner, count.users.load(Acquire));
            }
            // Free the table as well, so that one busy moment does not keep it large.
            self.len.fetch_sub(part.len(), Relaxed);
            *part = Part::default();
        }
    }
}

/// The lock of a count that is in here, shared with other users that come and go.
pub struct Shared<'a, T> {
    part: RwLockReadGuard<'a, Part<T>>,
    thing: u64,
}

impl<T> Shared<'_, T> {
    fn count(&self) -> Option<&AtomicU32> {
        self.part.get(&self.thing).map(|count| &count.users)
    }

    /// Users at this moment; others come and go meanwhile, but a thing with users does not lose the
    /// last.
    pub fn users(&self) -> u32 {
        self.count().map_or(0, |users| users.load(Acquire))
    }

    /// One user more of a thing that has some, `most` at most: how many there are now. `None`: as
    /// many as that there are already.
    pub fn come(&self, most: u32) -> Option<u32> {
        self.change(|users| (users > 0 && users < most).then(|| users + 1))
    }

    /// One user less of a thing that has others, and had less than `full`: how many are left.
    /// `None`: that is not so, and has to be looked at under [`Counts::lock`].
    pub fn leave(&self, full: u32) -> Option<u32> {
        self.change(|users| (users > 1 && users < full).then(|| users - 1))
    }

    fn change(&self, f: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let count = self.count()?;
        let was = count.fetch_update(AcqRel, Acquire, &f).ok()?;
        f(was)
    }
}

/// The lock of a count, alone.
pub struct Locked<'a, T> {
    part: RwLockWriteGuard<'a, Part<T>>,
    thing: u64,
    len: &'a AtomicUsize,
}

impl<T> Locked<'_, T> {
    /// Users, if that is gathered; else what is on disk is true.
    pub fn users(&self) -> Option<u32> {
        self.part
            .get(&self.thing)
            .map(|count| count.users.load(Acquire))
    }

    /// Users from now on. `true`: this is the first change since counts were last taken.
    pub fn set(&mut self, users: u32, owner: impl FnOnce() -> T) -> bool {
        match self.part.entry(self.thing) {
            Entry::Occupied(mut count) => {
                count.get_mut().users = AtomicU32::new(users);
                false
            }
            Entry::Vacant(free) => {
                self.len.fetch_add(1, Relaxed);
                free.insert(Count {
                    users: AtomicU32::new(users),
                    owner: owner(),
                });
                true
            }
        }
    }

    /// The thing is freed: its count is not written any more.
    pub fn forget(mut self) {
        if self.part.remove(&self.thing).is_some() {
            self.len.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_add_up_and_are_taken_once() {
        let counts = Counts::default();
        assert!(counts.share(7).is_none());
        let mut count = counts.lock(7);
        assert_eq!(count.users(), None);
        assert!(count.set(2, || "seven"));
        assert!(!count.set(3, || "not asked for"));
        drop(count);
        let count = counts.share(7).unwrap();
        assert_eq!((count.come(4), count.come(4)), (Some(4), None));
        // Full things, and the last user, need the lock alone.
        assert_eq!((count.leave(4), count.leave(5)), (None, Some(3)));
        assert_eq!(
            (count.leave(5), count.leave(5), count.leave(5)),
            (Some(2), Some(1), None)
        );
        drop(count);
        counts.lock(8).set(5, || "eight");
        counts.lock(8 + PARTS as u64).set(6, || "its neighbour");
        counts.lock(8).forget();
        assert_eq!((counts.users(7), counts.users(8)), (Some(1), None));
        assert_eq!((counts.len(), counts.is_empty()), (2, false));
        let mut taken = Vec::new();
        counts.drain(|thing, owner, users| taken.push((thing, *owner, users)));
        taken.sort_unstable();
        assert_eq!(
            taken,
            [(7, "seven", 1), (8 + PARTS as u64, "its neighbour", 6)]
        );
        counts.drain(|thing, _, _| panic!("{thing} again"));
        assert!(counts.is_empty());
    }
}

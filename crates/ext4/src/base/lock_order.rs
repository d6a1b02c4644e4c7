//! The order of the engine's locks as data, checked in debug builds: a thread that takes a lock
//! of an outer rank while it holds one of an inner rank panics there, not once in a while in a
//! deadlock.
//!
//! `docs/locking.md` says what each lock protects.

use std::ops::{Deref, DerefMut};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Ranks, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// One move of a name between directories at a time.
    Rename,
    /// Names of a directory, or contents of a file: several at once, by number.
    Names,
    /// A journal handle: one a thread.
    Handle,
    /// Fields and map of an inode: several at once, where their names are locked.
    Inode,
}

impl Rank {
    /// Whether a thread may hold several of this rank.
    fn repeats(self) -> bool {
        matches!(self, Self::Names | Self::Inode)
    }
}

/// A lock, or what acts like one, that this thread holds.
#[derive(Debug)]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
}

#[cfg(debug_assertions)]
thread_local! {
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Held {
    /// Notes a lock before it is waited for.
    #[track_caller]
    pub(crate) fn new(rank: Rank) -> Self {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| {
            let inner = held.iter().copied().max();
            let fine = inner.is_none_or(|inner| inner < rank || inner == rank && rank.repeats());
            assert!(fine, "{rank:?} is taken while {held:?} are held");
            held.push(rank);
        });
        #[cfg(not(debug_assertions))]
        let _ = rank.repeats();
        Self {
            #[cfg(debug_assertions)]
            rank,
        }
    }
}

impl Held {
    /// Notes a lock that was not waited for.
    fn tried(rank: Rank) -> Self {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| held.push(rank));
        #[cfg(not(debug_assertions))]
        let _ = rank;
        Self {
            #[cfg(debug_assertions)]
            rank,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        HELD.with_borrow_mut(|held| {
            let at = held.iter().rposition(|rank| *rank == self.rank);
            if let Some(at) = at {
                held.remove(at);
            }
        });
    }
}

/// A read-write lock of some rank.
#[derive(Debug)]
pub(crate) struct RankedLock<T> {
    rank: Rank,
    lock: RwLock<T>,
}

/// What shares a [`RankedLock`].
#[derive(Debug)]
pub(crate) struct Shared<'a, T> {
    guard: RwLockReadGuard<'a, T>,
    _held: Held,
}

/// What has a [`RankedLock`] alone.
#[derive(Debug)]
pub(crate) struct Alone<'a, T> {
    guard: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RankedLock<T> {
    /// Over a value.
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self {
            rank,
            lock: RwLock::new(value),
        }
    }

    /// Shares it with other readers.
    #[track_caller]
    pub(crate) fn read(&self) -> Shared<'_, T> {
        let _held = Held::new(self.rank);
        Shared {
            guard: self.lock.read(),
            _held,
        }
    }

    /// Shares it, if no thread has it alone: that waits for no thread, and may be tried under any
    /// lock.
    pub(crate) fn try_read(&self) -> Option<Shared<'_, T>> {
        let guard = self.lock.try_read()?;
        let _held = Held::tried(self.rank);
        Some(Shared { guard, _held })
    }

    /// Takes it alone, if no thread has it: that waits for nothing, and may be tried under any
    /// lock.
    pub(crate) fn try_write(&self) -> Option<Alone<'_, T>> {
        let guard = self.lock.try_write()?;
        let _held = Held::tried(self.rank);
        Some(Alone { guard, _held })
    }

    /// Takes it alone.
    #[track_caller]
    pub(crate) fn write(&self) -> Alone<'_, T> {
        let _held = Held::new(self.rank);
        Alone {
            guard: self.lock.write(),
            _held,
        }
    }
}

impl<T> Deref for Shared<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Deref for Alone<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Alone<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_preserved() {
        let names = [Rank::Names, Rank::Names].map(|rank| RankedLock::new(rank, ()));
        let inode = RankedLock::new(Rank::Inode, 5);
        let _first = names[0].write();
        let _second = names[1].write();
        let handle = Held::new(Rank::Handle);
        *inode.write() += 1;
        assert_eq!(*inode.read(), 6);
        drop(handle);
        let _again = Held::new(Rank::Handle);
    }

    #[test]
    #[should_panic(expected = "Handle is taken while [Inode] are held")]
    fn no_handle_is_started_under_an_inode() {
        let inode = RankedLock::new(Rank::Inode, ());
        let _inode = inode.read();
        let _handle = Held::new(Rank::Handle);
    }

    #[test]
    #[should_panic(expected = "Handle is taken while [Handle] are held")]
    fn a_thread_has_one_handle() {
        let _first = Held::new(Rank::Handle);
        let _second = Held::new(Rank::Handle);
    }
}

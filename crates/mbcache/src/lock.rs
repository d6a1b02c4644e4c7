//! A lock that counts how often it is taken, waited for and handed from one thread to another; and
//! the atomics that threads share, which a model checker may schedule instead.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32 as Word, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(feature = "shuttle")]
use shuttle::thread_local;
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::stats::{Counter, Counters};

/// The next thread's number; 0 is none.
static NEXT: Word = Word::new(1);

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The number of this thread.
fn thread_number() -> u32 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Relaxed).max(1));
        }
        number.get()
    })
}

/// A lock that counts.
#[derive(Debug, Default)]
pub(crate) struct Lock<T> {
    inner: Mutex<T>,
    /// The thread that had it last.
    last: Word,
}

impl<T> Lock<T> {
    /// Of what no thread has locked yet.
    pub(crate) fn new(of: T) -> Self {
        Self {
            inner: Mutex::new(of),
            last: Word::new(0),
        }
    }

    /// Takes the lock.
    pub(crate) fn lock(&self, counters: &Counters) -> MutexGuard<'_, T> {
        counters.one(Counter::ListLocks);
        let guard = self.inner.try_lock().unwrap_or_else(|| {
            counters.one(Counter::LockContended);
            self.inner.lock()
        });
        let me = thread_number();
        let last = self.last.swap(me, Relaxed);
        if last != me && last != 0 {
            counters.one(Counter::LockHandoffs);
        }
        guard
    }
}

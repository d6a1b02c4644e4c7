//! Locks that count how often they are taken, waited for and handed from one thread to another, as
//! those of the product do: so a set by real threads pays the same for its figures.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::stats::{Counter, Counters};

/// The next thread's number; 0 is none.
static NEXT: AtomicU32 = AtomicU32::new(1);

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
pub(super) struct Lock<T> {
    inner: Mutex<T>,
    /// The thread that had it last.
    last: AtomicU32,
}

impl<T> Lock<T> {
    /// Takes the lock; it is one of those that `kind` counts.
    pub(super) fn lock(&self, counters: &Counters, kind: Counter) -> MutexGuard<'_, T> {
        counters.one(kind);
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

//! Threads that wait until something may be so, and are all woken when it may.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};

use parking_lot::Mutex;
#[cfg(feature = "shuttle")]
use shuttle::thread::{self, Thread};
#[cfg(not(feature = "shuttle"))]
use std::thread::{self, Thread};

use crate::stats::{Counter, Counters};

/// A queue of sleeping threads. Its lock comes before the lock of an entry, and after no other.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    sleepers: Mutex<Vec<Thread>>,
    /// Threads that are about to sleep, or do.
    waiting: AtomicUsize,
}

impl WaitQueue {
    /// Returns once `attempt` has said yes. It is asked at first, and again whenever the queue is woken;
    /// it may lock an entry and nothing else.
    pub(crate) fn wait_until(&self, counters: &Counters, mut attempt: impl FnMut() -> bool) {
        if attempt() {
            return;
        }
        self.waiting.fetch_add(1, SeqCst);
        fence(SeqCst);
        let mut woken = false;
        loop {
            let mut sleepers = self.sleepers.lock();
            if attempt() {
                self.waiting.fetch_sub(1, SeqCst);
                return;
            }
            if woken {
                counters.one(Counter::WakeupsWasted);
            }
            // Whoever makes it so from here on finds this thread in the queue.
            sleepers.push(thread::current());
            drop(sleepers);
            counters.one(Counter::Sleeps);
            thread::park();
            woken = true;
        }
    }

    /// Wakes everybody. What they wait for has changed before; no lock of an entry is held.
    pub(crate) fn wake_all(&self, counters: &Counters) {
        // Either this thread sees who waits, or he sees what has changed.
        fence(SeqCst);
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let sleepers = std::mem::take(&mut *self.sleepers.lock());
        counters.add(Counter::Wakeups, sleepers.len() as u64);
        sleepers.iter().for_each(Thread::unpark);
    }
}

//! Threads that wait until something may be so, and are all woken when it may.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};

use parking_lot::Mutex;
#[cfg(feature = "shuttle")]
use shuttle::thread::{self, Thread};
#[cfg(not(feature = "shuttle"))]
use std::thread::{self, Thread};

use crate::stats::{Counter, Counters};

/// A queue of sleeping threads. Its lock is a leaf.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    sleepers: Mutex<Vec<Thread>>,
    /// Threads that are about to sleep, or do.
    waiting: AtomicUsize,
}

impl WaitQueue {
    /// Returns once `is_so`. That is looked at first, and again whenever the queue is woken; it
    /// takes no lock.
    pub(crate) fn wait_until(&self, counters: &Counters, is_so: impl Fn() -> bool) {
        if is_so() {
            return;
        }
        self.waiting.fetch_add(1, SeqCst);
        fence(SeqCst);
        let mut woken = false;
        loop {
            let mut sleepers = self.sleepers.lock();
            if is_so() {
                self.waiting.fetch_sub(1, SeqCst);
                return;
            }
            if woken {
                counters.one(Counter::WakeupsWasted);
            }
            // A thread that makes it so from here on finds this one in the queue.
            sleepers.push(thread::current());
            drop(sleepers);
            counters.one(Counter::Sleeps);
            thread::park();
            woken = true;
        }
    }

    /// Wakes all threads. What they wait for has changed before.
    pub(crate) fn wake_all(&self, counters: &Counters) {
        // Either this thread sees that another waits, or that one sees what has changed.
        fence(SeqCst);
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let sleepers = std::mem::take(&mut *self.sleepers.lock());
        counters.add(Counter::Wakeups, sleepers.len() as u64);
        sleepers.iter().for_each(Thread::unpark);
    }
}

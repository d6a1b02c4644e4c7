//! Threads that wait until something may be so, and are all woken when it may.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};

use parking_lot::Mutex;

use crate::thread::{self, Thread};

/// A queue of sleeping threads. Its lock comes before the lock of an entry, and after no other.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    sleepers: Mutex<Vec<Thread>>,
    /// Threads that are about to sleep, or do.
    waiting: AtomicUsize,
}

impl WaitQueue {
    /// Returns once `attempt` has said yes. It is asked at first, and again whenever the queue is
    /// woken; it may lock an entry and nothing else.
    pub(super) fn wait_until(&self, mut attempt: impl FnMut() -> bool) {
        if attempt() {
            return;
        }
        self.waiting.fetch_add(1, SeqCst);
        fence(SeqCst);
        loop {
            let mut sleepers = self.sleepers.lock();
            if attempt() {
                self.waiting.fetch_sub(1, SeqCst);
                return;
            }
            // A thread that makes it so from here on finds this one in the queue.
            sleepers.push(thread::current());
            drop(sleepers);
            thread::park();
        }
    }

    /// Wakes all threads. What they wait for has changed before; no lock of an entry is held.
    pub(super) fn wake_all(&self) {
        // Either this thread sees that another waits, or that one sees what has changed.
        fence(SeqCst);
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let sleepers = std::mem::take(&mut *self.sleepers.lock());
        sleepers.iter().for_each(Thread::unpark);
    }
}

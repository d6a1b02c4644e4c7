//! Blocks that are being allocated for promised data: until the data are written and mapped they are
//! no longer free, and promised still.
//!
//! Counting them twice refuses nobody a block that is not there, and would refuse some that are: a
//! flusher may have thousands of them under way. So who is refused a promise waits for those flushers
//! and asks again. They need nothing of who waits: it holds no handle and no inode's lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// One wait, at most: a thread that ends meanwhile wakes all who wait.
const WAIT: Duration = Duration::from_millis(50);

/// The allocations under way. Lock: a leaf.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    begun: AtomicU64,
    ended: AtomicU64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    over: Condvar,
}

/// One of them; it ends where this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a Taking);

impl Taking {
    /// An allocation begins.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.begun.fetch_add(1, SeqCst);
        UnderWay(self)
    }

    /// Waits until as many have ended as had begun; false, at once, if none was under way.
    pub(crate) fn wait(&self) -> bool {
        let begun = self.begun.load(SeqCst);
        if self.ended.load(SeqCst) >= begun {
            return false;
        }
        self.waiting.fetch_add(1, SeqCst);
        let mut guard = self.lock.lock();
        while self.ended.load(SeqCst) < begun {
            self.over.wait_for(&mut guard, WAIT);
        }
        drop(guard);
        self.waiting.fetch_sub(1, SeqCst);
        true
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
        if self.0.waiting.load(SeqCst) > 0 {
            drop(self.0.lock.lock());
            self.0.over.notify_all();
        }
    }
}

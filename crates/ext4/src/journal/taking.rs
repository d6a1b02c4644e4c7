//! Blocks that are being allocated for reserved data: until the data are written and mapped they
//! are no longer free, and reserved still.
//!
//! They count twice then, which is safe, and would refuse writers blocks that are there: a
//! flusher may have thousands of them under way. So a writer that is refused waits until one of
//! those flushers has ended, and asks again. The flushers need nothing that the writer holds, as
//! it has no handle and no inode's lock.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// How many allocations began and ended.
#[derive(Debug, Default)]
struct Counts {
    begun: u64,
    ended: u64,
}

/// The allocations under way. Lock: a leaf; an allocation takes it twice, in addition to writing
/// its data.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    counts: Mutex<Counts>,
    one_ended: Condvar,
}

/// One of them; it ends where this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a Taking);

impl Taking {
    /// An allocation begins.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.counts.lock().begun += 1;
        UnderWay(self)
    }

    /// Waits until an allocation ends that is under way; false if none is, or `until` has come.
    pub(crate) fn wait(&self, until: Instant) -> bool {
        let counts = &mut self.counts.lock();
        let before = counts.ended;
        if counts.begun == before {
            return false;
        }
        while counts.ended == before {
            if self.one_ended.wait_until(counts, until).timed_out() {
                return false;
            }
        }
        true
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().ended += 1;
        self.0.one_ended.notify_all();
    }
}

//! Allocations in progress for reserved data: until the data is written and mapped, the blocks
//! are no longer free but still reserved.
//!
//! Such blocks count twice, which is safe, but could refuse blocks to writers although they
//! exist: a flusher may have thousands of them in progress. So a writer that is refused waits
//! until one of these flushers has ended, and tries again. The flushers need nothing that the
//! writer holds, as it has no handle and no inode lock.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// The number of allocations begun and ended.
#[derive(Debug, Default)]
struct Counts {
    begun: u64,
    ended: u64,
}

/// The allocations in progress. Lock: a leaf; an allocation takes it twice, in addition to
/// writing its data.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    counts: Mutex<Counts>,
    one_ended: Condvar,
}

/// An allocation in progress; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a Taking);

impl Taking {
    /// Begins an allocation.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.counts.lock().begun += 1;
        UnderWay(self)
    }

    /// Waits until an allocation in progress ends; false if there is none, or if `until` has
    /// passed.
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

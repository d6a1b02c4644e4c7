//! Counters of a cache.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::throttle::BdiStats;

/// What a cache holds and did since it was made. All in bytes unless said otherwise, where the
/// kernel counts pages. The numbers are read one after the other while threads work on, so sums
/// may be off by what happens meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Held in folios and in snapshots being written.
    pub nr_file_pages: u64,
    /// Ready for new folios.
    pub nr_free: u64,
    /// Dirty now.
    pub nr_dirty: u64,
    /// Being written now.
    pub nr_writeback: u64,
    /// Ever made dirty, each time anew.
    pub nr_dirtied: u64,
    /// Ever written.
    pub nr_written: u64,
    /// Above this, writers wait.
    pub nr_dirty_threshold: u64,
    /// Above this, flushers write whatever its age.
    pub nr_dirty_background_threshold: u64,
    /// Read from the files' mappings.
    pub nr_read: u64,
    /// Requests in which that was read.
    pub read_requests: u64,
    /// Requests in which `nr_written` was written.
    pub write_requests: u64,
    /// Evicted by reclaim.
    pub nr_reclaimed: u64,
    /// Times a writer had to wait for flushers, or to write itself.
    pub throttled: u64,
    /// Runs that could not be written, each attempt counted.
    pub write_errors: u64,
    /// Given up after too many failures, or dropped with their file.
    pub nr_lost: u64,
}

/// What throttling knows of a device, and how many files wait for being written. Its text is that
/// of the kernel's `/sys/kernel/debug/bdi/*/stats`, in kB and kBps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Pages and rates.
    pub bdi: BdiStats,
    /// Dirty files no thread is at.
    pub b_dirty: u64,
    /// Files that flushers have chosen or write.
    pub b_io: u64,
    /// Files that were not finished when their turn was over.
    pub b_more_io: u64,
    /// Inodes of which only times have changed: those are the owner's, so none.
    pub b_dirty_time: u64,
}

impl DeviceStats {
    /// Files by the list they are in, by the kernel's names. The other lines are
    /// [`BdiStats::lines`].
    #[must_use]
    pub fn queues(&self) -> [(&'static str, u64); 4] {
        [
            ("b_dirty", self.b_dirty),
            ("b_io", self.b_io),
            ("b_more_io", self.b_more_io),
            ("b_dirty_time", self.b_dirty_time),
        ]
    }
}

impl fmt::Display for DeviceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bdi.fmt(f)?;
        for (name, files) in self.queues() {
            let name = format_args!("{name}:").to_string();
            writeln!(f, "{name:<20}{files:>12}")?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) dirty: AtomicU64,
    pub(crate) writeback: AtomicU64,
    pub(crate) dirtied: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) read_requests: AtomicU64,
    pub(crate) write_requests: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) lost: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

pub(crate) fn sub(counter: &AtomicU64, count: u64) {
    counter.fetch_sub(count, Relaxed);
}

impl Counters {
    /// Dirty and under writeback: what the limits are about.
    pub(crate) fn unwritten(&self) -> u64 {
        self.dirty.load(Relaxed) + self.writeback.load(Relaxed)
    }
}

//! Giving back blocks that transactions freed, once that is durable; with `discard`, the device
//! is notified of them before any other thread is given them.
//!
//! ```text
//! freed under a handle ──▶ held ──▶ commit is durable ──▶ due ──▶ discarded ──▶ allocator
//!                                   (under the log's lock)   (under no lock of the journal)
//! ```
//! A caller that waits for a commit does not wait for what follows from it, of which there may be
//! a million blocks. A slow device keeps no thread from committing: the thread that does what is
//! due is another one, if threads were started, else the one that committed, after it has let go
//! of the journal. A caller that needs the space waits for it ([`Discards::settle`]).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_jbd2::Journal;
use uext4_mballoc::Run;
use uext4_ondisk::Pblk;

use crate::base::background::Waker;
use crate::base::disk::Disk;

/// What is still to be given back.
#[derive(Debug)]
pub(crate) struct Discards {
    /// The device is notified, as long as it takes that.
    is_on: AtomicBool,
    /// Freed by transactions that are durable.
    due: Mutex<Vec<Run>>,
    /// How many these are, for a snapshot.
    count: AtomicUsize,
    /// Held while the device is notified: outside it are `Names` and flush locks, no handle and
    /// no lock of the journal; under it are I/O and leaves.
    reporting: Mutex<()>,
    /// The thread that does it, if there is one.
    waker: Mutex<Option<Waker>>,
}

impl Discards {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on: AtomicBool::new(is_on),
            due: Mutex::default(),
            count: AtomicUsize::new(0),
            reporting: Mutex::default(),
            waker: Mutex::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// From now on a thread does what is due, or with `None` who commits.
    pub(crate) fn set_waker(&self, waker: Option<Waker>) {
        *self.waker.lock() = waker;
    }

    /// Runs that are free on the medium as well are due.
    pub(crate) fn add(&self, runs: Vec<Run>) {
        let mut due = self.due.lock();
        due.extend(runs);
        self.count.store(due.len(), Relaxed);
    }

    /// A commit has let go of its locks: sees to it that what is due is done.
    /// That is done by another thread, or by this one with `settle`.
    pub(crate) fn committed(&self, settle: impl FnOnce()) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let waker = self.waker.lock().clone();
        match waker {
            Some(waker) => waker.wake(),
            None => settle(),
        }
    }

    /// Notifies the device of all that is due, and lets others have it with `give`. Waits for a
    /// caller that is at it. No handle may be held.
    pub(crate) fn settle(&self, disk: &Disk, journal: &Journal, give: impl FnOnce(&[Run])) {
        let _guard = self.reporting.lock();
        let due = {
            let mut due = self.due.lock();
            self.count.store(0, Relaxed);
            std::mem::take(&mut *due)
        };
        if due.is_empty() {
            return;
        }
        // Without a journal the medium may still have maps that show them. One that fails is
        // reported to any thread that syncs next.
        let is_durable = || journal.has_log() || journal.flush_device().is_ok();
        if self.is_on() && is_durable() {
            self.discard_runs(disk, &due);
        }
        give(&due);
    }

    /// Notifies the device of blocks that no thread uses; neighbours in one call.
    fn discard_runs(&self, disk: &Disk, runs: &[Run]) {
        let mut ranges: Vec<(u64, u64)> =
            runs.iter().map(|run| (run.start.0, run.end().0)).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let joins = next.0 == last.1;
            if joins {
                last.1 = next.1;
            }
            joins
        });
        for (start, end) in ranges {
            let len = (end - start) * disk.block_len() as u64;
            let reported = disk.device().trim(disk.byte_offset(Pblk(start)), len);
            // It is only advice: a device that does not take it is not asked again.
            if !reported.unwrap_or(false) {
                self.is_on.store(false, Relaxed);
                return;
            }
        }
    }
}

//! What is taken for a file beyond its need, and preallocated for what it needs next.
//!
//! ```text
//! file        … 40 ┆ 48                64 ┆ …
//! window           [──────────────────)          asked for 40..48: a run of 24 blocks was taken
//! handed out       [████)                        the caller marks these
//! kept                  [░░░░░░░░░░░░░)          block 48 of the file will lie behind block 47
//! ```
//! Two kinds are preallocated. Those of a *file* map its blocks: any thread that asks for block
//! 48 is given the one behind block 47, however many files grow at once ([`files`]). Those of a
//! *locality* are for small files, whichever comes next on this thread, so that these lie side by
//! side ([`locality`]).
//!
//! What is preallocated is used in the buddies and free in the bitmaps: only memory knows of it,
//! nothing is lost with the power, and no check finds it. It counts as free
//! ([`crate::Allocator::free_blocks`]), for any thread that is refused otherwise gets it:
//! [`crate::Allocator::discard_all`] takes it back from all files before an allocation fails. So
//! what is preallocated is never missing where it was reserved for a writer.
//!
//! Each part preallocated lies in one group and holds one mark of it, as a run does that was
//! taken and is not marked yet: the group stays loaded.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};

use crate::free_space::FreeSpace;
use crate::{Run, trace};

mod files;
mod locality;

use files::Registry;
pub(crate) use files::{FileParts, Part};
use locality::Localities;
pub(crate) use locality::Small;

/// All that is preallocated for the files of one file system.
#[derive(Debug, Default)]
pub(crate) struct Preallocations {
    pub(crate) files: Registry,
    pub(crate) localities: Localities,
    /// Blocks preallocated now.
    kept: AtomicU64,
    /// Requests that are about to be refused: nothing more is preallocated meanwhile.
    squeezed: AtomicU32,
    /// Requests that have taken more than they need, and not preallocated it yet.
    flights: Mutex<u32>,
    landed: Condvar,
    /// For threads that wait until no request is about to be refused.
    eased: Condvar,
}

/// How much is preallocated for files; [`crate::Stats`] report how much was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreallocationStats {
    /// Blocks preallocated now: used in the buddies, free in the bitmaps.
    pub kept: u64,
    /// Files that any are preallocated for.
    pub files: u64,
}

/// A request that takes more than it needs is under way.
pub(crate) struct Flight<'a>(&'a Preallocations);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut flights = self.0.flights.lock();
        *flights -= 1;
        if *flights == 0 {
            self.0.landed.notify_all();
        }
    }
}

impl Preallocations {
    /// To be held from before a window is taken until what is left of it is preallocated. `None`
    /// if nothing may be preallocated now.
    pub(crate) fn start(&self) -> Option<Flight<'_>> {
        let mut flights = self.flights.lock();
        (self.squeezed.load(Relaxed) == 0).then(|| {
            *flights += 1;
            Flight(self)
        })
    }

    /// The same, but waits until something may be preallocated.
    pub(crate) fn start_when_eased(&self) -> Flight<'_> {
        let mut flights = self.flights.lock();
        while self.squeezed.load(Relaxed) > 0 {
            self.eased.wait(&mut flights);
        }
        *flights += 1;
        Flight(self)
    }

    /// Preallocated blocks are handed out.
    fn used(&self, blocks: u32) {
        self.kept.fetch_sub(blocks.into(), Relaxed);
    }

    /// How much is preallocated now.
    pub(crate) fn stats(&self) -> PreallocationStats {
        PreallocationStats {
            kept: self.kept.load(Relaxed),
            files: self.files.len() as u64,
        }
    }

    /// What is preallocated now, in no order.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs = self.localities.runs();
        for parts in self.files.all() {
            runs.extend(parts.runs());
        }
        runs
    }

    /// Gives back all that is preallocated, because `needed` blocks are. Returns how many blocks
    /// that were.
    pub(crate) fn discard_for(&self, space: &FreeSpace, needed: u32) -> u64 {
        trace::discard_all(&space.groups, needed);
        let mut blocks = 0;
        for parts in self.files.all() {
            blocks += parts.discard(space, self);
        }
        blocks + self.localities.discard(space, self)
    }

    /// Blocks are prevented from now on.
    fn note_preallocated(&self, space: &FreeSpace, blocks: u32) {
        self.kept.fetch_add(blocks.into(), Relaxed);
        let counters = &space.counters;
        counters.add(&counters.preallocated, blocks.into());
    }

    /// Runs `f` while nothing more is preallocated, and what was about to be is preallocated
    /// already.
    pub(crate) fn squeezed<R>(&self, f: impl FnOnce() -> R) -> R {
        self.squeezed.fetch_add(1, Relaxed);
        let mut flights = self.flights.lock();
        while *flights > 0 {
            self.landed.wait(&mut flights);
        }
        drop(flights);
        let result = f();
        // Under the lock, or a thread that is about to wait would not be woken.
        let flights = self.flights.lock();
        self.squeezed.fetch_sub(1, Relaxed);
        drop(flights);
        self.eased.notify_all();
        result
    }

    /// Gives parts back that were preallocated. Returns how many blocks that were.
    fn give_back(&self, space: &FreeSpace, runs: &[Run]) -> u64 {
        let mut blocks = 0;
        for run in runs {
            space.release(*run);
            blocks += u64::from(run.len);
        }
        self.kept.fetch_sub(blocks, Relaxed);
        let counters = &space.counters;
        counters.add(&counters.discarded, blocks);
        blocks
    }
}

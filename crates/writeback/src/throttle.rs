//! Dirty throttling: how long a writer waits, so that no more is dirty than memory bears.
//!
//! # Why
//!
//! A writer that copies into memory is far faster than any device. Left alone it fills memory with
//! dirty pages, and then everything waits for the device, even a read that only needs a free page.
//! So a limit is set on what may be dirty or under writeback, and near it writers are slowed down
//! to what the device writes. The question of this module is how, and at what cost in wake-ups,
//! fairness and dirty pages above the limit.
//!
//! # The design
//!
//! A controller estimates what the device writes a second and how much of it writers may dirty; a
//! cell rate clock for each writer paces it at its fair share of that; and a page becomes dirty
//! only with a *credit*, of which there are as many as the limit allows. So a writer sleeps in few,
//! long pauses, a sudden start of a thousand writers exceeds nothing, and time that a writer spends
//! thinking is credited to it. `cell_rate.rs` opens with the details.
//!
//! # The equation
//!
//! ```text
//!            background    freerun     setpoint      limit
//!  dirty ───────┼─────────────┼────────────┼────────────┼──▶   limit 20 %, background 10 %
//!    nothing    │  flushers   │  writers are paced:     │      freerun = (limit + background) / 2
//!   is written  │   write     │  Σ rates ≈ bandwidth    │none  setpoint = (limit + freerun) / 2
//!
//!  d dirty / dt  =  Σ what writers dirty  −  what the device writes   held at 0
//!  pause         =  pages dirtied / the writer's rate  −  time it was idle since its last pause
//! ```
//! A device has the part of the limit that it had of all completions lately ([`Bdi::part_of`]), so
//! that a slow one cannot hold the memory of a fast one; `min_ratio` and `max_ratio` bound it.
//!
//! # The seam
//!
//! Another design is an implementation of [`Policy`], one object for each device, made by a
//! function [`NewPolicy`] that is given to [`Domain::with_policy`] or
//! [`crate::DirtyLimits::with_policy`]. What its devices have in common it stores in the domain
//! ([`Domain::shared`]), what it knows of a writer in that writer's [`Task`]
//! ([`Task::with_state`]). The writer that does the I/O itself (Linux 2.6.36), the pauses of the
//! mailing-list thread of November 2010 and the rates of today's kernel are in `lab/policies`, with
//! the tests that any design must pass.
//!
//! # How it is called
//!
//! ```text
//! writer                                       flusher
//!   n = allowance(task), or less                writeback_started(n)
//!   loop while admit(task, n) != Go               … the device …
//!     Pause, Await: sleep; Failed: error        completed(n, outcome)
//!   n pages become dirty
//!   verdict = dirtied(task, n)                  over_background(), chunk(): how much
//!   loop while verdict != Go
//!     Pause, Await: sleep; Write: write; Failed: error
//!     verdict = resumed(task, written)
//! ```
//! For a writer that is cancelled, or ends, [`Bdi::exited`] is called and nothing else. A verdict
//! is a value: a library call sleeps so long, a server answers that much later and blocks no
//! thread.
//!
//! # Units
//!
//! Pages of 4096 bytes, whatever the file system's blocks are; the cache counts bytes and converts.
//! Rates are pages a second. Time is that of one monotonic clock, given with every call; no policy
//! sleeps, reads a clock or draws lots, so a simulation in virtual time runs the very code that
//! threads run. [`Tunables`] have the kernel's names and units. Pauses are at most [`MAX_PAUSE`].
//!
//! # Failure
//!
//! A device that completes nothing for `wb_stall_ms`, and reports no part of its runs either
//! ([`Bdi::progressed`]), while writers wait for it fails those that wait, at that moment. Time
//! in which no writer looked, for the process was stopped, does not count. Pages that could not
//! be written are dirty again and stay counted. A device that is dropped takes its pages out of
//! all sums, and the other devices of the [`Domain`] go on.
//!
//! # Locks
//!
//! Counters are atomics. The few locks (a device's share, an estimate, the active writers) are
//! leaves, held for some instructions; nothing is called under them, so any call may be made under
//! any lock. A task belongs to one thread at a time.
//!
//! # Cost
//!
//! Between two looks of the policy a writer costs a handful of atomic additions a call, not a page,
//! and one more for 32 pages: its credits. A look reads counters and computes some quotients.
//! Estimates are made by the first caller after they are due, never by two. What it costs a system
//! is its wake-ups, which the lab counts.
//!
//! # Left out
//!
//! Control groups (one domain a cache, or one for several), laptop mode, a grace for loop devices.
//! Dirty metadata lies in the journal and is not counted. How files are chosen for writing is the
//! flusher's.

mod bdi;
mod cell_rate;
mod credits;
mod domain;
mod pacing;
mod proportion;
mod stall;
mod stats;
mod task;
mod tunables;

use std::fmt;
use std::time::Duration;

pub use bdi::Bdi;
pub use domain::Domain;
pub use proportion::Share;
pub use stats::BdiStats;
pub use task::{Class, Task};
pub use tunables::{BDI_TUNABLES, DOMAIN_TUNABLES, Tunables};
pub use uext4_tunables::TunableError;

/// Bytes of a page, in which all counts are here.
pub const PAGE_SIZE: u64 = 4096;
/// Most pages a writer dirties between two calls, where nothing asks for less: 4 MiB.
pub const PAGES_MAX: u64 = 1024;
/// Pages a second a device is taken to write before anything is known: 100 MiB/s, as in the kernel.
pub const BANDWIDTH_START: u64 = 25_600;
/// The unit of the kernel's timers; HZ is 1000 here.
const JIFFY: Duration = Duration::from_millis(1);

/// What a writer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Go,
    /// It sleeps so long and asks again; a front end may answer its client that much later instead.
    Pause(Duration),
    /// It writes so many pages of the device itself, and then says so. The shipped design never
    /// orders this: it is for designs in which writers take part in the I/O.
    Write {
        /// Pages, at least 1.
        pages: u64,
    },
    /// It sleeps so long, or less if something is completed before, and asks again.
    Await {
        /// The longest.
        at_most: Duration,
    },
    /// The device makes no progress: the write fails with an I/O error. Only [`Bdi`] says so, no
    /// policy.
    Failed,
}

/// How much a flusher takes at once, in pages, both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Of one file, before it is the next one's turn.
    pub file: u64,
    /// Of all files, before it looks again whether there is still too much.
    pub round: u64,
}

/// How writeback of some pages ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are on the device.
    Written,
    /// They could not be written and are dirty again.
    Failed,
}

/// What a policy decides by.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// All devices that share the limits.
    pub domain: &'a Domain,
    /// The policy's own device.
    pub bdi: &'a Bdi,
    /// On the monotonic clock.
    pub now: Duration,
}

/// When the writers of one device wait, and for how long.
///
/// It is called from any thread, with any lock of the cache held, and with the counters of `view`
/// brought up to date before. So it takes only leaf locks for some instructions, and never sleeps,
/// reads a clock or draws random numbers: the time is given, so that threads and a simulation run
/// the same code. A pause lasts at most [`MAX_PAUSE`], and a wait that depends on completions
/// is a [`Verdict::Await`]. Stalled devices are the business of [`Bdi`], not of the
/// policy.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Before `pages` become dirty: [`Verdict::Go`], or how long the writer waits before it asks
    /// again.
    fn admit(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        let _ = (view, task, pages);
        Verdict::Go
    }

    /// After `pages` became dirty, which are counted already; 0 if what was admitted came to
    /// nothing.
    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict;

    /// After what the last verdict ordered is done; `written` pages the writer wrote itself
    /// ([`Verdict::Write`]).
    fn resumed(&self, view: &View<'_>, task: &mut Task, written: u64) -> Verdict;

    /// Writeback of `pages` ended, which are counted already.
    fn completed(&self, view: &View<'_>, pages: u64, outcome: Outcome) {
        let _ = (view, pages, outcome);
    }

    /// `pages` were dirty and are gone without having been written.
    fn cleaned(&self, view: &View<'_>, pages: u64) {
        let _ = (view, pages);
    }

    /// Now and then, while something is dirty.
    fn tick(&self, view: &View<'_>) {
        let _ = view;
    }

    /// The task ends, or its throttling was cut short.
    fn exited(&self, view: &View<'_>, task: &mut Task) {
        let _ = (view, task);
    }

    /// Pages that the task may dirty before the policy is asked again.
    fn allowance(&self, view: &View<'_>, task: &Task) -> u64;

    /// Whether flushers should write whatever the age of what is dirty.
    fn over_background(&self, view: &View<'_>) -> bool;

    /// How much a flusher takes at once.
    fn chunk(&self, view: &View<'_>) -> Chunk;

    /// Pages a second that the device is taken to write, at least 1; for statistics.
    fn bandwidth(&self) -> u64;

    /// Pages a second that each writer may dirty, 0 if the policy knows no such number; for
    /// statistics.
    fn ratelimit(&self) -> u64 {
        0
    }
}

/// Makes the policy of a new device of this domain.
pub type NewPolicy = fn(&Domain) -> Box<dyn Policy>;

/// The longest pause of a writer, as in the kernel.
pub const MAX_PAUSE: Duration = Duration::from_millis(200);

/// Where no other is given.
const SHIPPED: NewPolicy = cell_rate::CellRate::of;

/// In whole nanoseconds, as atomics hold it.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

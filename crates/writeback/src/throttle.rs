//! Dirty throttling: how long a writer waits, so that no more is dirty than memory bears.
//!
//! # Why
//!
//! A writer that copies into memory is far faster than any device. Left alone it fills memory with
//! dirty pages, and then everybody waits for the device, also those who only wanted a page to read
//! into. So a limit is set on what may be dirty or under writeback, and near it writers are slowed to
//! what the device writes. The question of this module is how, and at what cost: by letting the writer
//! do the I/O itself (to 2.6.36), by pauses that follow from how much is dirty (the thread of November
//! 2010), by rates that are estimated for each writer (today), or by a clock for each writer and
//! credits for pages (ours). One file a policy; each opens with its source.
//!
//! # The equation
//!
//! ```text
//!            background    freerun     setpoint      limit
//!  dirty ───────┼─────────────┼────────────┼────────────┼──▶       limit 20 %, background 10 %
//!     nobody    │  flushers   │  writers are paced:     │          freerun = (limit + background) / 2
//!     writes    │  write      │  Σ rates ≈ bandwidth    │ nobody   setpoint = (limit + freerun) / 2
//!
//!  d dirty / dt  =  Σ what writers dirty  −  what the device writes      held at 0, at the setpoint
//!  pause         =  pages dirtied / the writer's rate  −  what it thought since its last pause
//! ```
//! A device has the part of the limit that it had of all completions lately ([`Domain`]), so that a slow
//! one cannot hold the memory of a fast one; `min_ratio` and `max_ratio` bound it.
//!
//! # How it is called
//!
//! ```text
//! writer                                       flusher
//!   n = allowance(task), or less                writeback_started(n)
//!   loop while admit(task, n) != Go               … the device …
//!     Pause, Await: sleep; Failed: error        completed(n, ok)
//!   n pages become dirty
//!   verdict = dirtied(task, n)                  over_background(), chunk(): how much
//!   loop while verdict != Go
//!     Pause, Await: sleep; Write: write; Failed: error
//!     verdict = resumed(task, written)
//! ```
//! A writer that is cancelled, or ends, calls [`Bdi::exited`] and nothing else. A verdict is a value: a
//! library call sleeps so long, a server answers that much later and keeps no thread waiting.
//!
//! # Units
//!
//! Pages of 4096 bytes, whatever the file system's blocks are; the cache counts bytes and converts. Rates
//! are pages a second. Time is that of one monotonic clock, given with every call; no policy sleeps,
//! reads a clock or draws lots, so a simulation in virtual time runs the very code that threads run.
//! [`Tunables`] have the kernel's names and units. Pauses are at most `wb_max_pause_ms`.
//!
//! # Failure
//!
//! A device that completes nothing for `wb_stall_ms`, and of whose runs no part is told either
//! ([`Bdi::progressed`]), while writers wait for it fails those who wait, at that moment; [`Bdi::mark_dead`] does at once, and takes the device's pages out of all sums, so that
//! others of the [`Domain`] go on. Time in which nobody looked, for the process was stopped, does not
//! count. Pages that could not be written are dirty again and stay counted.
//!
//! # Locks
//!
//! Counters are atomics. The few locks (a device's share, an estimate, who is active) are leaves, held
//! for some instructions; nothing is called under them, so any call may be made under any lock. A task
//! belongs to one thread at a time.
//!
//! # Cost
//!
//! Between two looks of its policy a writer costs a handful of atomic additions a call, not a page; with
//! credits, one more for 32 pages. A look reads counters and computes some quotients. Estimates are made
//! by whoever comes first when they are due, never by two. What it costs a system is its wake-ups, which
//! the lab counts.
//!
//! # Left out
//!
//! Control groups (one domain a cache, or one for several), laptop mode, a grace for loop devices. What
//! is dirty of metadata lies in the journal and is not counted. How files are chosen for writing is the
//! flusher's.

mod bdi;
mod cell_rate;
mod credits;
mod domain;
mod ioless;
mod mainline;
mod proportion;
mod stall;
mod stats;
mod task;
mod tunables;
mod vanilla;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use bdi::Bdi;
pub use domain::Domain;
pub use stats::BdiStats;
pub use task::{Class, Task};
pub use tunables::{TunableError, Tunables};

/// Bytes of a page, in which all counts are here.
pub const PAGE_SIZE: u64 = 4096;
/// Most pages a writer dirties between two calls, where nothing asks for less: 4 MiB.
pub const PAGES_MAX: u64 = 1024;
/// What the kernel counts time in; HZ is 1000 here.
const JIFFY: Duration = Duration::from_millis(1);

/// What a writer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Go,
    /// It sleeps so long and asks again; a front end may answer its client that much later instead.
    Pause(Duration),
    /// It writes so many pages of the device itself, and then says so.
    Write {
        /// Pages, at least 1.
        pages: u64,
    },
    /// It sleeps so long, or less if something is completed before, and asks again.
    Await {
        /// The longest.
        at_most: Duration,
    },
    /// The device gets nowhere: the write fails with an I/O error.
    Failed,
}

/// How much a flusher takes at once, in pages, both at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Of one file, before the next has its turn.
    pub file: u64,
    /// Of all files, before it looks again whether there is still too much.
    pub round: u64,
}

/// What a policy decides by.
#[derive(Clone, Copy, Debug)]
struct View<'a> {
    domain: &'a Domain,
    bdi: &'a Bdi,
    now: Duration,
}

/// When writers wait, and for how long. No policy sleeps, reads a clock or draws lots: it is told
/// the time and answers, so that threads and a simulation run the same code.
trait Policy: fmt::Debug + Send + Sync {
    /// Before `pages` become dirty.
    fn admit(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict {
        let _ = (view, task, pages);
        Verdict::Go
    }

    /// After `pages` became dirty, which are counted already.
    fn dirtied(&self, view: &View<'_>, task: &mut Task, pages: u64) -> Verdict;

    /// After what the last verdict ordered is done.
    fn resumed(&self, view: &View<'_>, task: &mut Task, written: u64) -> Verdict;

    /// Writeback of `pages` ended, which are counted already.
    fn completed(&self, view: &View<'_>, pages: u64, ok: bool) {
        let _ = (view, pages, ok);
    }

    /// `pages` were dirty and are gone.
    fn cleaned(&self, view: &View<'_>, pages: u64) {
        let _ = (view, pages);
    }

    /// Now and then.
    fn tick(&self, view: &View<'_>) {
        let _ = view;
    }

    /// The task ends.
    fn exited(&self, view: &View<'_>, task: &mut Task) {
        let _ = (view, task);
    }

    /// Pages the task may dirty until the policy wants to know.
    fn allowance(&self, view: &View<'_>, task: &Task) -> u64;

    /// Whether flushers should write.
    fn over_background(&self, view: &View<'_>) -> bool {
        view.domain.nr_dirty() > view.domain.background()
    }

    /// How much a flusher takes at once.
    fn chunk(&self, view: &View<'_>) -> Chunk;

    /// Pages a second that each writer may dirty, if the policy knows.
    fn ratelimit(&self, view: &View<'_>) -> u64 {
        let _ = view;
        0
    }
}

/// The kernel's pauses have no fractions.
fn whole_jiffies(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Most pages that credits are given for at once, under this limit.
fn admit_max(limit: u64) -> u64 {
    (limit / 16).clamp(1, PAGES_MAX)
}

/// `wb_mode=`: the policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The writer does the I/O itself: Linux 2.6.36.
    Vanilla,
    /// Pauses as proposed in November 2010.
    Ioless,
    /// The same with the author's correction of the same evening.
    IolessFixed,
    /// Position control and rates a task: Linux since 3.2.
    Mainline,
    /// A controller, a cell rate clock a task, and page credits.
    #[default]
    CellRate,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Vanilla,
        Self::Ioless,
        Self::IolessFixed,
        Self::Mainline,
        Self::CellRate,
    ];

    fn policy(self, tunables: &Tunables) -> Box<dyn Policy> {
        match self {
            Self::Vanilla => Box::new(vanilla::Vanilla::new(tunables)),
            Self::Ioless => Box::new(ioless::Ioless::new(tunables, false)),
            Self::IolessFixed => Box::new(ioless::Ioless::new(tunables, true)),
            Self::Mainline => Box::new(mainline::Mainline::new(tunables)),
            Self::CellRate => Box::new(cell_rate::CellRate::new(tunables)),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vanilla => "vanilla",
            Self::Ioless => "ioless",
            Self::IolessFixed => "ioless-fixed",
            Self::Mainline => "mainline",
            Self::CellRate => "cell-rate",
        })
    }
}

/// A word that is none of those it could be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not one of the names there are")]
pub struct UnknownName {
    /// As it was given.
    pub name: String,
}

impl UnknownName {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl FromStr for Mode {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(|| UnknownName::new(text))
    }
}

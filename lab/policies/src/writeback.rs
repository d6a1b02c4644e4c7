//! Designs of dirty throttling: when writers wait for a device.
//!
//! | design | what it is | writers over the limit | exceeds the limit |
//! |---|---|---|---|
//! | `vanilla` | Linux 2.6.36 (`vanilla`) | write pages of the device themselves | yes |
//! | `ioless` | the thread of November 2010 (`ioless`) | pause by what is dirty, 1 to 100 ms | yes |
//! | `ioless-fixed` | with the correction of the same evening | the same | yes |
//! | `mainline` | Linux since 3.2 (`mainline`) | pause by an estimated rate, up to 200 ms | yes |
//! | `cell-rate` | the product's | pause by a clock, wait for credits | never |
//!
//! `vanilla` and `ioless` age the devices' shares of completions by events (`proportion`), as they
//! did; the statistics of a device show the share that ages by time all the same.
//!
//! Source: Wu Fengguang with Dave Chinner and Andrew Morton, "\[PATCH 00/13\] IO-less dirty
//! throttling" (v2), 17 November 2010, and the kernels named in the files.

mod ioless;
mod mainline;
mod proportion;
mod vanilla;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use uext4_writeback::DirtyLimits;
use uext4_writeback::throttle::{Domain, NewPolicy, TunableError, Tunables};

/// The unit of the kernel's timers; HZ is 1000 here.
const JIFFY: Duration = Duration::from_millis(1);

/// The designs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The writer does the I/O itself: Linux 2.6.36.
    Vanilla,
    /// Pauses as proposed in November 2010.
    Ioless,
    /// With the author's correction of the same evening.
    IolessFixed,
    /// Position control and rates of tasks: Linux since 3.2.
    Mainline,
    /// The product's: a controller, a cell rate clock for each task, and page credits.
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

    /// What makes its policies; none for the design that the product has by itself.
    pub fn policy(self) -> Option<NewPolicy> {
        match self {
            Self::Vanilla => Some(vanilla::vanilla),
            Self::Ioless => Some(ioless::as_posted),
            Self::IolessFixed => Some(ioless::corrected),
            Self::Mainline => Some(mainline::mainline),
            Self::CellRate => None,
        }
    }

    /// A domain whose devices have this design, as [`Domain::new`].
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn domain(
        self,
        tunables: &Tunables,
        dirtyable: u64,
        cpus: usize,
    ) -> Result<Arc<Domain>, TunableError> {
        match self.policy() {
            Some(policy) => Domain::with_policy(policy, tunables, dirtyable, cpus),
            None => Domain::new(tunables, dirtyable, cpus),
        }
    }

    /// Limits of caches by this design, as [`DirtyLimits::new`].
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn limits(self, tunables: &Tunables) -> Result<Arc<DirtyLimits>, TunableError> {
        match self.policy() {
            Some(policy) => DirtyLimits::with_policy(policy, tunables),
            None => DirtyLimits::new(tunables),
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

/// A name that no design has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown design of throttling: {name:?}")]
pub struct UnknownMode {
    /// As it was given.
    pub name: String,
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        let found = Self::ALL.into_iter().find(|mode| mode.to_string() == name);
        found.ok_or_else(|| UnknownMode {
            name: name.to_owned(),
        })
    }
}

/// How a throttling goes on after the last pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    /// With another look.
    #[default]
    Look,
    /// It ends.
    Leave,
}

/// The kernel's pauses have no fractions.
fn whole_jiffies(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// In whole nanoseconds, as atomics hold it.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

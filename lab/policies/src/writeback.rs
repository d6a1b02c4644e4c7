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

/// Timer ticks a second of the kernel that a design comes from: the unit of its pauses, which is
/// a choice of any thread that builds it. It changes what the designs do: `ioless` lengthens its
/// interval until pauses have two ticks, so that a light writer wakes `HZ / 2` times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Hz {
    /// 10 ms.
    H100,
    /// 4 ms, the default of the kernel's configuration.
    H250,
    /// 1 ms.
    #[default]
    H1000,
}

impl Hz {
    /// Nanoseconds of a tick.
    #[must_use]
    pub fn tick_nanos(self) -> u64 {
        1_000_000_000
            / match self {
                Self::H100 => 100,
                Self::H250 => 250,
                Self::H1000 => 1000,
            }
    }
}

impl FromStr for Hz {
    type Err = UnknownHz;

    fn from_str(text: &str) -> Result<Self, UnknownHz> {
        match text {
            "100" => Ok(Self::H100),
            "250" => Ok(Self::H250),
            "1000" => Ok(Self::H1000),
            _ => Err(UnknownHz {
                text: text.to_owned(),
            }),
        }
    }
}

/// A number of ticks a second that no design has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ticks a second must be 100, 250 or 1000, not {text:?}")]
pub struct UnknownHz {
    /// As it was given.
    pub text: String,
}

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

    /// What makes its policies, at 1000 ticks a second; none for the design that the product has
    /// by itself.
    pub fn policy(self) -> Option<NewPolicy> {
        self.policy_at(Hz::default())
    }

    /// The same with another unit of time. The product's design has no ticks.
    pub fn policy_at(self, hz: Hz) -> Option<NewPolicy> {
        match hz {
            Hz::H100 => self.with_ticks::<100>(),
            Hz::H250 => self.with_ticks::<250>(),
            Hz::H1000 => self.with_ticks::<1000>(),
        }
    }

    fn with_ticks<const HZ: u64>(self) -> Option<NewPolicy> {
        match self {
            Self::Vanilla => Some(vanilla::vanilla::<HZ>),
            Self::Ioless => Some(ioless::as_posted::<HZ>),
            Self::IolessFixed => Some(ioless::corrected::<HZ>),
            Self::Mainline => Some(mainline::mainline::<HZ>),
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
        self.domain_at(Hz::default(), tunables, dirtyable, cpus)
    }

    /// The same with another unit of time.
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn domain_at(
        self,
        hz: Hz,
        tunables: &Tunables,
        dirtyable: u64,
        cpus: usize,
    ) -> Result<Arc<Domain>, TunableError> {
        match self.policy_at(hz) {
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

/// The kernel's time: whole ticks.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Ticks a second.
    hz: u64,
}

impl Clock {
    /// Whole ticks of a stretch of time.
    fn ticks(self, time: Duration) -> u64 {
        let ticks = time.as_nanos() * u128::from(self.hz) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// So many ticks.
    fn time(self, ticks: u64) -> Duration {
        Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / self.hz))
    }
}

/// In whole nanoseconds, as atomics hold it.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

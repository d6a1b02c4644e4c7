//! One writer as the policies see it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::cell_rate::Activity;
use super::proportion::Local;

/// How much a writer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody waits for each write: not throttled below its rate.
    RealTime,
    /// What there is no reason to treat otherwise.
    #[default]
    Normal,
    /// May wait for all the others.
    Idle,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RealTime => "realtime",
            Self::Normal => "normal",
            Self::Idle => "idle",
        })
    }
}

impl FromStr for Class {
    type Err = super::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::RealTime, Self::Normal, Self::Idle]
            .into_iter()
            .find(|class| class.to_string() == text)
            .ok_or_else(|| super::UnknownName::new(text))
    }
}

/// What is remembered of one writer between two of its writes: one a thread, or one a caller that
/// should be treated as one (a user of a server). Small; it may be dropped at any time, but
/// [`super::Bdi::exited`] tells the policy first what it may want to know.
#[derive(Clone, Debug, Default)]
pub struct Task {
    pub(super) class: Class,
    /// Where it runs, about: picks the counters it shares with few others.
    pub(super) cpu: usize,
    /// Pages dirtied since the policy last looked.
    pub(super) nr_dirtied: u64,
    /// How many may be dirtied until it looks again; 0: not known yet.
    pub(super) nr_dirtied_pause: u64,
    /// When the last pause ended or would have; zero: never.
    pub(super) paused_when: Duration,
    /// Since when it has been in one throttling that has not ended.
    pub(super) throttled_since: Option<Duration>,
    /// Pages the throttling that goes on is about.
    pub(super) charged: u64,
    /// What to do when the last verdict is carried out.
    pub(super) next: Next,
    /// The pause that goes on or was last.
    pub(super) pause: Duration,
    /// Dirty pages of the device when the policy looked last within this throttling.
    pub(super) seen: Option<u64>,
    /// Pages it dirtied lately, beside all writers' ([`Local`]).
    pub(super) share: Local,
    /// Credits taken for pages not dirty yet.
    pub(super) credits: u64,
    /// Pages it is ahead of its rate, below 0 where it lags, and when that was so.
    pub(super) ahead: f64,
    pub(super) ahead_at: Duration,
    /// Its number among all there ever were; 0: none yet.
    pub(super) number: u64,
    /// When it last counted as a writer.
    pub(super) activity: Activity,
}

/// How a throttling goes on after the verdict that was given last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// Look again.
    #[default]
    Look,
    /// It wrote: enough, or it sleeps.
    Wrote,
    /// It ends.
    Leave,
}

impl Task {
    /// A writer that has written nothing yet. `cpu` is any number that is the same for the same
    /// processor or thread.
    #[must_use]
    pub fn new(class: Class, cpu: usize) -> Self {
        Self {
            class,
            cpu,
            ..Self::default()
        }
    }

    /// How much it counts.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Changes how much it counts from now on.
    pub fn set_class(&mut self, class: Class) {
        self.class = class;
    }

    /// The processor it runs on now.
    pub fn set_cpu(&mut self, cpu: usize) {
        self.cpu = cpu;
    }

    /// Pages dirtied since the policy last looked.
    #[must_use]
    pub fn nr_dirtied(&self) -> u64 {
        self.nr_dirtied
    }

    /// Pages it may dirty until the policy looks again; 0: not known yet.
    #[must_use]
    pub fn nr_dirtied_pause(&self) -> u64 {
        self.nr_dirtied_pause
    }
}

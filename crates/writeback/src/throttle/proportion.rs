//! Floating proportions: which device did how much of what was done lately.
//!
//! Each device counts events for itself and for all; every three seconds all counts are halved, as
//! in Linux since 3.8. Halving is lazy: a count remembers the period it was last halved for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::nanos;

/// A part of a whole: both at most 2⁵³, and the whole not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// At most the whole.
    pub part: u64,
    /// At least 1.
    pub whole: u64,
}

/// The counts of one of many, on its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Local {
    events: u64,
    period: u64,
}

impl Local {
    fn age(&mut self, period: u64) {
        let halvings = period.saturating_sub(self.period).min(63);
        self.events >>= halvings;
        self.period = period;
    }
}

/// The same where several threads count, behind a leaf lock.
#[derive(Debug, Default)]
pub(super) struct SharedLocal(Mutex<Local>);

impl SharedLocal {
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        f(&mut self.0.lock())
    }
}

/// The count of all.
#[derive(Debug)]
pub(super) struct Global {
    /// After which counts are halved.
    length: Duration,
    /// Nanoseconds when the period ends.
    ends: AtomicU64,
    /// Events of the period that goes on, and what is left of those before.
    events: AtomicU64,
    /// The number of the period.
    period: AtomicU64,
    /// Taken to end a period only.
    since: Mutex<Duration>,
}

impl Global {
    /// Counts are halved every `length`, above 0.
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            ends: AtomicU64::new(nanos(length)),
            events: AtomicU64::new(0),
            period: AtomicU64::new(0),
            since: Mutex::new(Duration::ZERO),
        }
    }

    /// Counts `events` of `local`.
    pub(super) fn add(&self, local: &mut Local, events: u64, now: Duration) {
        self.age(now);
        local.age(self.period.load(Relaxed));
        local.events = local.events.saturating_add(events);
        self.events.fetch_add(events, Relaxed);
    }

    fn age(&self, now: Duration) {
        // Nearly always: no lock.
        if nanos(now) < self.ends.load(Relaxed) {
            return;
        }
        let mut since = self.since.lock();
        let elapsed = now.saturating_sub(*since);
        if elapsed < self.length || self.length.is_zero() {
            return;
        }
        let periods = (elapsed.as_nanos() / self.length.as_nanos()).min(63);
        *since = now;
        let ends = now.saturating_add(self.length);
        self.ends.store(nanos(ends), Relaxed);
        let halvings = periods as u64;
        let _ = self
            .events
            .fetch_update(Relaxed, Relaxed, |events| Some(events >> halvings));
        self.period.fetch_add(halvings, Relaxed);
    }

    /// The part of all events that were `local`'s lately.
    pub(super) fn share(&self, local: &mut Local, now: Duration) -> Share {
        self.age(now);
        local.age(self.period.load(Relaxed));
        let whole = self.events.load(Relaxed).clamp(1, 1 << 53);
        Share {
            part: local.events.min(whole),
            whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(3);

    #[test]
    fn one_of_one_has_all_after_time() {
        let global = Global::new(PERIOD);
        let mut local = Local::default();
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += Duration::from_millis(100);
            global.add(&mut local, 7, now);
            let Share { part, whole } = global.share(&mut local, now);
            assert!(whole - part <= 2, "{part} of {whole}");
        }
    }

    #[test]
    fn two_devices_share_as_they_complete() {
        let global = Global::new(PERIOD);
        let (mut fast, mut slow) = (Local::default(), Local::default());
        let mut now = Duration::ZERO;
        for _ in 0..600 {
            now += Duration::from_millis(100);
            global.add(&mut fast, 70, now);
            global.add(&mut slow, 1, now);
        }
        let share = |local: &mut Local| {
            let Share { part, whole } = global.share(local, now);
            part as f64 / whole as f64
        };
        let of_fast = share(&mut fast);
        assert!((of_fast - 70.0 / 71.0).abs() < 0.03, "{of_fast}");
        assert!(share(&mut slow) < 0.05);
    }
}

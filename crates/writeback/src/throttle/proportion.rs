//! Floating proportions: who did how much of what was done lately.
//!
//! Everybody counts events for himself and for all; every so often all counts are halved. Halving is
//! lazy: a count remembers the period it was last halved for. Two rules say when a period ends: after
//! so many events (2.6.36: a device that completes nothing keeps its share, and shares move slowly at
//! first), or after so much time (since 3.8: 3 s).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::bdi::nanos;

/// When a period ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aging {
    /// After so many events, at least 1.
    Events(u64),
    /// After so long.
    Time(Duration),
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
    aging: Aging,
    /// Events after which a period ends, at least 1, where these count.
    length: AtomicU64,
    /// Nanoseconds when a period ends by time.
    ends: AtomicU64,
    /// Events of the period that goes on, and what is left of those before.
    events: AtomicU64,
    /// The number of the period.
    period: AtomicU64,
    /// Taken to end a period only.
    since: Mutex<Duration>,
}

impl Global {
    pub(super) fn new(aging: Aging) -> Self {
        let (length, ends) = match aging {
            Aging::Events(count) => (count.max(1), u64::MAX),
            Aging::Time(length) => (u64::MAX, nanos(length)),
        };
        Self {
            aging,
            length: AtomicU64::new(length),
            ends: AtomicU64::new(ends),
            events: AtomicU64::new(0),
            period: AtomicU64::new(0),
            since: Mutex::new(Duration::ZERO),
        }
    }

    /// Has a period end after so many events from now on, if events end it.
    pub(super) fn set_length(&self, events: u64) {
        self.length.store(events.max(1), Relaxed);
    }

    fn length(&self) -> Option<u64> {
        matches!(self.aging, Aging::Events(_)).then(|| self.length.load(Relaxed))
    }

    /// Counts `events` of `local`.
    pub(super) fn add(&self, local: &mut Local, events: u64, now: Duration) {
        self.age(now);
        local.age(self.period.load(Relaxed));
        local.events = local.events.saturating_add(events);
        let all = self
            .events
            .fetch_add(events, Relaxed)
            .saturating_add(events);
        if let Some(period) = self.length()
            && all >= period
        {
            self.end_periods(all / period);
        }
    }

    fn end_periods(&self, count: u64) {
        let _one_at_a_time = self.since.lock();
        if let Some(period) = self.length()
            && self.events.load(Relaxed) >= period
        {
            // What a whole period left behind is the half of the next that the share is taken of.
            self.events.store(0, Relaxed);
            self.period.fetch_add(count.min(63), Relaxed);
        }
    }

    fn age(&self, now: Duration) {
        let Aging::Time(length) = self.aging else {
            return;
        };
        // Nearly always: no lock.
        if nanos(now) < self.ends.load(Relaxed) {
            return;
        }
        let mut since = self.since.lock();
        let elapsed = now.saturating_sub(*since);
        if elapsed < length || length.is_zero() {
            return;
        }
        let periods = (elapsed.as_nanos() / length.as_nanos()).min(63);
        *since = now;
        self.ends.store(nanos(now.saturating_add(length)), Relaxed);
        let halvings = periods as u64;
        let _ = self
            .events
            .fetch_update(Relaxed, Relaxed, |events| Some(events >> halvings));
        self.period.fetch_add(halvings, Relaxed);
    }

    /// The part of all events that were `local`'s lately, as a fraction: both at most 2⁵³, and the
    /// second not 0.
    pub(super) fn share(&self, local: &mut Local, now: Duration) -> (u64, u64) {
        self.age(now);
        local.age(self.period.load(Relaxed));
        let all = self.events.load(Relaxed);
        let all = match self.length() {
            // The half period before this one counts in full, whether there was one or not: so
            // shares grow slowly after the start.
            Some(period) => period.saturating_add(all),
            None => all,
        };
        let all = all.clamp(1, 1 << 53);
        (local.events.min(all), all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_one_has_all_after_time() {
        let global = Global::new(Aging::Time(Duration::from_secs(3)));
        let mut local = Local::default();
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += Duration::from_millis(100);
            global.add(&mut local, 7, now);
            let (part, all) = global.share(&mut local, now);
            assert!(all - part <= 2, "{part} of {all}");
        }
    }

    #[test]
    fn shares_by_events_start_at_nothing_and_grow() {
        let global = Global::new(Aging::Events(1000));
        let mut local = Local::default();
        let mut last = 0.0;
        for step in 0..20 {
            global.add(&mut local, 250, Duration::ZERO);
            let (part, all) = global.share(&mut local, Duration::ZERO);
            let share = part as f64 / all as f64;
            assert!(share > last - 0.01, "step {step}: {share} after {last}");
            last = share;
        }
        assert!(last > 0.95, "{last}");
    }

    #[test]
    fn two_devices_share_as_they_complete() {
        for aging in [Aging::Events(5000), Aging::Time(Duration::from_secs(3))] {
            let global = Global::new(aging);
            let (mut fast, mut slow) = (Local::default(), Local::default());
            let mut now = Duration::ZERO;
            for _ in 0..600 {
                now += Duration::from_millis(100);
                global.add(&mut fast, 70, now);
                global.add(&mut slow, 1, now);
            }
            let (part, all) = global.share(&mut fast, now);
            let share = part as f64 / all as f64;
            assert!((share - 70.0 / 71.0).abs() < 0.03, "{aging:?}: {share}");
            let (part, all) = global.share(&mut slow, now);
            assert!((part as f64 / all as f64) < 0.05, "{aging:?}");
        }
    }
}

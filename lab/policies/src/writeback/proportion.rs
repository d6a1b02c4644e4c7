//! Floating proportions that age by events, as in 2.6.36: a device that completes nothing retains
//! its share, and shares move slowly at first.
//!
//! Each of many counts events for itself and for all; after a period of so many events all counts
//! are halved. Halving is lazy: a count remembers the period it was last halved for. The length of
//! a period follows the limit of dirty pages, so it is given with every call.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_writeback::throttle::Share;

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

/// The count of all.
#[derive(Debug, Default)]
pub(super) struct Global {
    /// Events of the period that goes on.
    events: AtomicU64,
    /// The number of the period.
    period: AtomicU64,
    /// Taken to end a period only.
    ends: Mutex<()>,
}

impl Global {
    /// Counts `events` of `local`, in periods of `length` events, at least 1.
    pub(super) fn add(&self, local: &mut Local, events: u64, length: u64) {
        local.age(self.period.load(Relaxed));
        local.events = local.events.saturating_add(events);
        let before = self.events.fetch_add(events, Relaxed);
        let all = before.saturating_add(events);
        if all >= length {
            self.end_periods(all / length, length);
        }
    }

    fn end_periods(&self, count: u64, length: u64) {
        let _one_at_a_time = self.ends.lock();
        if self.events.load(Relaxed) >= length {
            // What a whole period left behind is the half of the next that the share is taken of.
            self.events.store(0, Relaxed);
            self.period.fetch_add(count.min(63), Relaxed);
        }
    }

    /// The part of all events that were `local`'s lately.
    pub(super) fn share(&self, local: &mut Local, length: u64) -> Share {
        local.age(self.period.load(Relaxed));
        // The half period before this one counts in full, whether there was one or not: so shares
        // grow slowly after the start.
        let whole = length.saturating_add(self.events.load(Relaxed));
        let whole = whole.clamp(1, 1 << 53);
        Share {
            part: local.events.min(whole),
            whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_start_at_nothing_and_grow() {
        let global = Global::default();
        let mut local = Local::default();
        let mut last = 0.0;
        for step in 0..20 {
            global.add(&mut local, 250, 1000);
            let Share { part, whole } = global.share(&mut local, 1000);
            let share = part as f64 / whole as f64;
            assert!(share > last - 0.01, "step {step}: {share} after {last}");
            last = share;
        }
        assert!(last > 0.95, "{last}");
    }

    #[test]
    fn two_devices_share_as_they_complete() {
        let global = Global::default();
        let (mut fast, mut slow) = (Local::default(), Local::default());
        for _ in 0..600 {
            global.add(&mut fast, 70, 5000);
            global.add(&mut slow, 1, 5000);
        }
        let share = |local: &mut Local| {
            let Share { part, whole } = global.share(local, 5000);
            part as f64 / whole as f64
        };
        let of_fast = share(&mut fast);
        assert!((of_fast - 70.0 / 71.0).abs() < 0.03, "{of_fast}");
        assert!(share(&mut slow) < 0.05);
    }
}

//! For how long a device got nowhere while writers waited for it.
//!
//! The time is added up from looks: each throttled writer that asks looks, and what lies between
//! two looks counts for a second at most. So a process that was stopped, or a machine that slept,
//! does not find its devices stalled when it wakes. A completion begins anew, and so does a
//! throttling that begins when no thread looked for longer than any pause.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::nanos;

/// What lies between two looks counts for so much at most.
const STEP_MAX: Duration = Duration::from_secs(1);
/// Longer than any pause: no thread waited.
const IDLE: Duration = Duration::from_secs(2);

/// Lock-free.
#[derive(Debug, Default)]
pub(super) struct Stall {
    /// Nanoseconds without a completion.
    stalled: AtomicU64,
    /// When it was last looked, or something was completed.
    looked: AtomicU64,
}

impl Stall {
    /// Something was completed.
    pub(super) fn progress(&self, now: Duration) {
        self.looked.fetch_max(nanos(now), Relaxed);
        self.stalled.store(0, Relaxed);
    }

    /// A writer looks whose throttling is new, or goes on: how long until the device counts as
    /// stalled.
    pub(super) fn left(&self, limit: Duration, is_new: bool, now: Duration) -> Duration {
        // Of several who look at once each adds what lies between its look and the one before.
        let before = self.looked.fetch_max(nanos(now), Relaxed);
        let step = nanos(now).saturating_sub(before);
        if is_new && step > nanos(IDLE) {
            self.stalled.store(0, Relaxed);
            return limit;
        }
        let step = step.min(nanos(STEP_MAX));
        let before = self.stalled.fetch_add(step, Relaxed);
        let stalled = Duration::from_nanos(before.saturating_add(step));
        limit.saturating_sub(stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_process_that_was_stopped_finds_nothing_stalled() {
        let stall = Stall::default();
        stall.progress(ms(1000));
        assert_eq!(stall.left(LIMIT, true, ms(1100)), ms(29_900));
        // A minute later.
        assert_eq!(stall.left(LIMIT, false, ms(61_100)), ms(28_900));
        stall.progress(ms(61_200));
        assert_eq!(stall.left(LIMIT, false, ms(61_300)), ms(29_900));
    }

    #[test]
    fn samples_add_up_whichever_thread_takes_them() {
        let stall = Stall::default();
        let mut now = ms(100_000);
        assert_eq!(stall.left(LIMIT, true, now), LIMIT);
        for step in 1..=150 {
            now += ms(200);
            let left = stall.left(LIMIT, step % 3 == 0, now);
            assert_eq!(left, ms(30_000 - 200 * step));
        }
    }

    #[test]
    fn a_writer_after_a_long_pause_begins_anew() {
        let stall = Stall::default();
        for now in 0..20_000 {
            let _ = stall.left(LIMIT, false, ms(now));
        }
        assert_eq!(stall.left(LIMIT, true, ms(90_000)), LIMIT);
    }
}

//! Time as the engine sees it: the machine's own, or one that only moves on request.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A source of time of day, of elapsed time, and of waiting.
pub trait Clock: Send + Sync + Debug {
    /// Time since 1970-01-01 UTC: seconds (negative before) and nanoseconds, 0 ≤ ns < 10⁹.
    fn now(&self) -> (i64, u32);
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Lets `duration` pass.
    fn sleep(&self, duration: Duration);
    /// Lets time pass until [`Clock::monotonic`] shows `moment`; returns at once if it does.
    fn sleep_until(&self, moment: Duration) {
        self.sleep(moment.saturating_sub(self.monotonic()));
    }
    /// Whether its time passes only by calls of it: then no thread waits for it by itself.
    fn is_virtual(&self) -> bool {
        false
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> (i64, u32) {
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => (
                i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                since.subsec_nanos(),
            ),
            // A clock set before 1970: seconds round down, so that nanoseconds stay positive.
            Err(error) => {
                let before = error.duration();
                let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => (-seconds, 0),
                    nanos => ((-seconds).saturating_sub(1), 1_000_000_000 - nanos),
                }
            }
        }
    }

    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that stands still until someone sleeps on it or advances it.
///
/// [`Clock::sleep`] returns at once and moves the time on, so that hours of simulated waiting take
/// no time. Threads that sleep at once add up their waits; with [`Clock::sleep_until`] they do not.
#[derive(Debug, Default)]
pub struct VirtualClock {
    /// Seconds since 1970 at which `elapsed_ns` was zero.
    start: i64,
    elapsed_ns: AtomicU64,
}

impl VirtualClock {
    /// A clock that shows `start` seconds since 1970.
    #[must_use]
    pub fn new(start: i64) -> Self {
        Self {
            start,
            elapsed_ns: AtomicU64::new(0),
        }
    }

    /// Moves the time on by `duration`.
    pub fn advance(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.elapsed_ns.fetch_add(nanos, Ordering::AcqRel);
    }

    /// Moves the time on to `moment` after the start, if it is not there yet.
    pub fn advance_to(&self, moment: Duration) {
        let nanos = u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX);
        self.elapsed_ns.fetch_max(nanos, Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> (i64, u32) {
        let elapsed = self.elapsed_ns.load(Ordering::Acquire);
        let seconds = i64::try_from(elapsed / NANOS_PER_SECOND).unwrap_or(i64::MAX);
        // OK to unwrap: a remainder of 10⁹ fits in 32 bits.
        let nanos = u32::try_from(elapsed % NANOS_PER_SECOND).unwrap();
        (self.start.saturating_add(seconds), nanos)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns.load(Ordering::Acquire))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }

    fn sleep_until(&self, moment: Duration) {
        self.advance_to(moment);
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_only_on_request() {
        let clock = VirtualClock::new(-5);
        assert_eq!(clock.now(), (-5, 0));
        clock.sleep(Duration::from_millis(1500));
        assert_eq!(clock.now(), (-4, 500_000_000));
        clock.advance_to(Duration::from_secs(1));
        assert_eq!(clock.monotonic(), Duration::from_millis(1500));
        clock.advance_to(Duration::from_secs(2));
        assert_eq!(clock.now(), (-3, 0));
    }

    #[test]
    fn the_system_clock_runs() {
        let (seconds, nanos) = SystemClock.now();
        assert!(seconds > 1_600_000_000 && nanos < 1_000_000_000);
        let before = SystemClock.monotonic();
        SystemClock.sleep(Duration::from_millis(2));
        assert!(SystemClock.monotonic() >= before + Duration::from_millis(2));
    }
}

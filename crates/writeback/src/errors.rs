//! Write errors of one file, or losses of a cache, each reported once to everyone the caller.
//!
//! The scheme of the kernel's `errseq_t`: a counter goes up with each error; any thread that
//! fsyncs keeps the value it saw last. An error no thread has seen yet is also new to those who
//! come later. It belongs to the file, not to a caller that wrote or whose call met it: each
//! handle that was open before is notified.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct Errors<E> {
    /// Errors so far; a snapshot without the lock.
    count: AtomicU64,
    /// How many there were when something was given up last.
    given_up: AtomicU64,
    last: Mutex<Last<E>>,
}

#[derive(Debug)]
struct Last<E> {
    error: Option<E>,
    /// How many of them a thread was notified.
    reported: u64,
}

impl<E: Clone> Errors<E> {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            last: Mutex::new(Last {
                error: None,
                reported: 0,
            }),
        }
    }

    pub(crate) fn record(&self, error: E) {
        let mut last = self.last.lock();
        last.error = Some(error);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// The same, of what will not be tried again.
    pub(crate) fn give_up(&self, error: E) {
        let mut last = self.last.lock();
        last.error = Some(error);
        let count = self.count.fetch_add(1, Ordering::Release) + 1;
        self.given_up.store(count, Ordering::Release);
    }

    /// Whether anything was given up since `seen`.
    pub(crate) fn gave_up_since(&self, seen: u64) -> bool {
        self.given_up.load(Ordering::Acquire) > seen
    }

    /// What a caller that comes now has seen.
    pub(crate) fn token(&self) -> u64 {
        self.last.lock().reported
    }

    /// The last error, if there were any since `seen`, which is brought up to date.
    pub(crate) fn since(&self, seen: &mut u64) -> Option<E> {
        if self.count.load(Ordering::Acquire) == *seen {
            return None;
        }
        let mut last = self.last.lock();
        let count = self.count.load(Ordering::Acquire);
        last.reported = count;
        let is_new = *seen != count;
        *seen = count;
        last.error.clone().filter(|_| is_new)
    }

    /// The same; of two threads that come with one `seen`, one is reported.
    pub(crate) fn report(&self, seen: &AtomicU64) -> Option<E> {
        let before = seen.load(Relaxed);
        let mut now = before;
        let error = self.since(&mut now);
        let is_reported = seen.compare_exchange(before, now, Relaxed, Relaxed);
        error.filter(|_| is_reported.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sees_an_error_once() {
        let errors = Errors::new();
        let mut early = errors.token();
        errors.record("first");
        let mut late = errors.token();
        errors.record("second");
        assert_eq!(errors.since(&mut early), Some("second"));
        assert_eq!(errors.since(&mut early), None);
        // No thread had seen the first when the second asked for a token.
        assert!(errors.since(&mut late).is_some());
        let mut later = errors.token();
        assert_eq!(errors.since(&mut later), None);
    }
}

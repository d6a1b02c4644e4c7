//! Write errors of one file, each reported once to everyone who asks.
//!
//! The scheme of the kernel's `errseq_t`: a counter goes up with each error; whoever fsyncs keeps
//! the value he saw last. An error nobody has seen yet is also new to those who come later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct Errors<E> {
    /// Errors so far; a glance without the lock.
    count: AtomicU64,
    last: Mutex<Last<E>>,
}

#[derive(Debug)]
struct Last<E> {
    error: Option<Arc<E>>,
    /// How many of them somebody was told.
    reported: u64,
}

impl<E> Errors<E> {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            last: Mutex::new(Last {
                error: None,
                reported: 0,
            }),
        }
    }

    pub(crate) fn record(&self, error: &Arc<E>) {
        let mut last = self.last.lock();
        last.error = Some(Arc::clone(error));
        self.count.fetch_add(1, Ordering::Release);
    }

    /// What somebody who comes now has seen.
    pub(crate) fn token(&self) -> u64 {
        self.last.lock().reported
    }

    /// The last error, if there were any since `seen`, which is brought up to date.
    pub(crate) fn since(&self, seen: &mut u64) -> Option<Arc<E>> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_sees_an_error_once() {
        let errors = Errors::new();
        let mut early = errors.token();
        errors.record(&Arc::new("first"));
        let mut late = errors.token();
        errors.record(&Arc::new("second"));
        assert_eq!(errors.since(&mut early).as_deref(), Some(&"second"));
        assert_eq!(errors.since(&mut early), None);
        // Nobody had seen the first when the second asked for a token.
        assert!(errors.since(&mut late).is_some());
        let mut later = errors.token();
        assert_eq!(errors.since(&mut later), None);
    }
}

//! A number that many threads add to and that is read often.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::{PerThread, SLOTS};

/// A number at least 0. Reading it is exact only as [`Counter::sum`], and as long as no thread adds
/// to it meanwhile.
#[derive(Debug)]
pub struct Counter {
    /// What the slots have handed over.
    total: CachePadded<AtomicI64>,
    /// What they have not: between `-batch` and `batch`, beyond which a slot hands it over.
    parts: PerThread<AtomicI64>,
    batch: u64,
}

impl Default for Counter {
    fn default() -> Self {
        Self::new(0, 32)
    }
}

impl Counter {
    /// A counter that begins at `value`; a slot collects `batch` before it changes the total, both
    /// at most 2^62.
    pub fn new(value: u64, batch: u32) -> Self {
        Self {
            total: CachePadded::new(AtomicI64::new(signed(value))),
            parts: PerThread::default(),
            batch: u64::from(batch),
        }
    }

    /// Adds to the number.
    #[inline]
    pub fn add(&self, more: u64) {
        self.change(signed(more));
    }

    /// Takes from the number what this or another thread has added.
    #[inline]
    pub fn sub(&self, less: u64) {
        self.change(-signed(less));
    }

    #[inline]
    fn change(&self, by: i64) {
        let part = self.parts.get();
        let now = part.fetch_add(by, Relaxed).wrapping_add(by);
        if now.unsigned_abs() > self.batch {
            self.total.fetch_add(part.swap(0, Relaxed), Relaxed);
        }
    }

    /// The number, off by at most [`Counter::slack`]: one read of a line that seldom changes.
    #[inline]
    pub fn get(&self) -> u64 {
        unsigned(self.total.load(Relaxed))
    }

    /// How much [`Counter::get`] may differ from the number.
    #[inline]
    pub fn slack(&self) -> u64 {
        self.batch * SLOTS as u64
    }

    /// The number: one read of each slot.
    pub fn sum(&self) -> u64 {
        let parts: i64 = self.parts.iter().map(|part| part.load(Relaxed)).sum();
        unsigned(self.total.load(Relaxed).wrapping_add(parts))
    }
}

/// A number below 2^63 with a sign; what is larger is the largest.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number without a sign; what is below 0, as a moment between two additions may show it, is 0.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Counter;

    #[test]
    fn the_sum_is_exact_and_the_read_is_within_the_slack() {
        let counter = Counter::new(1000, 8);
        thread::scope(|scope| {
            for part in 0..8u64 {
                let counter = &counter;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        counter.add(3);
                        counter.sub(1 + part % 2);
                    }
                });
            }
        });
        assert_eq!(counter.sum(), 1000 + 4 * 2000 + 4 * 1000);
        assert!(counter.get().abs_diff(counter.sum()) <= counter.slack());
    }

    #[test]
    fn what_one_thread_adds_another_may_take() {
        let counter = Counter::default();
        counter.add(100);
        thread::scope(|scope| {
            scope.spawn(|| counter.sub(100));
        });
        assert_eq!(counter.sum(), 0);
    }

    #[test]
    fn a_read_changes_once_a_batch() {
        let counter = Counter::new(0, 4);
        for _ in 0..4 {
            counter.add(1);
            assert_eq!(counter.get(), 0);
        }
        counter.add(1);
        assert_eq!(counter.get(), 5);
    }
}

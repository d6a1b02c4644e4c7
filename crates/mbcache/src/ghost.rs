//! Numbers of things that were read of late, so that one that is read once does not come in.
//!
//! A table of a fixed number of places, one a number: what comes later to a place takes it, which
//! is how entries age.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places, a power of two.
const PLACES: usize = 4096;
/// 2⁶⁴ divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// In a place, above the number and one: it has been let in.
const ADMITTED: u64 = 1;

/// The table.
#[derive(Debug)]
pub(crate) struct Ghost(Box<[AtomicU64]>);

impl Ghost {
    pub(crate) const BYTES: usize = PLACES * size_of::<AtomicU64>();

    pub(crate) fn new() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, value: u64) -> &AtomicU64 {
        let at = value.wrapping_mul(GOLDEN) >> (64 - PLACES.ilog2());
        &self.0[at as usize]
    }

    fn word(value: u64) -> u64 {
        value.wrapping_add(1) << 1
    }

    /// Whether this is the second time that it is read. After that it is known to be in.
    pub(crate) fn is_second(&self, value: u64) -> bool {
        let (place, word) = (self.place(value), Self::word(value));
        let now = place.load(Relaxed);
        if now != word | ADMITTED {
            let is_second = now == word;
            place.store(word | u64::from(is_second), Relaxed);
            return is_second;
        }
        false
    }

    /// It is in.
    pub(crate) fn admitted(&self, value: u64) {
        self.place(value)
            .store(Self::word(value) | ADMITTED, Relaxed);
    }

    /// It is in no more.
    pub(crate) fn forget(&self, value: u64) {
        let (place, word) = (self.place(value), Self::word(value));
        if place.load(Relaxed) | ADMITTED == word | ADMITTED {
            place.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_counts_and_the_third_does_not() {
        let ghost = Ghost::new();
        let times = || [(); 3].map(|()| ghost.is_second(77));
        assert_eq!(times(), [false, true, false]);
        ghost.forget(77);
        assert_eq!(times(), [false, true, false]);
        ghost.forget(77);
        ghost.admitted(77);
        assert_eq!(times(), [false; 3]);
        // Once each: nothing comes in, and the old are forgotten.
        assert!(!(100..100_000).any(|value| ghost.is_second(value)));
        assert_eq!(times(), [false, true, false]);
    }
}

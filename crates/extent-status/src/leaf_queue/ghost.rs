//! What was dropped of late: not the leaves, only that they were. Bounded, and a guess: a slot is
//! taken over by any thread that comes next.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The fewest slots and the most, powers of two: 2 KiB and 128 KiB.
const SLOTS_MIN: usize = 256;
const SLOTS_MAX: usize = 16_384;

/// Fingerprints of leaves, each with the number of its dropping.
#[derive(Debug, Default)]
pub(super) struct Ghost {
    /// Made when the first leaf is dropped: a slot for each leaf there then is, if that many may
    /// be.
    slots: OnceLock<Box<[AtomicU64]>>,
    /// Leaves dropped, wrapping.
    dropped: AtomicU32,
}

impl Ghost {
    /// The slot of a leaf, of this power of two.
    fn slot(hash: u64, slots: usize) -> usize {
        hash as usize & (slots - 1)
    }

    /// What it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.get().map_or(0, |slots| size_of_val(&**slots))
    }

    fn fingerprint(hash: u64) -> u64 {
        hash >> 32
    }

    /// Remembers a leaf that was among `leaves`.
    pub(super) fn remember(&self, hash: u64, leaves: usize) {
        let count = leaves.clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two();
        let make = || (0..count).map(|_| AtomicU64::new(0)).collect();
        let slots = self.slots.get_or_init(make);
        let number = self.dropped.fetch_add(1, Relaxed);
        let kept = Self::fingerprint(hash) << 32 | u64::from(number);
        slots[Self::slot(hash, slots.len())].store(kept, Relaxed);
    }

    /// Says whether the leaf was dropped, and no more than `most` others since.
    pub(super) fn knows(&self, hash: u64, most: usize) -> bool {
        let Some(slots) = self.slots.get() else {
            return false;
        };
        let kept = slots[Self::slot(hash, slots.len())].load(Relaxed);
        let age = self.dropped.load(Relaxed).wrapping_sub(kept as u32);
        kept >> 32 == Self::fingerprint(hash) && age as usize <= most
    }

    /// Forgets a leaf that has come back.
    pub(super) fn forget(&self, hash: u64) {
        if let Some(slots) = self.slots.get() {
            slots[Self::slot(hash, slots.len())].store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_entries_are_forgotten() {
        let ghost = Ghost::default();
        let hash = |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(!ghost.knows(hash(0), 100) && ghost.bytes() == 0);
        (0..10).for_each(|number| ghost.remember(hash(number), 10));
        assert!(ghost.knows(hash(9), 1) && ghost.knows(hash(0), 10));
        assert!(!ghost.knows(hash(0), 9) && !ghost.knows(hash(10), 100));
        assert_eq!(ghost.bytes(), SLOTS_MIN * 8);
        ghost.forget(hash(9));
        assert!(!ghost.knows(hash(9), 100));
    }
}

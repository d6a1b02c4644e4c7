//! An array of the blocks used last, the newest first, of which nothing is held.
//!
//! Source: the rules of Linux since 4.12: 16 slots, and an install that moves the older ones down
//! by one.
//!
//! - A lookup compares slot by slot. What it finds goes to the front, and what stood before it
//!   down by one. A block that has left its cache leaves its slot empty, behind all others.
//! - An install puts a block in front; the last one of those that the cache may have gives way.
//!
//! Differences: the kernel's slots hold a reference, so that a block which is to go must be taken
//! out of all LRUs. These handles are weak.

use super::{BH_LRU_SIZE_MAX, Key};
use crate::buffer::{Buffer, WeakBuffer};

const NONE: (Key, WeakBuffer) = (Key { cache: 0, block: 0 }, WeakBuffer::new());

/// The LRU of one thread or processor, for any number of caches.
#[derive(Debug)]
pub struct Recent {
    slots: [(Key, WeakBuffer); BH_LRU_SIZE_MAX],
    /// Slots that have a block, the first ones.
    used: usize,
}

impl Default for Recent {
    fn default() -> Self {
        Self::new()
    }
}

impl Recent {
    /// One that knows no block.
    pub const fn new() -> Self {
        Self {
            slots: [NONE; BH_LRU_SIZE_MAX],
            used: 0,
        }
    }

    /// How many blocks it remembers.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether it remembers none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Looks a block up in the first `size` slots. Returns it with the slot that it was in.
    pub fn lookup(&mut self, key: Key, size: usize) -> Option<(Buffer, usize)> {
        let known = self.slots.get_mut(..self.used.min(size))?;
        let at = known.iter().position(|(known, _)| *known == key)?;
        let Some(buffer) = known.get(at)?.1.upgrade() else {
            self.forget(at);
            return None;
        };
        known.get_mut(..=at)?.rotate_right(1);
        Some((buffer, at))
    }

    fn forget(&mut self, at: usize) {
        if let Some(behind) = self.slots.get_mut(at..self.used)
            && let Some(first) = behind.first_mut()
        {
            *first = NONE;
            behind.rotate_left(1);
            self.used -= 1;
        }
    }

    /// Remembers a block that was not found in the first `size` slots, 1 to [`BH_LRU_SIZE_MAX`].
    /// Returns how many slots were written.
    pub fn install(&mut self, key: Key, buffer: &Buffer, size: usize) -> usize {
        let used = self.slots.get(..self.used).unwrap_or_default();
        // A cache that uses more slots may have left it behind those of this one.
        let same = used.iter().position(|(known, _)| *known == key);
        let last = size.clamp(1, BH_LRU_SIZE_MAX) - 1;
        let at = same.unwrap_or(self.used.min(last));
        if let Some(moved) = self.slots.get_mut(..=at) {
            moved.rotate_right(1);
            if let Some(first) = moved.first_mut() {
                *first = (key, buffer.downgrade());
            }
        }
        self.used = self.used.max(at + 1);
        at + 1
    }
}

//! `mainline`: an array, newest first, whose installs are a chain of swaps.
//!
//! Source: the behaviour of Linux since 4.12 (in-place install, Eric Biggers, 2017), with the 16
//! slots it has had since 3.19.
//!
//! - A lookup is `vanilla`'s.
//! - An install carries the new block into slot 0, what was there into slot 1, and so on; it ends
//!   where the block itself stood, which then costs no reference, or at an empty slot.
//! - Each slot holds a reference.
//!
//! Differences: the size may be chosen, 1…64. There are no isolated cores and no migration of
//! pages, so installs are never left out.

use uext4_buffer_cache::{BH_LRU_SIZE_MAX, Buffer, Key};

use super::array::{self, Slot, swap};
use super::effort::{Effort, Found};

#[derive(Debug)]
pub(super) struct InPlace {
    slots: [Slot; BH_LRU_SIZE_MAX],
    size: usize,
}

impl InPlace {
    pub(super) fn new(size: usize) -> Self {
        Self {
            slots: [const { None }; BH_LRU_SIZE_MAX],
            size,
        }
    }

    pub(super) fn lookup(&mut self, key: Key, effort: &mut Effort) -> Option<Found> {
        array::lookup(&mut self.slots[..self.size], key, effort)
    }

    pub(super) fn install(
        &mut self,
        key: Key,
        buffer: &Buffer,
        effort: &mut Effort,
    ) -> Option<Buffer> {
        effort.atomics += 1;
        let mut carry = Some((key, buffer.clone()));
        for slot in &mut self.slots[..self.size] {
            swap(slot, &mut carry, effort);
            match &carry {
                None => return None,
                Some((known, _)) if *known == key => {
                    effort.atomics -= 1;
                    return carry.map(|(_, same)| same);
                }
                Some(_) => {}
            }
        }
        effort.evicted = true;
        effort.atomics += 1;
        carry.map(|(_, oldest)| oldest)
    }

    pub(super) fn held(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}

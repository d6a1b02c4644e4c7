//! `vanilla` and `tunable`: an array, newest first, that is copied whole at each install.
//!
//! Source: the behaviour of Linux up to 3.18 (`BH_LRU_SIZE` 8), and of the patch of 2014 with
//! `bh_lru_size=` (16 of 64 slots by default).
//!
//! - A lookup compares slot by slot. A hit shifts those before it down by one and goes to the
//!   front.
//! - An install builds a new array: the new block, then the others without it. All slots are
//!   written, also those beyond the size in use: 8 bytes each, 64 as `vanilla`, 512 as `tunable`.
//! - Each slot holds a reference.
//!
//! Differences: the patch took any number up to 64, and with 0 each install overwrote slot 0
//! without letting go of the block there; here 0 is refused.

use std::mem;

use uext4_buffer_cache::{BH_LRU_SIZE_MAX, Buffer, Key};

use super::effort::{Effort, Found};

/// Bytes of a slot in the kernel: a pointer.
const POINTER: u32 = 8;

pub(super) type Slot = Option<(Key, Buffer)>;

#[derive(Debug)]
pub(super) struct Array {
    slots: [Slot; BH_LRU_SIZE_MAX],
    /// Slots in use.
    size: usize,
    /// Slots that an install copies.
    width: usize,
}

impl Array {
    pub(super) fn new(size: usize, width: usize) -> Self {
        Self {
            slots: [const { None }; BH_LRU_SIZE_MAX],
            size,
            width,
        }
    }

    pub(super) fn lookup(&mut self, key: Key, effort: &mut Effort) -> Option<Found> {
        lookup(&mut self.slots[..self.size], key, effort)
    }

    pub(super) fn install(
        &mut self,
        key: Key,
        buffer: &Buffer,
        effort: &mut Effort,
    ) -> Option<Buffer> {
        if matches!(&self.slots[0], Some((first, _)) if *first == key) {
            return None;
        }
        effort.atomics += 1;
        let mut next = [const { None }; BH_LRU_SIZE_MAX];
        next[0] = Some((key, buffer.clone()));
        let mut evicted = None;
        let mut used = 1;
        for slot in &mut self.slots[..self.size] {
            match slot.take() {
                None => {}
                // Its place is at the front now.
                Some((known, old)) if known == key => evicted = Some(old),
                Some(entry) if used < self.size => {
                    next[used] = Some(entry);
                    used += 1;
                }
                Some((_, old)) => {
                    evicted = Some(old);
                    effort.evicted = true;
                }
            }
        }
        effort.atomics += u32::from(evicted.is_some());
        effort.bytes_copied += self.width as u32 * POINTER;
        self.slots = next;
        evicted
    }

    pub(super) fn held(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}

/// Finds a block, slot by slot. It goes to the front, and what stood before it down by one.
pub(super) fn lookup(slots: &mut [Slot], key: Key, effort: &mut Effort) -> Option<Found> {
    let is_it = |(at, slot): (usize, &Slot)| {
        let (known, buffer) = slot.as_ref()?;
        effort.compares += 1;
        (*known == key).then(|| (at, buffer.clone()))
    };
    let (at, buffer) = slots.iter().enumerate().find_map(is_it)?;
    effort.atomics += 1;
    if at > 0 {
        effort.slot_writes += at as u32 + 1;
        slots[..=at].rotate_right(1);
    }
    Some(Found { buffer, at })
}

/// Puts a slot's content in place of another's.
pub(super) fn swap(slot: &mut Slot, carry: &mut Slot, effort: &mut Effort) {
    effort.slot_writes += 1;
    mem::swap(slot, carry);
}

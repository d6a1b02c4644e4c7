//! `recent`: the product's array, with what it does counted.

use uext4_buffer_cache::{Buffer, Key, Recent};

use super::effort::{Effort, Found};

#[derive(Debug)]
pub(super) struct Counted {
    recent: Recent,
    size: usize,
}

impl Counted {
    pub(super) fn new(size: usize) -> Self {
        Self {
            recent: Recent::new(),
            size,
        }
    }

    pub(super) fn lookup(&mut self, key: Key, effort: &mut Effort) -> Option<Found> {
        let known = self.recent.len().min(self.size) as u32;
        let found = self.recent.lookup(key, self.size);
        let Some((buffer, at)) = found else {
            effort.compares += known;
            return None;
        };
        effort.compares += at as u32 + 1;
        effort.atomics += 1;
        if at > 0 {
            effort.slot_writes += at as u32 + 1;
        }
        Some(Found { buffer, at })
    }

    pub(super) fn install(&mut self, key: Key, buffer: &Buffer, effort: &mut Effort) {
        effort.evicted = self.recent.len() >= self.size;
        effort.slot_writes += self.recent.install(key, buffer, self.size) as u32;
        // A weak handle is made, and that which gives way is dropped.
        effort.atomics += 1 + u32::from(effort.evicted);
    }
}

//! `lru-hash`: exact LRU whose entries are found by hash.
//!
//! It hits whenever an array of the same size does, but a miss looks at a chain of one entry on
//! average instead of all slots, and a hit relinks four neighbours instead of shifting an array.
//! Entries are weak: nothing is held.

use uext4_buffer_cache::{BH_LRU_SIZE_MAX, Buffer, Key, WeakBuffer};

use super::effort::{Effort, Found};

/// No entry. Entries are numbered from 1 on; 0 is the head of the order of use.
const NONE: u8 = 0;
const HEAD: usize = 0;
const ENTRIES: usize = BH_LRU_SIZE_MAX + 1;

#[derive(Debug)]
struct Entry {
    key: Key,
    buffer: WeakBuffer,
    /// In the order of use, a ring through [`HEAD`].
    newer: u8,
    older: u8,
    /// In the chain of its hash.
    next: u8,
}

const EMPTY: Entry = Entry {
    key: Key { cache: 0, block: 0 },
    buffer: WeakBuffer::new(),
    newer: NONE,
    older: NONE,
    next: NONE,
};

#[derive(Debug)]
pub(super) struct Hashed {
    entries: [Entry; ENTRIES],
    chains: [u8; BH_LRU_SIZE_MAX],
    size: usize,
    /// Entries in use, the lowest numbers.
    used: usize,
}

fn chain_of(key: Key) -> usize {
    (key.hash() >> 58) as usize % BH_LRU_SIZE_MAX
}

impl Hashed {
    pub(super) fn new(size: usize) -> Self {
        Self {
            entries: [EMPTY; ENTRIES],
            chains: [NONE; BH_LRU_SIZE_MAX],
            size,
            used: 0,
        }
    }

    fn find(&self, key: Key, effort: &mut Effort) -> Option<usize> {
        effort.compares += 1;
        let mut at = self.chains[chain_of(key)];
        while at != NONE {
            let entry = &self.entries[usize::from(at)];
            effort.compares += 1;
            if entry.key == key {
                return Some(usize::from(at));
            }
            at = entry.next;
        }
        None
    }

    fn unlink(&mut self, at: usize) {
        let (newer, older) = (self.entries[at].newer, self.entries[at].older);
        self.entries[usize::from(newer)].older = older;
        self.entries[usize::from(older)].newer = newer;
    }

    fn link_newest(&mut self, at: usize) {
        let newest = self.entries[HEAD].older;
        self.entries[at].newer = NONE;
        self.entries[at].older = newest;
        self.entries[usize::from(newest)].newer = at as u8;
        self.entries[HEAD].older = at as u8;
    }

    pub(super) fn lookup(&mut self, key: Key, effort: &mut Effort) -> Option<Found> {
        let at = self.find(key, effort)?;
        effort.atomics += 1;
        let buffer = self.entries[at].buffer.upgrade()?;
        if usize::from(self.entries[HEAD].older) != at {
            self.unlink(at);
            self.link_newest(at);
            effort.slot_writes += 4;
        }
        Some(Found { buffer, at: 0 })
    }

    pub(super) fn install(&mut self, key: Key, buffer: &Buffer, effort: &mut Effort) {
        let mut ignored = Effort::default();
        let at = match self.find(key, &mut ignored) {
            // It stood for a block that left the cache and came back.
            Some(at) => {
                self.unlink(at);
                at
            }
            None => self.take_entry(key, effort),
        };
        self.entries[at].buffer = buffer.downgrade();
        effort.atomics += 1;
        effort.slot_writes += 4;
        self.link_newest(at);
    }

    /// An entry for this block, in its chain: one that was not used yet, or the oldest.
    fn take_entry(&mut self, key: Key, effort: &mut Effort) -> usize {
        let at = if self.used < self.size {
            self.used += 1;
            self.used
        } else {
            let oldest = usize::from(self.entries[HEAD].newer);
            self.unlink(oldest);
            self.unchain(oldest);
            effort.evicted = true;
            effort.atomics += 1;
            oldest
        };
        let chain = chain_of(key);
        self.entries[at].key = key;
        self.entries[at].next = self.chains[chain];
        self.chains[chain] = at as u8;
        at
    }

    fn unchain(&mut self, at: usize) {
        let chain = chain_of(self.entries[at].key);
        let next = self.entries[at].next;
        if usize::from(self.chains[chain]) == at {
            self.chains[chain] = next;
            return;
        }
        let mut before = usize::from(self.chains[chain]);
        while usize::from(self.entries[before].next) != at {
            before = usize::from(self.entries[before].next);
        }
        self.entries[before].next = next;
    }
}

//! `set-associative`: sets of four entries by hash, a word of tags each, and predicted reuse.
//!
//! ```text
//! hash of block ─▶ set 0..16      tags: one u64          entries: key and weak handle
//!                                ┌────┬────┬────┬────┐  ┌────┬────┬────┬────┐
//!                                │ t0 │ t1 │ t2 │ t3 │  │    │    │    │    │
//!                                └────┴────┴────┴────┘  └────┴────┴────┴────┘
//!                                 reuse: two bits each, 0 soon … 3 not expected
//! ```
//!
//! - A look-up compares four tags of 16 bits in one word; only an entry whose tag agrees is looked at.
//! - A hit sets its prediction to "soon", which it mostly is already: nothing is moved.
//! - A new entry is not expected at all (3), one in eight late (2), or soon (0) if the caller said so.
//!   One that the caller expects to be used once is not let in at its first use; the tags of such blocks
//!   are remembered in 64 places by hash, and one that is found there comes in.
//! - The entry that gives way is the first that is not expected at all; if there is none, all grow
//!   older until there is (bimodal re-reference interval prediction: Jaleel and others, "High
//!   performance cache replacement using re-reference interval prediction", ISCA 2010). So newcomers
//!   push one another out before they push out what was used again, and of five blocks that come round
//!   in a set of four, three are found.
//! - Entries are weak: nothing is held, and nothing need be told when a cache or a block goes. What
//!   died is found by the look-up that fails to revive it.
//!
//! Costs: with fewer than 64 blocks in use some sets have more than four of them; exact LRU would have
//! kept them all.

use std::sync::{Arc, Weak};

use super::{BH_LRU_SIZE_MAX, Effort, Found, Key, Reuse};
use crate::buffer::Inner;

const WAYS: usize = 4;
const SETS: usize = BH_LRU_SIZE_MAX / WAYS;
const GHOSTS: usize = 64;
/// The bits of a tag, and the lowest bit of each of four.
const TAG_BITS: u32 = 16;
const LOW_BITS: u64 = 0x0001_0001_0001_0001;
const HIGH_BITS: u64 = LOW_BITS << (TAG_BITS - 1);
/// Predictions: when an entry is used again.
const SOON: u8 = 0;
const LATE: u8 = 2;
const NOT_EXPECTED: u8 = 3;
/// Of so many newcomers one is expected late, so that what was expected soon grows old.
const ONE_IN: u8 = 8;

#[derive(Debug)]
struct Set {
    /// Four tags; 0 stands for no entry.
    tags: u64,
    /// Two bits a way.
    expected: u8,
    ways: [(Key, Weak<Inner>); WAYS],
}

const NOBODY: (Key, Weak<Inner>) = (Key { cache: 0, block: 0 }, Weak::new());

const EMPTY: Set = Set {
    tags: 0,
    expected: 0,
    ways: [NOBODY; WAYS],
};

#[derive(Debug)]
pub(super) struct Sets {
    sets: [Set; SETS],
    ghosts: [u16; GHOSTS],
    newcomers: u8,
}

impl Default for Sets {
    fn default() -> Self {
        Self::new()
    }
}

/// Never 0.
fn tag_of(hash: u64) -> u16 {
    (hash >> 44) as u16 | 1
}

/// The sets in use for a size: a power of two, so that at least `size` blocks fit.
fn set_of(hash: u64, size: usize) -> usize {
    let sets = size.div_ceil(WAYS).next_power_of_two().min(SETS);
    (hash >> 60) as usize & (sets - 1)
}

impl Set {
    /// A bit at the top of each tag that is this one. A free way above one that agrees may be marked
    /// too: who asks compares keys.
    fn matches(&self, tag: u16) -> u64 {
        let differ = self.tags ^ (LOW_BITS * u64::from(tag));
        differ.wrapping_sub(LOW_BITS) & !differ & HIGH_BITS
    }

    fn expected(&self, way: usize) -> u8 {
        self.expected >> (2 * way) & 3
    }

    fn predict(&mut self, way: usize, when: u8) {
        self.expected = self.expected & !(3 << (2 * way)) | when << (2 * way);
    }

    fn set_tag(&mut self, way: usize, tag: u16) {
        let shift = TAG_BITS * way as u32;
        self.tags = self.tags & !(0xffff << shift) | u64::from(tag) << shift;
    }

    fn is_empty(&self, way: usize) -> bool {
        self.tags >> (TAG_BITS * way as u32) & 0xffff == 0
    }

    /// The way that is free or gives way.
    fn victim(&mut self) -> usize {
        if let Some(free) = (0..WAYS).find(|way| self.is_empty(*way)) {
            return free;
        }
        let latest = (0..WAYS).map(|way| self.expected(way)).max().unwrap_or(0);
        for way in 0..WAYS {
            let older = self.expected(way) + (NOT_EXPECTED - latest);
            self.predict(way, older);
        }
        let last = (0..WAYS).find(|way| self.expected(*way) == NOT_EXPECTED);
        last.unwrap_or(0)
    }
}

impl Sets {
    pub(super) const fn new() -> Self {
        Self {
            sets: [EMPTY; SETS],
            ghosts: [0; GHOSTS],
            newcomers: 0,
        }
    }

    pub(super) fn lookup(&mut self, key: Key, size: usize, effort: &mut Effort) -> Option<Found> {
        let hash = key.hash();
        let set = &mut self.sets[set_of(hash, size)];
        let mut matches = set.matches(tag_of(hash));
        effort.compares += 1;
        while matches != 0 {
            let way = (matches.trailing_zeros() / TAG_BITS) as usize;
            matches &= matches - 1;
            effort.compares += 1;
            let (known, buffer) = &set.ways[way];
            if *known != key {
                continue;
            }
            effort.atomics += 1;
            let Some(buffer) = buffer.upgrade() else {
                set.set_tag(way, 0);
                return None;
            };
            if set.expected(way) != SOON {
                set.predict(way, SOON);
                effort.slot_writes += 1;
            }
            return Some(Found { buffer, at: way });
        }
        None
    }

    fn newcomer(&mut self) -> u8 {
        self.newcomers = (self.newcomers + 1) % ONE_IN;
        if self.newcomers == 0 {
            LATE
        } else {
            NOT_EXPECTED
        }
    }

    /// Whether a block that may be used once comes in: if it was seen not long ago.
    fn admits(&mut self, hash: u64, effort: &mut Effort) -> bool {
        let tag = tag_of(hash);
        effort.compares += 1;
        effort.slot_writes += 1;
        let ghost = &mut self.ghosts[(hash >> 38) as usize % GHOSTS];
        effort.ghost_hit = *ghost == tag;
        *ghost = if effort.ghost_hit { 0 } else { tag };
        effort.ghost_hit
    }

    pub(super) fn install(
        &mut self,
        key: Key,
        buffer: &Arc<Inner>,
        size: usize,
        reuse: Reuse,
        effort: &mut Effort,
    ) {
        let hash = key.hash();
        if reuse == Reuse::Once && !self.admits(hash, effort) {
            return;
        }
        let expected = match reuse {
            Reuse::Soon => SOON,
            Reuse::Unknown | Reuse::Once => self.newcomer(),
        };
        let set = &mut self.sets[set_of(hash, size)];
        // It may be there: where a core is shared, who found the front taken did not look.
        let same = (0..WAYS).find(|way| !set.is_empty(*way) && set.ways[*way].0 == key);
        let way = same.unwrap_or_else(|| set.victim());
        if same.is_none() && !set.is_empty(way) {
            effort.evicted = true;
            effort.atomics += 1;
        }
        set.set_tag(way, tag_of(hash));
        set.predict(way, expected);
        set.ways[way] = (key, Arc::downgrade(buffer));
        effort.atomics += 1;
        effort.slot_writes += 1;
    }
}

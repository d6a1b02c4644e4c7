//! An LRU of sets of eight entries by hash, a word of tags each, and predicted reuse.
//!
//! ```text
//! hash of block ─▶ set 0..8      tags: one u64            entries: key and weak handle
//!                               ┌────┬────┬─ ─ ┬────┐  ┌────┬────┬─ ─ ┬────┐
//!                               │ t0 │ t1 │    │ t7 │  │    │    │    │    │
//!                               └────┴────┴─ ─ ┴────┘  └────┴────┴─ ─ ┴────┘
//!                                reuse: two bits each, 0 soon … 3 not expected
//! ```
//!
//! - A lookup compares eight tags of 8 bits in one word; only an entry whose tag agrees is looked
//!   at. Four ways with longer tags cost the same, and of as many entries fewer are found: some
//!   sets are full of what comes back while others hold what is done with.
//! - A hit sets its prediction to "soon", which it mostly is already: nothing is moved.
//! - A new entry is not expected at all (3), one in eight late (2), or soon (0) if the caller
//!   said so. One that the caller expects to be used once is not let in at its first use; the
//!   tags of such blocks are remembered, the last four of each of 16 hashes, and one that is
//!   found there comes in as one that is used again soon.
//! - The entry that gives way is the first that is not expected at all; if there is none, all
//!   grow older until there is (bimodal re-reference interval prediction: Jaleel and others,
//!   "High performance cache replacement using re-reference interval prediction", ISCA 2010). So
//!   newcomers push one another out before they push out what was used again, and of nine blocks
//!   that come round in a set of eight, most are found.
//! - Entries are weak: nothing is held, and nothing need be reported when a cache or a block
//!   goes. What died is found by the lookup that fails to revive it.
//!
//! Costs: with fewer than 64 blocks in use some sets have more than eight of them; exact LRU
//! would have stored them all.

use uext4_buffer_cache::{BH_LRU_SIZE_MAX, Buffer, Key, Reuse, WeakBuffer};

use super::effort::{Effort, Found};

const WAYS: usize = 8;
const SETS: usize = BH_LRU_SIZE_MAX / WAYS;
/// The bits of a tag, the tag itself, and the lowest bit of each of eight.
const TAG_BITS: u32 = u64::BITS / WAYS as u32;
const TAG: u64 = (1 << TAG_BITS) - 1;
const LOW_BITS: u64 = u64::MAX / TAG;
/// Words of four tags that are remembered, the newest lowest.
const GHOSTS: usize = 16;
const GHOST_BITS: u32 = 16;
const GHOST: u64 = (1 << GHOST_BITS) - 1;
const GHOST_LOW_BITS: u64 = u64::MAX / GHOST;
/// Predictions: when an entry is used again.
const SOON: u16 = 0;
const LATE: u16 = 2;
const NOT_EXPECTED: u16 = 3;
/// Of so many newcomers one is expected late, so that what was expected soon grows old.
const ONE_IN: u8 = 8;

#[derive(Debug)]
struct Set {
    /// Eight tags; 0 stands for no entry.
    tags: u64,
    /// Two bits a way.
    expected: u16,
    ways: [(Key, WeakBuffer); WAYS],
}

const NONE: (Key, WeakBuffer) = (Key { cache: 0, block: 0 }, WeakBuffer::new());

const EMPTY: Set = Set {
    tags: 0,
    expected: 0,
    ways: [NONE; WAYS],
};

/// The LRU of one thread or processor: up to 64 blocks of any number of caches.
#[derive(Debug)]
pub(super) struct SetAssociative {
    sets: [Set; SETS],
    ghosts: [u64; GHOSTS],
    newcomers: u8,
}

impl Default for SetAssociative {
    fn default() -> Self {
        Self::new()
    }
}

/// Never 0.
fn tag_of(hash: u64) -> u64 {
    (hash >> 44 & TAG).max(1)
}

/// Never 0.
fn ghost_of(hash: u64) -> u64 {
    (hash >> 44 & GHOST).max(1)
}

/// A bit at the top of each part of `word` that is `part`; `low` has the lowest bit of each. A part
/// above such a one may be marked too if it differs in its lowest bit only.
fn equal_parts(word: u64, part: u64, low: u64) -> u64 {
    let differ = word ^ low.wrapping_mul(part);
    differ.wrapping_sub(low) & !differ & low.rotate_right(1)
}

/// The sets in use for a size: a power of two, so that at least `size` blocks fit.
fn set_of(hash: u64, size: usize) -> usize {
    let sets = size.div_ceil(WAYS).next_power_of_two().min(SETS);
    (hash >> 61) as usize & (sets - 1)
}

impl Set {
    fn expected(&self, way: usize) -> u16 {
        self.expected >> (2 * way) & 3
    }

    fn predict(&mut self, way: usize, when: u16) {
        self.expected = self.expected & !(3 << (2 * way)) | when << (2 * way);
    }

    fn set_tag(&mut self, way: usize, tag: u64) {
        let shift = TAG_BITS * way as u32;
        self.tags = self.tags & !(TAG << shift) | tag << shift;
    }

    fn is_empty(&self, way: usize) -> bool {
        self.tags >> (TAG_BITS * way as u32) & TAG == 0
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

impl SetAssociative {
    /// One that knows no block.
    pub(super) const fn new() -> Self {
        Self {
            sets: [EMPTY; SETS],
            ghosts: [0; GHOSTS],
            newcomers: 0,
        }
    }

    /// Looks a block up in as many sets as `size` entries take, rounded up to a power of two;
    /// `size` is 1 to [`BH_LRU_SIZE_MAX`].
    pub(super) fn lookup(&mut self, key: Key, size: usize, effort: &mut Effort) -> Option<Found> {
        let hash = key.hash();
        let set = &mut self.sets[set_of(hash, size)];
        let mut matches = equal_parts(set.tags, tag_of(hash), LOW_BITS);
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

    fn newcomer(&mut self) -> u16 {
        self.newcomers = (self.newcomers + 1) % ONE_IN;
        if self.newcomers == 0 {
            LATE
        } else {
            NOT_EXPECTED
        }
    }

    /// Whether a block that may be used once comes in: if it was seen not long ago.
    fn admits(&mut self, hash: u64, effort: &mut Effort) -> bool {
        let tag = ghost_of(hash);
        effort.compares += 1;
        effort.slot_writes += 1;
        let ghosts = &mut self.ghosts[(hash >> 38) as usize % GHOSTS];
        // The lowest mark is a true one.
        let seen = equal_parts(*ghosts, tag, GHOST_LOW_BITS);
        effort.ghost_hit = seen != 0;
        *ghosts = if effort.ghost_hit {
            let at = seen.trailing_zeros() / GHOST_BITS * GHOST_BITS;
            *ghosts & !(GHOST << at)
        } else {
            *ghosts << GHOST_BITS | tag
        };
        effort.ghost_hit
    }

    /// Remembers a block that was not found. `size` as for [`lookup`](Self::lookup).
    pub(super) fn install(
        &mut self,
        key: Key,
        buffer: &Buffer,
        size: usize,
        reuse: Reuse,
        effort: &mut Effort,
    ) {
        let hash = key.hash();
        if reuse == Reuse::Once && !self.admits(hash, effort) {
            return;
        }
        let expected = match reuse {
            Reuse::Soon | Reuse::Once => SOON,
            Reuse::Unknown => self.newcomer(),
        };
        let set = &mut self.sets[set_of(hash, size)];
        // It may be there: where threads share an LRU, one that found it locked did not look.
        let same = (0..WAYS).find(|way| !set.is_empty(*way) && set.ways[*way].0 == key);
        let way = same.unwrap_or_else(|| set.victim());
        if same.is_none() && !set.is_empty(way) {
            effort.evicted = true;
            effort.atomics += 1;
        }
        set.set_tag(way, tag_of(hash));
        set.predict(way, expected);
        set.ways[way] = (key, buffer.downgrade());
        effort.atomics += 1;
        effort.slot_writes += 1;
    }
}

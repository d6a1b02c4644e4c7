//! The small cache in front of the table: the last blocks a thread or a core used.
//!
//! # Why
//!
//! One operation comes back to the same few blocks: creating a file in a large directory with quota
//! touches ten, seven of which the next creation touches again. Each look-up in the table takes a
//! lock that all threads share; here there is none.
//!
//! # Policies
//!
//! | policy | what it is | a miss looks at | a hit writes | holds blocks |
//! |---|---|---|---|---|
//! | `vanilla` | array of 8, newest first ([`array`]) | all slots | all slots before it | yes |
//! | `tunable` | the same, 1…64 of 64 slots ([`array`]) | all slots | all slots before it | yes |
//! | `mainline` | array of 16, installs in place ([`in_place`]) | all slots | all slots before it | yes |
//! | `lru-hash` | exact LRU found by hash ([`hashed`]) | a chain | four links | no |
//! | `set-associative` | sets of eight by hash, predicted reuse ([`sets`]) | one word | at most two bits | no |
//!
//! A policy changes the cost, never an answer. The first three hold a reference to each block they
//! know, as the kernel does, so that such a block cannot leave the cache before
//! [`invalidate`](Fronts::invalidate) is called. The others know blocks weakly: a block may leave
//! the cache at any moment, its entry is then found dead and dropped.
//!
//! # The numbers behind the default
//!
//! Strict LRU over a cycle of k blocks hits always if it has k slots and never if it has fewer, so a
//! size is right for one workload: 16 where 8 held everything costs compares on each miss and writes
//! on each hit; 8 where ten are needed finds nothing. Sets of eight entries with tags cost the
//! same one word whatever the size, and blocks that come once do not push out those that come back.
//!
//! # Scopes
//!
//! `thread`: each thread has its own. `core`: threads on one core share one, as in the kernel; their
//! working sets mix there. What threads share is behind a lock that look-ups only *try*.
//!
//! | tunable | unit | range | default |
//! |---|---|---|---|
//! | `bh_lru` | policy | see above | `set-associative` |
//! | `bh_lru_size` | blocks | 1…64 | `vanilla` 8, `tunable`, `mainline` and `lru-hash` 16, `set-associative` 64 |
//! | `bh_lru_scope` | | `thread`, `core` | `thread` |
//! | `bh_lru_hints` | | `on`, `off` | `on` |
//!
//! Source: Sebastien Buisson with Liang Zhen and Andreas Dilger, "[PATCH] Allow increasing the
//! buffer-head per-CPU LRU size", 2014, and the policies named there.

mod array;
mod fronts;
mod hashed;
mod in_place;
mod policy;
mod sets;

use std::sync::Arc;

use crate::buffer::Inner;

pub(crate) use fronts::Fronts;
pub use fronts::bind_core;
pub use policy::{BhLruOptions, Policy, PolicyError, Reuse, Scope};

use array::Array;
use hashed::Hashed;
use in_place::InPlace;
use sets::Sets;

/// Most blocks one knows.
pub const BH_LRU_SIZE_MAX: usize = 64;

/// What an entry stands for: the number of a cache (0: nothing) and the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) cache: u64,
    pub(crate) block: u64,
}

impl Key {
    /// Bits that look random, the upper ones most, and are the same for the same block of any cache:
    /// what a block meets in its set does not depend on how many caches were made before.
    fn hash(self) -> u64 {
        self.block.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// What a call did, in the units of the cost model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Keys compared; a word of tags counts as one.
    pub(crate) compares: u32,
    /// Entries written.
    pub(crate) slot_writes: u32,
    /// Bytes of the array that were copied or cleared as a whole.
    pub(crate) bytes_copied: u32,
    /// Reference counts changed.
    pub(crate) atomics: u32,
    /// An entry gave way to another.
    pub(crate) evicted: bool,
    /// The block was remembered from before, though not known.
    pub(crate) ghost_hit: bool,
}

/// A block that was found, and at which place: 0 is the first looked at.
pub(crate) struct Found {
    pub(crate) buffer: Arc<Inner>,
    pub(crate) at: usize,
}

/// What one thread or core knows, by the rules of one policy.
#[derive(Debug)]
enum Front {
    Array(Box<Array>),
    InPlace(Box<InPlace>),
    Hashed(Box<Hashed>),
    Sets(Box<Sets>),
}

impl Front {
    fn new(policy: Policy, size: usize) -> Self {
        match policy {
            Policy::Vanilla => Self::Array(Box::new(Array::new(size, size))),
            Policy::Tunable => Self::Array(Box::new(Array::new(size, BH_LRU_SIZE_MAX))),
            Policy::Mainline => Self::InPlace(Box::new(InPlace::new(size))),
            Policy::LruHash => Self::Hashed(Box::new(Hashed::new(size))),
            Policy::SetAssociative => Self::Sets(Box::default()),
        }
    }

    fn lookup(&mut self, key: Key, size: usize, effort: &mut Effort) -> Option<Found> {
        match self {
            Self::Array(array) => array.lookup(key, effort),
            Self::InPlace(array) => array.lookup(key, effort),
            Self::Hashed(hashed) => hashed.lookup(key, effort),
            Self::Sets(sets) => sets.lookup(key, size, effort),
        }
    }

    /// Takes a block in that was not found. What it no longer knows is let go by the caller, not
    /// here: it may be the last reference.
    fn install(
        &mut self,
        key: Key,
        buffer: &Arc<Inner>,
        size: usize,
        reuse: Reuse,
        effort: &mut Effort,
    ) -> Option<Arc<Inner>> {
        match self {
            Self::Array(array) => array.install(key, buffer, effort),
            Self::InPlace(array) => array.install(key, buffer, effort),
            Self::Hashed(hashed) => {
                hashed.install(key, buffer, effort);
                None
            }
            Self::Sets(sets) => {
                sets.install(key, buffer, size, reuse, effort);
                None
            }
        }
    }

    /// Blocks it holds a reference of.
    fn parked(&self) -> usize {
        match self {
            Self::Array(array) => array.parked(),
            Self::InPlace(array) => array.parked(),
            Self::Hashed(_) | Self::Sets(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests;

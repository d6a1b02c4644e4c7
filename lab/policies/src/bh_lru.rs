//! Designs of the LRU in front of the buffer cache.
//!
//! | policy | what it is | a miss compares | a hit writes | holds blocks |
//! |---|---|---|---|---|
//! | `none` | nothing: the table is asked | nothing | nothing | no |
//! | `vanilla` | array of 8, newest first (`array`) | all slots | all slots before it | yes |
//! | `tunable` | the same, 1…64 of 64 slots (`array`) | all slots | all slots before it | yes |
//! | `mainline` | array of 16, installs in place (`in_place`) | all slots | all slots before it | yes |
//! | `lru-hash` | exact LRU found by hash (`hashed`) | a chain | four links | no |
//! | `set-associative` | sets of eight by hash, predicted reuse | one word | at most two bits | no |
//! | `recent` | the product's: `mainline` with weak handles | all slots | all slots before it | no |
//!
//! The three arrays hold a reference to each block they know, as the kernel does, so such a block
//! cannot leave the cache before `invalidate` is called. The others hold weak handles.
//!
//! # Scopes
//!
//! `thread`: each thread has an LRU of its own. `core`: the threads of one processor share one,
//! as in the kernel, and their working sets mix there. Each LRU has a lock, which lookups only
//! *try*.
//!
//! | setting | unit | range | default |
//! |---|---|---|---|
//! | policy | | see above | `recent` |
//! | size | blocks | 1…64 | `vanilla` 8, `set-associative` 64, others 16 |
//! | scope | | `thread`, `core` | `thread` |
//!
//! Source: Sebastien Buisson with Liang Zhen and Andreas Dilger, "\[PATCH\] Allow increasing the
//! buffer-head per-CPU LRU size", 2014, and the kernels named in the files.

mod array;
mod counted;
mod effort;
mod hashed;
mod in_place;
mod lrus;
mod policy;
mod set_associative;
mod stats;

use uext4_buffer_cache::{Buffer, Key, Reuse};

pub use lrus::{Lrus, bind_core};
pub use policy::{Options, Policy, PolicyError, Scope};
pub use stats::Stats;

use array::Array;
use counted::Counted;
use effort::{Effort, Found};
use hashed::Hashed;
use in_place::InPlace;
use set_associative::SetAssociative;

/// What one thread or processor knows, by the rules of one policy.
#[derive(Debug)]
enum Lru {
    None,
    Array(Box<Array>),
    InPlace(Box<InPlace>),
    Hashed(Box<Hashed>),
    Sets(Box<SetAssociative>, usize),
    Recent(Box<Counted>),
}

impl Lru {
    fn new(policy: Policy, size: usize) -> Self {
        match policy {
            Policy::None => Self::None,
            Policy::Vanilla => Self::Array(Box::new(Array::new(size, size))),
            Policy::Tunable => {
                let width = uext4_buffer_cache::BH_LRU_SIZE_MAX;
                Self::Array(Box::new(Array::new(size, width)))
            }
            Policy::Mainline => Self::InPlace(Box::new(InPlace::new(size))),
            Policy::LruHash => Self::Hashed(Box::new(Hashed::new(size))),
            Policy::SetAssociative => Self::Sets(Box::default(), size),
            Policy::Recent => Self::Recent(Box::new(Counted::new(size))),
        }
    }

    fn lookup(&mut self, key: Key, effort: &mut Effort) -> Option<Found> {
        match self {
            Self::None => None,
            Self::Array(array) => array.lookup(key, effort),
            Self::InPlace(array) => array.lookup(key, effort),
            Self::Hashed(hashed) => hashed.lookup(key, effort),
            Self::Sets(sets, size) => sets.lookup(key, *size, effort),
            Self::Recent(recent) => recent.lookup(key, effort),
        }
    }

    /// Remembers a block that was not found. The caller drops what gave way, not this function: it
    /// may be the last reference, and a lock is held here.
    fn install(
        &mut self,
        key: Key,
        buffer: &Buffer,
        reuse: Reuse,
        effort: &mut Effort,
    ) -> Option<Buffer> {
        match self {
            Self::None => None,
            Self::Array(array) => array.install(key, buffer, effort),
            Self::InPlace(array) => array.install(key, buffer, effort),
            Self::Hashed(hashed) => {
                hashed.install(key, buffer, effort);
                None
            }
            Self::Sets(sets, size) => {
                sets.install(key, buffer, *size, reuse, effort);
                None
            }
            Self::Recent(recent) => {
                recent.install(key, buffer, effort);
                None
            }
        }
    }

    /// Blocks that it holds a reference to.
    fn held(&self) -> usize {
        match self {
            Self::Array(array) => array.held(),
            Self::InPlace(array) => array.held(),
            Self::None | Self::Hashed(_) | Self::Sets(..) | Self::Recent(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests;

//! Designs of the index that finds blocks of equal attributes.
//!
//! | [`Policy`] | search | removal | entries that go |
//! |---|---|---|---|
//! | `mb1` | shared handle | sleeps for the exclusive one | oldest idle one |
//! | `mbcache2` | chain's lock | at once | by memory only, touched first |
//! | `mbcache2-touch-fixed` | chain's lock | at once | by memory only, oldest first |
//! | `mainline` | chain's lock, with room | waits until not found | second chance |
//! | `one-donor` | the product's: no lock | waits until not found | clocks, marks from 0 to 3 |
//!
//! Each is a file of its own, which says where it comes from and where it differs. Where a
//! removal is at once, what was found may have gone. All but `one-donor` know only the 32-bit
//! hash on disk before a block is read, which any thread can make equal: such blocks are read one
//! by one, and cost time.
//!
//! # Locks
//!
//! Of a chain, of the list, of an entry, of the queue of waiting threads. Those of `mb1` nest: the
//! list's, the chain of a number, the chain of a key, an entry's; the queue's comes before an
//! entry's. Elsewhere a thread has one at a time. Each but the queue's counts how often it was
//! taken, waited for, and handed from one thread to another.
//!
//! # Cost
//!
//! A search: a lock and the entries of a chain, n/1024 with n entries and n equal ones at worst; in
//! `mb1` five locks, and as many when it ends. An entry that comes takes two locks, in `mb1` four.

mod chains;
mod list;
mod lock;
mod mainline;
mod mb1;
mod mbcache2;
mod policy;
mod stats;
mod wait;

use std::sync::Arc;

use uext4_mbcache::{Cache, Entry, Index};

pub use mainline::Worker;
pub use policy::{Options, Policy, UnknownPolicy};
pub use stats::Stats;

/// About what an entry of a chain takes: itself, its places in a chain and on the list, and what
/// the allocator of memory adds.
const CHAINED_ENTRY_BYTES: usize = size_of::<Entry>() + 16 + 16 + 24 + 16;
/// Most entries of any index.
const ENTRIES_MAX: usize = 1 << 22;

/// An index that counts what it does, and has a worker.
pub trait Measured: Index {
    /// The counters now.
    fn stats(&self) -> Stats;

    /// Does what the kernel leaves to a worker, if there is anything; returns how many entries
    /// went.
    fn work(&self) -> usize {
        0
    }
}

/// A cache under a policy, with all that it counts.
#[derive(Debug)]
pub struct Subject {
    /// The cache.
    pub cache: Cache,
    index: Option<Arc<dyn Measured>>,
}

impl Subject {
    /// An empty cache of a file system with this many blocks.
    ///
    /// # Errors
    /// Numbers that the product refuses.
    pub fn new(options: &Options, blocks: u64) -> Result<Self, uext4_mbcache::TunableError> {
        let index = options.index();
        let cache = match &index {
            Some(index) => Cache::with_index(Arc::<dyn Measured>::clone(index), options.users_max),
            None => {
                let product = uext4_mbcache::Options {
                    max_entries: options.max_entries,
                    users_max: options.users_max,
                    ..uext4_mbcache::Options::default()
                };
                Cache::new(&product.for_blocks(blocks))?
            }
        };
        Ok(Self { cache, index })
    }

    /// What the index has counted.
    pub fn stats(&self) -> Stats {
        match &self.index {
            Some(index) => index.stats(),
            None => Stats::of_product(&self.cache.stats()),
        }
    }

    /// Runs the worker, if it has something to do; returns how many entries went.
    pub fn work(&self) -> usize {
        self.index.as_ref().map_or(0, |index| index.work())
    }
}

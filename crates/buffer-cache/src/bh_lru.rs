//! The small LRU in front of the table: the last blocks that a thread used.
//!
//! # Why
//!
//! One operation comes back to the same few blocks: creating a file in a large directory with quota
//! touches ten, seven of which the next creation touches again. Each lookup in the table takes a
//! lock that all threads share; here there is none.
//!
//! # The design
//!
//! Each thread has one array of the blocks used last, the newest first ([`Recent`]), for all its
//! caches: the design of the kernel, 16 blocks. It holds weak handles, so it needs no lock, keeps
//! no memory alive, and nothing has to be invalidated when a block or a cache goes.
//!
//! Strict LRU over a cycle of k blocks always hits if it has k slots and never if it has fewer,
//! so a size is right for one workload. Designs without that cliff find more by the lab's counts;
//! by the clock no difference was proven between them, this one and none at all, so this is the
//! simplest one that spares a lookup the lock of the table.
//!
//! # The seam
//!
//! Another design is an object with the trait [`BhLru`], given in [`crate::Options::bh_lru`]. It
//! changes what a lookup costs, never its answer. The designs of the kernel before 3.19, of the
//! patch of 2014 and of today's kernel, and one with sets, are in `lab/policies`, with the tests
//! that any design must pass.
//!
//! Source: Sebastien Buisson with Liang Zhen and Andreas Dilger, "\[PATCH\] Allow increasing the
//! buffer-head per-CPU LRU size", 2014.

mod recent;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use crate::buffer::Buffer;

pub use recent::Recent;

/// Most blocks that one LRU knows.
pub const BH_LRU_SIZE_MAX: usize = 64;
/// Blocks that the LRU of a thread knows if nothing is said: as in the kernel.
pub const BH_LRU_SIZE: usize = 16;

thread_local! {
    /// The LRU of this thread.
    static LRU: RefCell<Recent> = const { RefCell::new(Recent::new()) };
}

/// What an entry stands for: the number of a cache in this process (0: none) and a block of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// The cache.
    pub cache: u64,
    /// The block's number.
    pub block: u64,
}

impl Key {
    /// Bits that look random, the upper ones most. They are the same for the same block of any
    /// cache: which entries a block competes with does not depend on how many caches were made
    /// before.
    pub fn hash(self) -> u64 {
        self.block.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// What a caller knows of when a block is used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reuse {
    /// Nothing.
    #[default]
    Unknown,
    /// Soon: bitmaps, group descriptors, quota, the first block of a directory.
    Soon,
    /// Perhaps never: the other blocks of directories, data. Let in at its second use.
    Once,
}

/// What a cache asks before it looks into its table.
///
/// One object serves all threads of a cache, and may serve several caches. It is called with no
/// lock of the cache held, must not call the cache, and should not wait: a lookup that would have
/// to wait for another thread answers `None`.
pub trait BhLru: fmt::Debug + Send + Sync {
    /// The block, if this thread or processor used it lately and it is still in its cache.
    fn lookup(&self, key: Key) -> Option<Buffer>;

    /// Remembers a block that [`lookup`](Self::lookup) did not find.
    fn install(&self, key: Key, buffer: &Buffer, reuse: Reuse);

    /// Drops every reference to a block, because memory is short or a cache goes. Returns how many
    /// LRUs held any. (`invalidate_bh_lrus` in the kernel.)
    fn invalidate(&self) -> usize {
        0
    }
}

/// The LRUs of one cache.
#[derive(Debug)]
pub(crate) enum Lrus {
    /// Those of the threads, of which this cache uses so many entries.
    OfThreads(usize),
    Given(Arc<dyn BhLru>),
}

impl Lrus {
    pub(crate) fn new(given: Option<Arc<dyn BhLru>>, size: usize) -> Self {
        match given {
            Some(given) => Self::Given(given),
            None => Self::OfThreads(size.clamp(1, BH_LRU_SIZE_MAX)),
        }
    }

    pub(crate) fn lookup(&self, key: Key) -> Option<Buffer> {
        match self {
            Self::OfThreads(size) => {
                let find = |lru: &RefCell<Recent>| {
                    let (buffer, _) = lru.borrow_mut().lookup(key, *size)?;
                    Some(buffer)
                };
                // A thread that is being torn down goes without.
                LRU.try_with(find).ok().flatten()
            }
            Self::Given(given) => given.lookup(key),
        }
    }

    pub(crate) fn install(&self, key: Key, buffer: &Buffer, reuse: Reuse) {
        match self {
            Self::OfThreads(size) => {
                let install = |lru: &RefCell<Recent>| {
                    lru.borrow_mut().install(key, buffer, *size);
                };
                _ = LRU.try_with(install);
            }
            Self::Given(given) => given.install(key, buffer, reuse),
        }
    }

    pub(crate) fn invalidate(&self) -> usize {
        match self {
            Self::OfThreads(_) => 0,
            Self::Given(given) => given.invalidate(),
        }
    }
}

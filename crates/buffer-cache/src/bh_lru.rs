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
//! Each thread has one [`SetAssociative`] LRU of 64 blocks for all its caches. It holds weak handles,
//! so it needs no lock, keeps no memory alive, and nothing has to be invalidated when a block or a
//! cache goes.
//!
//! Strict LRU over a cycle of k blocks always hits if it has k slots and never if it has fewer, so a
//! size is right for one workload: 16 slots where 8 held everything cost compares on each miss and
//! writes on each hit; 8 slots where ten are needed find nothing. Sets of eight entries with tags
//! cost the same one word whatever the size, and blocks that are used once do not push out those
//! that come back.
//!
//! # The seam
//!
//! Another design is an object with the trait [`BhLru`], given in [`crate::Options::bh_lru`]. It
//! changes what a lookup costs, never its answer. The designs of the kernel before 3.19, of the patch
//! of 2014 and of today's kernel are in `lab/policies`, with the tests that any design must pass.
//!
//! Source: Sebastien Buisson with Liang Zhen and Andreas Dilger, "\[PATCH\] Allow increasing the
//! buffer-head per-CPU LRU size", 2014.

mod set_associative;

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use crate::buffer::Buffer;

pub use set_associative::SetAssociative;

/// Most blocks that one LRU knows.
pub const BH_LRU_SIZE_MAX: usize = 64;

thread_local! {
    /// The LRU of this thread.
    static LRU: RefCell<SetAssociative> = const { RefCell::new(SetAssociative::new()) };
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
    /// Bits that look random, the upper ones most. They are the same for the same block of any cache:
    /// which entries a block competes with does not depend on how many caches were made before.
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

/// What calls have done, in the units of the lab's cost model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Keys compared; a word of tags counts as one.
    pub compares: u32,
    /// Entries written.
    pub slot_writes: u32,
    /// Bytes of an array that were copied or cleared as a whole.
    pub bytes_copied: u32,
    /// Reference counts changed.
    pub atomics: u32,
    /// An entry gave way to another.
    pub evicted: bool,
    /// The block was remembered from before, though it was not known.
    pub ghost_hit: bool,
}

/// A block that was found, and at which position: 0 is the first one compared.
#[derive(Debug)]
pub struct Found {
    /// The block, pinned.
    pub buffer: Buffer,
    /// The slot of an array, or the way of a set.
    pub at: usize,
}

/// What a cache asks before it looks into its table.
///
/// One object serves all threads of a cache, and may serve several caches. It is called with no lock
/// of the cache held, must not call the cache, and should not wait: a lookup that would have to wait
/// for another thread answers `None`.
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
                let find = |lru: &RefCell<SetAssociative>| {
                    let found = lru.borrow_mut().lookup(key, *size, &mut Effort::default());
                    Some(found?.buffer)
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
                let install = |lru: &RefCell<SetAssociative>| {
                    let mut lru = lru.borrow_mut();
                    lru.install(key, buffer, *size, reuse, &mut Effort::default());
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

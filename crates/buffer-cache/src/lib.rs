//! Metadata blocks of one device, by number: each at most once in memory, read once, verified
//! once, changed in memory and written back when the owner says so.
//!
//! # Why
//!
//! Every lookup, stat and allocation reads the same few blocks again and again: bitmaps, inode
//! tables, directory and extent-tree blocks. They are small, shared by many files, and must be
//! seen by all threads in the same state. So they live here, one [`Buffer`] a block, while the
//! data of files never passes through.
//!
//! # Picture
//!
//! ```text
//!   thread             cache (shared)                                 buffer
//!  ┌───────────┐ miss ┌────────────────────────────────┐ pin (Arc)   ┌────────────────────────┐
//!  │ BH LRU    │─────▶│ 64 shards, each                │────────────▶│ block                  │
//!  │ 1…64 weak │      │   lock { block → buffer,       │             │ io lock (one reader)   │
//!  │ handles   │──┐   │          clock hand }          │             │ lock { data: Arc<[u8]>,│
//!  └───────────┘  │   │   lock { dirty block numbers } │             │   uptodate, dirty,     │
//!                 └───┼────────────────────────────────┼── upgrade ─▶│   verified tag }       │
//!                     └────────────────────────────────┘             └────────────────────────┘
//! ```
//!
//! A buffer in use is pinned by the `Arc` its holder has; nothing else counts references. The
//! data itself is an `Arc<[u8]>` that is never changed while any other thread holds it: a
//! reader's snapshot stays what it was, and a writer gets a private copy only if a thread still
//! looks at the old one.
//!
//! # Rules
//!
//! 1. A block in the table is never removed while it is pinned or dirty. So two buffers of one
//!    block never exist, and what an LRU finds is never stale: its entries are weak, an upgrade
//!    succeeds only while the table still holds the buffer, and taking one out of the table
//!    destroys it in the same step (`Arc::try_unwrap`). The LRU keeps no memory alive; a dropped
//!    cache leaves at most 64 empty handles in each thread that used it.
//! 2. Dropping all clean, unpinned blocks at any moment changes no answer.
//! 3. A block changed under a journal ([`Buffer::modify_pinned`]) is not dirty; the journal pins
//!    it until it checkpointed it.
//! 4. Dirty blocks reach the device only in [`BufferCache::write_dirty`]. A block is clean again
//!    only after its write succeeded and only if it was not changed meanwhile.
//!
//! # Units and bounds
//!
//! Memory is counted in blocks; one costs the block size and [`OVERHEAD`] bytes. The bound is
//! `memory_max` bytes, or less where [`BufferCache::set_limit`] says so. When a new block passes
//! it, a clock hand goes round the shards and takes clean, unpinned blocks that were not used
//! since the hand last came by. Only pinned and dirty blocks may exceed the bound; while nothing
//! else is left the hand rests for a while (an eighth of the cache's length in new blocks), so
//! that a cache full of dirty blocks is not searched on every miss.
//!
//! # Locks
//!
//! In the order they may be taken:
//!
//! | lock | protects | under it |
//! |---|---|---|
//! | write (1 a cache) | one `write_dirty` at a time | device writes, all below |
//! | io (1 a buffer) | one reader of a missing block; the others wait here | device reads, all below |
//! | shard table (64) | block → buffer, the clock | buffer state, by the clock |
//! | buffer state | data, flags, tag | the shard's dirty numbers; a `modify` closure |
//! | dirty numbers (64) | which blocks to write next | nothing |
//!
//! Readahead holds several io locks, but only those it got without waiting. The verify closures
//! run with no lock held. A `modify` closure must not touch the buffer it is given again.
//!
//! # Cost
//!
//! LRU hit: at most 16 keys compared, one atomic upgrade, one uncontended lock, one counter of
//! the thread's. Table hit: one shard lock more and the LRU's install. Miss: one device read, one
//! allocation, amortised O(1) for the clock. `write_dirty`: O(d log d) for d dirty blocks; clean
//! ones are not looked at.
//!
//! # Left out
//!
//! No journal states (a journal holds pins and clones of the data), no background writing, no
//! data of files, no read-ahead heuristics (the caller knows what it is going to read), one block
//! size per cache, one replacement policy for the table.

/// The locks of the model checker, under the name of the product's.
#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

mod bh_lru;
mod buffer;
mod cache;
mod dirty_set;
mod shard;
mod stats;
mod write;

use std::sync::Arc;

use uext4_ondisk::{Damage, Pblk};

pub use bh_lru::{BH_LRU_SIZE, BH_LRU_SIZE_MAX, BhLru, Key, Recent, Reuse};
pub use buffer::{Buffer, WeakBuffer};
pub use cache::BufferCache;
pub use shard::OVERHEAD;
pub use stats::Stats;

/// How much a cache may hold.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory for blocks, bookkeeping included. At least 16 blocks are cached whatever
    /// this says.
    pub memory_max: usize,
    /// Blocks that each thread knows without the table, 1 to [`BH_LRU_SIZE_MAX`].
    pub bh_lru_size: usize,
    /// Another design of the LRU than that of the threads.
    pub bh_lru: Option<Arc<dyn BhLru>>,
}

impl Default for Options {
    /// 64 MiB.
    fn default() -> Self {
        Self {
            memory_max: 64 << 20,
            bh_lru_size: BH_LRU_SIZE,
            bh_lru: None,
        }
    }
}

/// What a block was verified as: the kind of structure, and whose it is where the checksum
/// depends on that. Any number the caller likes, as long as different meanings get different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VerifyTag(pub u64);

/// What has to be done to a block before it is written, in the words of its owner: the kind of
/// structure and whose it is. The cache only keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChecksumRule {
    /// Kind of structure.
    pub kind: u32,
    /// Whose it is, an inode or a group.
    pub owner: u32,
    /// The owner's generation, where it has one.
    pub generation: u32,
}

/// Why a block could not be had, or not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed, or the block lies outside it.
    #[error(transparent)]
    Device(#[from] uext4_blockdev::Error),
    /// The block came in, but is not what it should be.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The block's first byte would lie past 2⁶⁴.
    #[error("block {block} cannot exist on any device")]
    BlockNumber {
        /// The block.
        block: Pblk,
    },
}

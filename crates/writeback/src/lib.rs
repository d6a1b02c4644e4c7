//! The page cache of file data of one file system, and the flushers that write it back.
//!
//! # Why
//!
//! A write that only copies into memory is a thousand times cheaper than one that waits for a
//! device, and the later a file's blocks are written, the more of them can be allocated and written
//! in one run. So writes end here, and flushers take whole runs from here when it is time.
//!
//! # Picture
//!
//! ```text
//!   file (one RwLock)                                     cache
//!  ┌─────────────────────────────────────────────┐      ┌──────────────────────────────────┐
//!  │ folios by offset, the dirty ones, loads     │─────▶│ dirty list: files by area, age   │
//!  │  0        64K           128K                │      │ reclaim clock: files with folios │
//!  │  ├─┬─┬──┬─┼──────────────┼───────────▶      │      │ pool: free buffers by size       │
//!  │  │4│4│8K│ │ 64K          │ up to 256K       │      │ gate: throttling of writers      │
//!  └──┴─┴─┴──┴─┴──────┬───────┴──────────────────┘      └──────────────────────────────────┘
//!                     │ Arc<Buffer>, copied on write            ▲
//!                     └──── snapshot ──▶ Mapping::write_run ────┘ flushers, fsync, sync
//!
//!   a write:  admit ──▶ take in ──▶ dirtied ──▶ pause      as `throttle` says
//!               │ no credit: sleep until something is written, or time, or Cancel
//! ```
//!
//! A *folio* is a power of two of blocks, aligned to its size, in one buffer; small where small
//! writes and reads are, up to 256 KiB where large ones are, so that a large copy costs one
//! lookup in the map every 256 KiB. For each of its blocks it knows whether it is *uptodate* (its
//! bytes are the file's) and *dirty* (the device's are older). Buffers are recycled, because
//! fresh memory costs more than the copy into it, and are not zeroed before they are overwritten.
//!
//! A flusher takes a snapshot of the buffer (an `Arc`) and marks its blocks clean; a write that
//! comes meanwhile gets a private copy and makes its blocks dirty anew. So writeback never stops a
//! writer.
//!
//! A caller that caches the data itself, as the kernel does for a mount, reads *past* the cache
//! ([`FilePages::read_uncached`]): what is here is copied from here, what is missing goes from
//! the device straight to it, and the cache keeps what was written, and blocks that were read for
//! a part of them.
//!
//! What stops writers is *throttling* ([`throttle`]): the cache asks before pages become dirty,
//! returns what becomes of them, and does what it is reported. A [`Writer`] sleeps on a condition
//! of its own until its time is over, until something it waits for is free, or until it is called
//! off ([`Cancel`], [`PageCache::cancel_writers`]); a front end is informed of the pause instead
//! ([`FilePages::write_paced`]). Several caches may keep limits together ([`DirtyLimits`]).
//!
//! *Flushers* share areas of the device among them ([`Place`]), and take whole files from one
//! another. A file has a turn of a chunk, then the next has its own: what the kernel's lists `b_io`
//! and `b_more_io` do. Old files come first; those chosen together are written in the order in
//! which they lie.
//!
//! # Rules
//!
//! 1. A dirty block is uptodate. Bytes of an uptodate block past the end of the file are zero.
//! 2. A folio that is dirty or under writeback is never evicted. Dropping all others at any moment
//!    changes no answer.
//! 3. A caller that reads from the device holds no lock; what was dropped in its range meanwhile
//!    spoils what it read, what was written meanwhile wins over it.
//! 4. A file is on the dirty list as long as anything of it is dirty or under writeback. The cache
//!    holds mappings weakly: the owner keeps the mapping while [`FilePages::is_dirty`].
//! 5. What could not be written stays dirty and is tried again; each error belongs to the file,
//!    and is reported once to each token ([`FilePages::error_since`]). A stall is no error:
//!    nothing is lost yet, and writers get [`Error::Stalled`], whether all of their bytes were
//!    taken in or not. A file of which [`FAILURES_MAX`] passes failed in a row loses the blocks
//!    that failed again, so that everything ends; [`Mapping::lost`] reports which, and the next
//!    [`PageCache::error_since`] of each token that it happened. Of a flusher's passes those
//!    count that are a second or more after the last that did.
//!
//! # Units and bounds
//!
//! Offsets and sizes are bytes. Memory is bounded by `memory_max`, or less where
//! [`PageCache::set_limit`] says so: folios, their bookkeeping and
//! snapshots take fifteen sixteenths of it at most, then a clock with a second chance evicts clean
//! ones; free buffers take a quarter, and no more than folios leave.
//!
//! Throttling counts pages of 4 KiB, those of a file rounded up: a file of one byte counts as one.
//! Dirty and under writeback together never exceed `dirty_ratio` of the memory there is, but for
//! blocks that are zeroed in part by truncation and punching, and for blocks larger than the limit.
//!
//! # Locks
//!
//! In the order they may be taken:
//!
//! | lock | protects | under it |
//! |---|---|---|
//! | flush (1 a file) | order of runs; truncation waits here for writeback | [`Mapping::write_run`], all below |
//! | reclaim (1 a cache) | the clock | file state, one at a time |
//! | state (1 a file, readers share) | folios and their bytes | copies of at most 1 MiB, the leaves |
//! | dirty list (16 shards), pool (9 sizes), errors, flushers, loads | what they are named for | nothing |
//! | waiters (1 for all that share limits), a [`Cancel`]'s | who sleeps | one writer's own lock |
//! | what the policy locks | estimates | nothing |
//!
//! A mapping is called with at most the flush lock of its file held; reading, with none.
//!
//! # Modules
//!
//! Each uses those before it only:
//!
//! - data: `block_set`, `pool`, `folio`, `loads`, `readahead`, `pages`, `load`, `dirty`: the bytes
//!   of one file, with no lock but the pool's;
//! - accounts: `throttle`, `waiters`, `limits`, `writer`, `errors`, `stats`, `trace`, `dirty_list`,
//!   `clock`, `flushers`, `shared`, `file`: counters, limits and lists, and how a change of a file
//!   enters them;
//! - flushing: `flush`, `flusher`: writing one file, and choosing files;
//! - room: `reclaim`, `balance`: eviction, and writers that wait, both of which may flush;
//! - calls: `read`, `uncached`, `take_in`, `discard`, `file_pages`, `cache`.
//!
//! # Cost
//!
//! Hit: one shared lock and one lookup a folio, then copies; no allocation, nothing noted but a
//! bit. Write: the same with the lock exclusive; a new folio takes a buffer from the pool. Flush:
//! O(dirty folios), whatever else the file has. Miss: one request a folio, a window (up to 1 MiB)
//! at once. Miss past the cache: one request for all that is missing without a gap (up to 1 MiB),
//! no copy, no memory; four times the lock, two of them exclusively. Throttling: two readings of
//! the clock and about ten atomic additions a step of a write (up to 1 MiB, or as much as the
//! policy lets pass); a sleep enters and leaves one list.
//!
//! # Left out
//!
//! No readahead that no thread waits for, no mmap, no writing past the cache, no knowledge of
//! extents, sizes or reservations: those are the owner's; so are inodes of which only times
//! changed. Files are ordered by what their owner says of their place, not by their first block.
//! A run is the unit of completion: of a run of 8 MiB is known before its end that the device
//! works on it ([`Mapping::write_run_reporting`]), not how much of it is written. Real timers: each
//! writer that sleeps has one of its own, where one for all due within 4 ms would wake fewer
//! times.

mod balance;
mod block_set;
mod cache;
mod clock;
mod dirty;
mod dirty_list;
mod discard;
mod errors;
mod file;
mod file_pages;
mod flush;
mod flusher;
mod flushers;
mod folio;
mod limits;
mod load;
mod loads;
mod pages;
mod pool;
mod read;
mod readahead;
mod reclaim;
mod shared;
mod stats;
mod sync;
mod take_in;
pub mod throttle;
mod trace;
mod uncached;
mod waiters;
mod writer;

use std::ops::Range;
use std::sync::Arc;

use uext4_ondisk::BlockSize;

pub use cache::PageCache;
pub use file_pages::FilePages;
pub use limits::DirtyLimits;
pub use stats::{DeviceStats, Stats};
pub use take_in::Paced;
use throttle::Tunables;
pub use waiters::Cancel;
pub use writer::Writer;

/// No byte of a file lies at or past this offset.
pub const OFFSET_MAX: u64 = 1 << 62;
/// Passes over a file that fail in a row before what fails is dropped.
pub const FAILURES_MAX: u32 = 5;

/// What a cache may hold, and when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of memory for data, at least 64 blocks. Exceeded by a tenth at most, unless all of it
    /// is dirty and cannot be written.
    pub memory_max: u64,
    /// How much may be dirty, and when it is written. Of a cache that shares limits only what
    /// belongs to its device counts.
    pub tunables: Tunables,
    /// The file system's.
    pub block_size: BlockSize,
}

impl Options {
    /// For blocks of this size: 256 MiB of memory, and the defaults of throttling.
    #[must_use]
    pub fn new(block_size: BlockSize) -> Self {
        Self::with_memory(block_size, 256 << 20)
    }

    /// The same for so many bytes of memory.
    #[must_use]
    pub fn with_memory(block_size: BlockSize, memory_max: u64) -> Self {
        Self {
            memory_max,
            tunables: Tunables::default(),
            block_size,
        }
    }
}

/// Where a file lies on the device, about. It decides who writes it when, nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// A part of the device in which one allocates without disturbing others. Flushers share areas
    /// among them.
    pub area: u64,
    /// Of the files of an area that are written together, those with lower numbers are first.
    pub order: u64,
}

/// What a file system's errors must be: any error type that threads may share.
pub trait MappingError: std::error::Error + Send + Sync + 'static {}

impl<T: std::error::Error + Send + Sync + 'static> MappingError for T {}

/// The file system's side of a file: where its bytes lie on the device.
///
/// The cache calls it with no lock held but the file's flush lock, from flusher threads and from
/// any thread that calls the cache, with bytes of *any* file of the cache. So an implementation
/// takes no lock under which the cache is called, and does not call the cache. Offsets are bytes
/// in the file.
pub trait Mapping: Send + Sync {
    /// What reading and writing say when they fail.
    type Error: MappingError;

    /// Fills all of `buf`, whole blocks from block-aligned `offset` on, with what the device holds
    /// of the file. Holes, and what lies past the size the file has now, read as zeroes.
    ///
    /// # Errors
    ///
    /// Any; nothing of `buf` is used then.
    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes one run of whole blocks from block-aligned `offset` on, allocating them where there
    /// are none; the slices follow each other in the file, each whole blocks. A run may lie past
    /// the file's size, for bytes are taken in before the owner sets the new one. All is on the
    /// device when it returns, though not flushed. Two runs of one file are never written at once.
    ///
    /// # Errors
    ///
    /// Any; the whole run counts as not written.
    fn write_run(&self, offset: u64, run: &[&[u8]]) -> Result<(), Self::Error>;

    /// The same, and calls `reported` whenever some more of the run is on the device, best every
    /// 1 MiB: a device counts as stalled when neither that nor the end of a run is heard of for
    /// `wb_stall_ms`. The cache calls this one.
    ///
    /// # Errors
    ///
    /// As [`Mapping::write_run`].
    fn write_run_reporting(
        &self,
        offset: u64,
        run: &[&[u8]],
        reported: &dyn Fn(),
    ) -> Result<(), Self::Error> {
        let _ = reported;
        self.write_run(offset, run)
    }

    /// Bytes of this range that were dirty were given up after too many errors: what was reserved
    /// for them can be released. Once a batch, from the first of its runs that were to the last.
    /// Parts may have become dirty again meanwhile: [`FilePages::next_dirty`] reports which.
    /// Nothing of the file is being written, nor will be before this returns.
    fn lost(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// Why bytes could not be read, taken or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E: MappingError> {
    /// The file system said so.
    #[error("{0}")]
    Mapping(#[source] Arc<E>),
    /// The file's mapping is no more.
    #[error("the file is no longer in use")]
    Gone,
    /// The writer was called off while it was throttled.
    #[error("the write was cancelled while it waited for the device")]
    Cancelled,
    /// The device has written nothing for too long (`wb_stall_ms`).
    #[error("device stalled: no write completes, and dirty data cannot be written")]
    Stalled,
    /// The bytes would lie past the largest file there can be.
    #[error("{len} bytes at {offset} lie past the largest offset, {OFFSET_MAX}")]
    OutOfRange {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
    },
}

impl<E: MappingError> Clone for Error<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Mapping(error) => Self::Mapping(Arc::clone(error)),
            Self::Gone => Self::Gone,
            Self::Cancelled => Self::Cancelled,
            Self::Stalled => Self::Stalled,
            Self::OutOfRange { offset, len } => Self::OutOfRange {
                offset: *offset,
                len: *len,
            },
        }
    }
}

//! Extent status: what each logical block of a file is.
//!
//! A file's map lies on the device as a tree of extents. Walking it for every read is slow, and
//! it cannot say that a block is *delayed*: written to memory, reserved a place, but not given
//! one yet. So each inode in memory has a [`Tree`] in addition to its map: disjoint runs of
//! blocks, each with what is known of it. All trees of one file system share a
//! [`ExtentStatusCache`], which counts them and shrinks them.
//!
//! # The picture
//!
//! ```text
//! lblk     0        8    12          20        28                      u32::MAX - 1
//!          ├ written ┤ hole ┤ unwritten ┤ delayed ┤  not known …              ┤
//! pblk      1000..    –      5000..      –
//! cache     yes       yes    yes         NO: the only place where this is noted
//! ```
//! Written, unwritten and hole are a *cache* of the map: any of them may be forgotten at any
//! moment, and the answer then is "not known, look into the map". Delayed is *truth*: it stands
//! for a reservation of space, and only its owner ends it. The cache calls no other:
//! [`Tree::insert`] and [`Tree::remove`] return how many delayed blocks they replaced, and the
//! caller settles the reservation.
//!
//! Neighbours of one status are one extent: holes and delayed always, written and unwritten when
//! they adjoin on the device too. So a contiguous file is one extent, however it was written.
//!
//! # Callers
//!
//! - [`Tree::insert`] and [`Tree::remove`] belong to the code that changes the map, under the
//!   lock that orders changes of that map. They raise [`Tree::seq`].
//! - [`Tree::cache`] belongs to code that has read the map, under the same lock held at least
//!   shared, so that the map cannot have changed since. It fills gaps and never contradicts what
//!   is known.
//! - [`Tree::lookup`] and [`Tree::find`] need no lock of the caller's. To use an answer later, note
//!   `seq` *before* asking and compare it again: as long as it stands, the answer does.
//!
//! # Shrinking
//!
//! [`ExtentStatusCache::count`] says how many extents could be dropped,
//! [`ExtentStatusCache::scan`] drops some; callers ask in batches of [`BATCH`] until they have
//! what they need. [`Tree::clear_cache`] drops the cache of one tree; [`Tree::set_precached`] has
//! a tree shrunk last.
//!
//! Which ones go is the choice of the cache's [`Shrinker`], and so is the index in which they
//! lie: [`shrinker`] states what a design must do. The one that ships is [`LeafQueue`], described
//! in its module: extents in leaves, leaves in queues that resist scans, lookups without a lock.
//!
//! # Units
//!
//! Blocks of the file system. Logical blocks run from 0 to
//! [`Lblk::LAST`](uext4_ondisk::Lblk::LAST); a length that goes beyond is cut there. The end of
//! an extent is the block after its last, so it always fits 32 bits, and so does the length of
//! everything merged. Times are nanoseconds.
//!
//! # Locks
//!
//! One lock a tree, and inside it one for a shard of the queues. Scans only *try* the lock of a
//! tree, so they may be called by a thread that holds any lock of its own, and never wait for
//! another tree's user. Nothing is called out to under any of them. Lookups take none, unless
//! three tries without it each met a change.
//!
//! # Cost
//!
//! With n extents in the tree, a lookup is one search, O(log n), and a counter is added where
//! [`StatsMode`] says so. Inserting and removing are a few searches and the extents they replace.
//! [`Tree::find`] walks the extents it passes over, under the lock. A scan's steps depend neither
//! on the number of trees nor on that of delayed extents.
//!
//! # What this cache leaves out
//!
//! Inodes, reservations, the map itself, and clusters (`bigalloc`): a cluster that is half delayed
//! and half allocated needs a count of its own.

/// The locks of the model checker, under the name of the product's.
#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

mod extent;
pub mod leaf_queue;
mod room;
mod scan;
pub mod shrinker;
mod stats;
mod sync;
mod trace;
mod tree;

pub use extent::{Extent, FILL_MAX, Status, StatusSet};
pub use leaf_queue::{LEAF_EXTENTS, LeafQueue, LeafQueueOptions};
pub use room::{BATCH, ExtentStatusCache, Options};
pub use scan::Scan;
pub use shrinker::{EsTree, Lookup, Shrinker};
pub use stats::{Counters, Stats, StatsMode, TUNABLES};
pub use tree::Tree;

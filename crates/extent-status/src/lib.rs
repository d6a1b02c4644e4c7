//! Extent status: what each logical block of a file is.
//!
//! A file's map lies on the device as a tree of extents. Walking it for every read is slow, and it
//! cannot say that a block is *delayed*: written to memory, promised a place, but not given one yet.
//! So each inode in memory has a [`Tree`] beside its map: disjoint runs of blocks, each with what is
//! known of it. All trees of one file system share a [`Room`], which counts them and shrinks them.
//!
//! # The picture
//!
//! ```text
//! lblk     0        8    12          20        28                      u32::MAX - 1
//!          ├ written ┤ hole ┤ unwritten ┤ delayed ┤  not known …              ┤
//! pblk      1000..    –      5000..      –
//! cache     yes       yes    yes         NO: the only place where this is noted
//! ```
//! Written, unwritten and hole are a *cache* of the map: any of them may be forgotten at any moment,
//! and the answer then is "not known, look into the map". Delayed is *truth*: it stands for a
//! reservation of space, and only its owner ends it. The room calls nobody: [`Tree::insert`] and
//! [`Tree::remove`] answer how many delayed blocks they replaced, and the caller settles the
//! reservation.
//!
//! Neighbours of one status are one extent: holes and delayed always, written and unwritten when
//! they adjoin on the device too. So a contiguous file is one extent, however it was written.
//!
//! # Who may say what
//!
//! - [`Tree::insert`] and [`Tree::remove`] belong to who changes the map, under the lock that
//!   orders changes of that map. They raise [`Tree::seq`].
//! - [`Tree::cache`] belongs to who has read the map, under the same lock held at least shared, so
//!   that the map cannot have changed since. It fills gaps and never contradicts what is known.
//! - [`Tree::lookup`] and [`Tree::find`] need no lock of the caller's. To use an answer later, note
//!   `seq` *before* asking and compare it again: as long as it stands, the answer does.
//!
//! # Shrinking
//!
//! [`Room::count`] says how many extents could be dropped, [`Room::scan`] looks at some of them and
//! drops what it may; callers ask in batches of [`BATCH`] until they have what they need. Which ones
//! it drops is the policy, a file of its own: `mainline`, what Linux does today. A policy changes
//! the cost, never an answer.
//!
//! # Units
//!
//! Blocks of the file system. Logical blocks run from 0 to [`Lblk::LAST`](uext4_ondisk::Lblk::LAST);
//! a length that goes beyond is cut there. The end of an extent is the block after its last, so it
//! always fits 32 bits, and so does the length of everything merged. Times are nanoseconds.
//!
//! # Locks
//!
//! One readers-writer lock a tree, and one lock for the list of trees that hold something to drop;
//! the list's lock is taken inside a tree's, for a step, when the first such extent comes or the
//! last one goes. The shrinker lets go of the list before it touches a tree, and only *tries* the
//! tree's lock: it may be called by a thread that holds any lock of its own, and never waits for
//! another tree's user. Nothing is called out to under either lock.
//!
//! # Cost
//!
//! With n extents in the tree: a look-up is one shared lock and one search, O(log n); it writes
//! nothing but the lock, a counter of its thread's, and once a referenced mark. Inserting and
//! removing are a few searches and the extents they replace. [`Tree::find`] walks the extents it
//! passes over. A scan costs the extents it visits, 1..=nr of them, and two searches a tree.
//!
//! # What this room leaves out
//!
//! Inodes, reservations, the map itself, and clusters (`bigalloc`): a cluster that is half delayed
//! and half allocated needs a count of its own.

mod extent;
mod mainline;
mod map;
mod room;
mod stats;
mod tree;

pub use extent::{Extent, Status};
pub use room::{BATCH, EXTENT_BYTES, Room};
pub use stats::Stats;
pub use tree::Tree;

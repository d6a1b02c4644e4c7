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
//! [`Room::count`] says how many extents could be dropped, [`Room::scan`] drops some; callers ask in
//! batches of [`BATCH`] until they have what they need. Which ones go is the shrinker's choice, named
//! by `es_shrinker=` when the room is made. It changes the cost, never an answer.
//!
//! | [`Shrinker`] | order | finds what may go by | budget | longest under one lock |
//! |---|---|---|---|---|
//! | `vanilla` | trees by last use, sorted | walking from the first extent, over delayed ones | freed | the whole scan |
//! | `lru` | trees by last use, sorted | a queue in each tree | freed | the whole scan |
//! | `round-robin` | trees in turn | a queue in each tree | freed | one tree |
//! | `mainline` | trees in turn, second chance | going on in the tree, over delayed ones | looked at | one tree |
//! | `leaf-queue` | leaves: probation, main, ghost | queues of leaves | freed | 256 steps |
//! | `clock` | leaves, second chance | queues of leaves | freed | 256 steps |
//!
//! For the first four a tree is one ordered map, and the room lists the trees. For the last two, the
//! tree is made of leaves of up to 64 extents, and queues in shards hold the leaves:
//!
//! ```text
//! tree ── roots ─┬─ cached ── index ─┬─ leaf ◄────── shard 0: probation, main, protected; ghost
//!  version       │   (never changed, └─ leaf ◄────── shard 1: …
//!                │    only copied)
//!                └─ delayed ─ index ─── leaf           (in no queue: no scan ever meets it)
//! ```
//! [`Tree::clear_cache`] drops the cache of one tree; [`Tree::set_precached`] has a tree shrunk last.
//!
//! # Units
//!
//! Blocks of the file system. Logical blocks run from 0 to [`Lblk::LAST`](uext4_ondisk::Lblk::LAST);
//! a length that goes beyond is cut there. The end of an extent is the block after its last, so it
//! always fits 32 bits, and so does the length of everything merged. Times are nanoseconds.
//!
//! # Locks
//!
//! One lock a tree, and one for the list of trees, or one for each shard of queues. The latter is
//! taken inside a tree's, for a step. Shrinkers only *try* the lock of a tree, and all but `vanilla`
//! and `lru` let go of the list or shard before: so they may be called by a thread that holds any
//! lock of its own, and never wait for another tree's user. Nothing is called out to under any of them.
//!
//! Look-ups share the lock of a listed tree. In a tree of leaves they take none: the writer makes
//! the tree's version odd, changes entries in place, and makes it even again; a reader that saw the
//! same even version before and after has its answer. After three that it did not, it takes the lock.
//! What an index or leaf was is kept for as long as a reader looks at it (`arc-swap`).
//!
//! # Cost
//!
//! With n extents in the tree, a look-up is one search, O(log n). In a tree of leaves it writes one
//! cache line of its own thread's (that keeps the index), and at most once in a while a mark of use
//! in the leaf; in a listed tree it writes the lock, and once a mark. A counter is added where
//! [`StatsMode`] says so. Inserting and removing are a few searches and the extents they replace; in
//! leaves a change moves up to 64 entries of 16 bytes, and about one in 32 copies up to 32 rows of
//! each level of the index. [`Tree::find`] walks the extents it passes over, under the lock.
//!
//! What [`Tree::cache_all`] is given at once, a leaf of the map on the device, gets leaves of its own if
//! it is large enough: it is used, dropped and read again together, and the queues see it so.
//!
//! A scan of leaves costs a step a leaf taken and the copying of index rows for each one dropped;
//! neither the number of trees nor that of delayed extents comes into it. The price: neighbours go
//! together, and a tree of few extents takes a leaf of four all the same.
//!
//! # What this room leaves out
//!
//! Inodes, reservations, the map itself, and clusters (`bigalloc`): a cluster that is half delayed
//! and half allocated needs a count of its own.

mod clock;
mod extent;
mod ghost;
mod index;
mod leaf;
mod leaf_queue;
mod leaf_tree;
mod list;
mod listed_tree;
mod lru;
mod mainline;
mod map;
mod options;
mod queues;
mod ring;
mod room;
mod round_robin;
mod scan;
mod side;
mod stats;
mod sync;
mod trace;
mod tree;
mod vanilla;

pub use extent::{Extent, Status};
pub use leaf::LEAF_EXTENTS;
pub use options::{OptionError, Options, Shrinker, StatsMode};
pub use room::{BATCH, Room};
pub use scan::Scan;
pub use stats::Stats;
pub use tree::Tree;

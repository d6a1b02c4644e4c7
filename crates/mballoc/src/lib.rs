//! The multiblock allocator: which free blocks to hand out.
//!
//! A request names a goal and a length; the answer is one run of adjacent blocks, marked used. Long
//! runs make extents few and reading sequential, runs near the goal keep what belongs together
//! together, and both must stay cheap when the device is almost full.
//!
//! # The picture
//!
//! ```text
//! bitmap of a group (one bit a block, set = used)          the same as chunks, largest aligned
//!   1 1 0 0 0 0 0 0 0 0 0 1 1 1 1 1                          order 3:  . .
//!       └──── a free run ───┘                                order 2:  . 1 . .
//!                                                            order 1:  . 1 . . . . . .
//!                                                            order 0:  … 8th bit
//! the longest free run of each group, in a tree of maxima:   9 40 ‖ 0 7 3 ‖ 32768 …
//! ```
//! The *buddy* of a group is its bitmap and these chunks. A free chunk is stored at its own order
//! only, and always is as large as alignment lets it be, up to a quarter of a full group. Longer
//! runs are seen in the bitmap, over which a tree knows the longest free run of the group
//! exactly.
//!
//! # The search
//!
//! First the *goal*: the run that starts at the goal block, if it is long enough. Else the next
//! group whose longest run, or row of free stripes, is long enough, and in it the shortest run
//! that is. A file that grows as a stream and has nothing in addition to what it asks for goes on
//! where its stream does, apart from other streams as long as there is space. What reaches the
//! end of a group goes on in the next, if that begins with free blocks: extents do not know of
//! groups.
//!
//! Groups not loaded yet stand in the index with what their number of free blocks allows at best;
//! loading one corrects it. So every step either answers or improves the index, and it looks into
//! at most 64 groups and at most 512 runs for one request; the bitmaps of groups it will come to
//! are asked for ahead. Nothing is refused as long as any run of [`Request::min_len`] is free.
//!
//! With [`Request::next_fit`] none of this happens: the next free run after the goal is taken as it
//! comes, so that a stream of requests fills the device without gaps.
//!
//! A group whose bitmap contradicts its descriptor is marked bad: it is left alone, its free
//! blocks leave the total, and [`Allocator::bad_groups`] reports it. That is seen when the bitmap
//! is read. So the total, [`Allocator::free_blocks`], is what descriptors claim; a caller that
//! reserves blocks counts on [`Allocator::checked_free_blocks`], and has more bitmaps read when
//! these do not do ([`Allocator::check_more`]).
//!
//! # Data of files
//!
//! [`Allocator::take_data`] takes more than is needed and preallocates the rest:
//!
//! 1. What is *preallocated* for the blocks wanted is used first, block by block of the file.
//! 2. Else there is a *plan* for the request ([`Plan`]): a window, which is trimmed against what
//!    is mapped and preallocated around it and lies next to that. A small file is served from
//!    what is preallocated for small files, a list a thread.
//! 3. The search takes a run for the window; its part that was asked for is handed out, the rest is
//!    preallocated.
//!
//! More taken means fewer extents where files grow side by side, and free space cut into more
//! pieces if what was not used lies between files. The plan has both: a file that goes on growing
//! gets windows that double, and one that does not gets exactly what is needed, side by side with
//! others.
//!
//! What is preallocated is used in the buddies and free in the bitmaps, so only memory knows of
//! it, and nothing is lost with the power. It counts as free, and is given back with the file's
//! last user ([`Allocator::discard`]) and before anything is refused: a request that finds
//! nothing waits for those that are just about to preallocate, takes all back, and looks again,
//! while nothing more is preallocated. So preallocations never make a reservation fail that
//! counts on [`Allocator::checked_free_blocks`]: the blocks are there unless a bitmap that agreed
//! cannot be read again, or no longer agrees, after its buddy was dropped.
//!
//! # The seams
//!
//! Two decisions can be taken by other designs, for experiments ([`Policies`]): how much is taken
//! for a file beyond its need ([`Normalize`]), and in which groups a run is looked for
//! ([`Search`]). Each trait has an essay in its file; the other designs are in `lab/policies`.
//!
//! # Units
//!
//! Blocks; file systems with clusters (`bigalloc`) are not served here. Orders are binary
//! logarithms of blocks. Positions are [`Pblk`] outside, offsets from the start of the group
//! within.
//!
//! # Locks
//!
//! One lock a group, a leaf: no other lock is taken and nothing is called out to while it is
//! held, but the index of another design of the search. [`GroupBitmaps`] is only called with no
//! lock held. A bitmap is read before the group's lock is taken; a group stays loaded while marks
//! of it are under way, so that what is read is complete. A run is taken from the buddy before it
//! is marked in the bitmap, and given back to the buddy after it is cleared there: a block whose
//! bit is still being changed is handed to no other caller. Marks are counted without the lock.
//!
//! Preallocations have locks outside the groups': one a file and one a list of small files, in
//! which a group's may be taken; the register of files and the count of requests that are about
//! to preallocate are leaves. None is held while [`GroupBitmaps`] is called. A request that is
//! about to be refused waits for others that hold no lock of this crate, and read bitmaps at
//! most; or, while free blocks are trimmed, discard one piece on the device.
//!
//! The index is read without a lock and changed under the lock of the group concerned: what it
//! says is a hint, and tested under the lock. A group that another thread has locked is passed
//! by, until nothing else is left; the thread then goes to a group of its own.
//!
//! Groups are added while threads search (`grow.rs`): the lists of groups become longer, and the
//! tables of the search are replaced; what a thread read before stays good.
//!
//! # Cost
//!
//! An allocation at its goal: one lock, a few words read, at most one chunk an order changed, and
//! one path of the tree over the bitmap. A search: a few rows of 64 numbers to find a group, one
//! path in its tree for each run looked at. Loading a group: its bitmap once, and 4 bits of
//! memory a block until it is full; a full group's buddy is dropped. A group that was never
//! loaded costs less than 100 bytes.
//!
//! # Events
//!
//! What it does is sent as events of crate `tracing` with the target `ext4` and the names and
//! fields of the kernel's: requests and answers, searches, what is preallocated and given back,
//! frees, loaded bitmaps, trims. None is sent under a lock of this crate, so a listener may take
//! its time, and may see events of several threads in another order than things happened.
//!
//! # What this crate leaves out
//!
//! It knows no inode: what it remembers of a file is a [`FileSpace`], which the owner keeps next
//! to it, and what is mapped around a request comes with it. It knows no transaction either, but
//! lets a caller that does take blocks before they are marked ([`Allocator::take`]), and hold
//! freed ones back ([`Allocator::clear`]). It never says what a block holds: a caller that maps a
//! run before it is written must map it as unwritten, so that no stale data is ever exposed.

mod allocator;
mod bits;
mod buddy;
mod checked;
mod file_space;
mod free_space;
mod groups;
mod grow;
mod history;
mod index;
mod io;
mod maxima;
mod normalize;
mod options;
mod preallocation;
mod request;
mod runs;
mod search;
mod stats;
mod stripes;
#[cfg(test)]
mod testing;
mod trace;
mod trim;

use uext4_ondisk::{GroupNr, Pblk};

pub use allocator::{Allocator, Policies};
pub use buddy::Buddy;
pub use file_space::FileSpace;
pub use groups::{Lock, Place, Visit};
pub use history::{Before, History};
pub use index::{GroupState, Index};
pub use normalize::{Normalize, Plan, SmallFiles, Stream, Surroundings, Wanted, Window};
pub use options::{Options, TUNABLES};
pub use preallocation::PreallocationStats;
pub use request::DataRequest;
pub use runs::Piece;
pub use search::{Found, Hints, Layout, NewSearch, Query, Search, Seek};
pub use stats::{CriterionStats, Stats};

/// Block bitmaps and the free counts in the descriptors, as the file system keeps them.
///
/// Offsets and lengths are in blocks, offsets relative to the group. All methods are called without
/// any lock of the allocator held.
pub trait GroupBitmaps {
    /// What can go wrong in reading or changing a bitmap.
    type Error: std::error::Error + 'static;

    /// Free blocks of the group, as its descriptor says.
    ///
    /// # Errors
    /// Whatever keeps the descriptor from being read.
    fn free_blocks(&self, group: GroupNr) -> Result<u32, Self::Error>;

    /// Reads the group's bitmap into `bitmap`, one bit a block, set if it is used. `bitmap` holds
    /// all blocks of a full group; what stands past the end of a short last group does not
    /// matter. A group whose bitmap was never initialised is given as it would be.
    ///
    /// # Errors
    /// Whatever keeps the bitmap from being read, damage included.
    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Self::Error>;

    /// Marks `len` free blocks from `start` used and takes them off the descriptor's count.
    ///
    /// # Errors
    /// Whatever keeps that from happening; then nothing has changed.
    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Self::Error>;

    /// Marks `len` used blocks from `start` free and adds them to the descriptor's count.
    ///
    /// # Errors
    /// Whatever keeps that from happening; then nothing has changed.
    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Self::Error>;

    /// The bitmaps of these groups may soon be read: one call for all that a scan will come to, so
    /// that they can be read at once. Nothing need happen.
    fn prefetch(&self, groups: &[GroupNr]) {
        let _ = groups;
    }

    /// The group's bitmap was read and contradicts its descriptor, or could not be read: nothing is
    /// taken of it or given back to it from now on, and what the descriptor calls free is none. Not
    /// called for a descriptor that claims more than the group has blocks.
    fn left_alone(&self, group: GroupNr) {
        let _ = group;
    }
}

/// What is wanted of [`Allocator::allocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the run should start; any number is taken, one outside the file system as its start.
    pub goal: Pblk,
    /// Blocks wanted, at least 1; a run is never longer, nor than a group.
    pub len: u32,
    /// Fewest blocks that are of use, 1 to `len` and to a group.
    pub min_len: u32,
    /// Takes the next free run at or after the goal, if it has `min_len` blocks, rather than look
    /// for a longer one elsewhere; after the last block the first follows.
    pub next_fit: bool,
}

/// Adjacent blocks, all in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub start: Pblk,
    /// How many.
    pub len: u32,
}

impl Run {
    /// The block behind the last.
    pub fn end(&self) -> Pblk {
        Pblk(self.start.0.saturating_add(self.len.into()))
    }

    /// The first `len` blocks, and the others if there are any.
    pub fn split(self, len: u32) -> (Self, Option<Self>) {
        let len = len.min(self.len);
        let rest = Self {
            start: Pblk(self.start.0.saturating_add(len.into())),
            len: self.len - len,
        };
        (Self { len, ..self }, Some(rest).filter(|rest| rest.len > 0))
    }
}

/// What the buddy of a group reports of its free space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// `bb_free`: free blocks.
    pub free: u32,
    /// `bb_fragments`: free runs.
    pub fragments: u32,
    /// `bb_first_free`: the first free block, relative to the group; its length if it is full.
    pub first: u32,
    /// `bb_counters`: free chunks of each order, from 0 up.
    pub counters: Vec<u32>,
}

/// A group that is left alone because its bitmap contradicts its descriptor, or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadGroup {
    /// The group.
    pub group: GroupNr,
    /// Free blocks counted in the bitmap, `None` if it could not be read; the group's blocks if the
    /// descriptor says more than that, and the bitmap was not read.
    pub bitmap: Option<u32>,
    /// Free blocks the descriptor says.
    pub descriptor: u32,
}

/// Why nothing was allocated or freed.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// No free run is long enough.
    #[error("no run of {min_len} blocks is free ({free} blocks are, in all)")]
    NoSpace {
        /// Fewest blocks that would have done.
        min_len: u32,
        /// Free blocks in all groups.
        free: u64,
    },
    /// The group of the blocks named is bad: its bitmap does not have as many free blocks as its
    /// descriptor says.
    #[error(
        "group {group}: {bitmap} blocks are free in the bitmap, {descriptor} in the descriptor"
    )]
    FreeCount {
        /// The group.
        group: GroupNr,
        /// Free blocks counted in the bitmap.
        bitmap: u32,
        /// Free blocks the descriptor says.
        descriptor: u32,
    },
    /// A group's bitmap could not be read when it was first needed.
    #[error("group {group}: its bitmap could not be read, and it is left alone")]
    Unreadable {
        /// The group.
        group: GroupNr,
    },
    /// Blocks to be freed are free already, or not all in one group.
    #[error("{len} blocks from {start} cannot be freed: {why}")]
    NotUsed {
        /// The first.
        start: Pblk,
        /// How many.
        len: u32,
        /// What is wrong with them.
        why: &'static str,
    },
    /// A bitmap or descriptor could not be read or changed.
    #[error(transparent)]
    Bitmaps(E),
}

//! What the allocator remembers of one file, and requests for its data.

use uext4_ondisk::{Lblk, Pblk};

use crate::{Allocator, Error, GroupBitmaps, Request, Run};

/// What the allocator remembers of one file: what was preallocated for it, and how it grew. Its owner
/// keeps it as long as the file is in use and gives it back with [`Allocator::discard`].
#[derive(Debug, Default)]
pub struct FileSpace {}

/// Blocks wanted for a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRequest {
    /// The file's number: spreads streams over goals.
    pub file: u64,
    /// First block of the file wanted; it and the others are a hole.
    pub lblk: Lblk,
    /// Blocks wanted, at least 1.
    pub len: u32,
    /// Where they should start if the file's neighbours do not say: near the inode.
    pub goal: Pblk,
    /// The mapped block next before `lblk`, if any: its number in the file and where it lies.
    pub left: Option<(Lblk, Pblk)>,
    /// The mapped block next after them, if any.
    pub right: Option<(Lblk, Pblk)>,
    /// Blocks of the file's size, what is dirty included.
    pub size: u64,
    /// They are for `fallocate`: nothing is written to them yet.
    pub unwritten: bool,
    /// Nobody has the file open for writing any more: it will not grow.
    pub closed: bool,
}

impl Allocator {
    /// Takes a run for the start of what is wanted, in memory only, as [`Allocator::take`] does; at
    /// most `request.len` blocks. [`Allocator::mark`] or [`Allocator::untake`] must follow.
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_data<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        space: &FileSpace,
        request: &DataRequest,
    ) -> Result<Run, Error<B::Error>> {
        let FileSpace {} = space;
        let goal = match request.left {
            Some((lblk, pblk)) => Pblk(pblk.0 + u64::from(request.lblk.0.saturating_sub(lblk.0))),
            None => request.goal,
        };
        let request = Request {
            goal,
            len: request.len,
            min_len: 1,
            next_fit: false,
        };
        self.take(bitmaps, &request)
    }

    /// Gives back what is preallocated for a file.
    pub fn discard(&self, space: &FileSpace) {
        let FileSpace {} = space;
    }
}

//! Trace events with the names and fields of the kernel's `ext4` events, for whoever subscribes to the
//! target `ext4` of crate `tracing`. Where nobody does, an event costs a load. All are told with no
//! lock of this room held.
//!
//! `dev` is the number of the allocator among those of the process. `ino` is
//! [`DataRequest::file`](crate::DataRequest::file), 0 for what is of no file. Starts are counted
//! within their group, as there; blocks and places from the start of the device.
//!
//! What differs from the kernel's:
//!
//! - `buddy` of `ext4_mballoc_alloc` is the binary logarithm of the goal's length, 0 if that is no power
//!   of two, and `tail` what the result is shorter by; not what is left of the chunk it was cut from.
//! - `ext4_free_blocks` and `ext4_mballoc_free` have 0 for `ino`, `flags` and `mode`: who frees does not
//!   say for whom.
//! - `ext4_mballoc_alloc` tells of searches only: a block taken as the next after a goal, or a run taken
//!   just where it was asked for, sends none.
//! - Where a file keeps more parts than it may, the first is told as released before the new one is
//!   told of.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tracing::trace;

use crate::preallocation::Part;
use crate::search::{Ask, Work};
use crate::{Allocator, DataRequest, Hints, Run};

/// `EXT4_MB_HINT_MERGE`, `EXT4_MB_HINT_DATA`, `EXT4_MB_STREAM_ALLOC`.
const HINT_MERGE: u32 = 0x1;
const HINT_DATA: u32 = 0x20;
const STREAM_ALLOC: u32 = 0x800;

/// A number for the next allocator.
pub(crate) fn next_device() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// A group's bitmap was read, and its buddy made.
pub(crate) fn load(dev: u32, group: u32) {
    trace!(name: "ext4_mb_bitmap_load", target: "ext4", dev, group);
    trace!(name: "ext4_mb_buddy_bitmap_load", target: "ext4", dev, group);
}

impl Allocator {
    fn dev(&self) -> u32 {
        self.groups().number
    }

    /// Group of a run and its start there.
    fn place(&self, run: Run) -> (u32, u32) {
        self.groups().locate(run.start).unwrap_or((0, 0))
    }

    /// Blocks are wanted for a file.
    pub(crate) fn trace_request(&self, request: &DataRequest) {
        trace!(
            name: "ext4_request_blocks",
            target: "ext4",
            dev = self.dev(),
            ino = request.file,
            len = request.len,
            logical = request.lblk.0,
            lleft = request.left.map_or(0, |left| left.0.0),
            lright = request.right.map_or(0, |right| right.0.0),
            goal = request.goal.0,
            pleft = request.left.map_or(0, |left| left.1.0),
            pright = request.right.map_or(0, |right| right.1.0),
            flags = HINT_DATA,
        );
    }

    /// A file was given `run` for them.
    pub(crate) fn trace_answer(&self, request: &DataRequest, run: Run) {
        trace!(
            name: "ext4_allocate_blocks",
            target: "ext4",
            dev = self.dev(),
            ino = request.file,
            block = run.start.0,
            len = run.len,
            logical = request.lblk.0,
            lleft = request.left.map_or(0, |left| left.0.0),
            lright = request.right.map_or(0, |right| right.0.0),
            goal = request.goal.0,
            pleft = request.left.map_or(0, |left| left.1.0),
            pright = request.right.map_or(0, |right| right.1.0),
            flags = HINT_DATA,
        );
    }

    /// The search found `run`, after so much work, for what was first asked and for what it was
    /// changed to.
    pub(crate) fn trace_alloc(&self, first: &Ask, ask: &Ask, hints: &Hints, run: Run, work: Work) {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        trace!(
            name: "ext4_mballoc_alloc",
            target: "ext4",
            dev = self.dev(),
            ino = hints.ino,
            orig_logical = hints.lblk,
            orig_group = first.goal.0,
            orig_start = first.goal.1,
            orig_len = ask.need,
            goal_logical = hints.lblk,
            goal_group = ask.goal.0,
            goal_start = ask.goal.1,
            goal_len = ask.want,
            result_logical = hints.lblk,
            result_group = self.place(run).0,
            result_start = self.place(run).1,
            result_len = run.len,
            found = work.extents,
            groups = work.groups,
            cr = work.criterion,
            buddy = ask.want.checked_ilog2().filter(|_| ask.want.is_power_of_two()).unwrap_or(0),
            tail = ask.want.saturating_sub(run.len),
            flags = flag(hints.merge, HINT_MERGE)
                | flag(hints.data, HINT_DATA)
                | flag(hints.stream.is_some(), STREAM_ALLOC),
        );
    }

    /// What was kept before serves a request.
    pub(crate) fn trace_prealloc(&self, request: &DataRequest, run: Run) {
        trace!(
            name: "ext4_mballoc_prealloc",
            target: "ext4",
            dev = self.dev(),
            ino = request.file,
            orig_logical = request.lblk.0,
            orig_group = self.groups().locate(request.goal).unwrap_or((0, 0)).0,
            orig_start = self.groups().locate(request.goal).unwrap_or((0, 0)).1,
            orig_len = request.len,
            result_logical = request.lblk.0,
            result_group = self.place(run).0,
            result_start = self.place(run).1,
            result_len = run.len,
        );
    }

    /// A part is kept for a file.
    pub(crate) fn trace_new_inode_pa(&self, ino: u64, part: &Part) {
        trace!(
            name: "ext4_mb_new_inode_pa",
            target: "ext4",
            dev = self.dev(),
            ino,
            pa_pstart = part.run.start.0,
            pa_lstart = part.lblk.0,
            pa_len = part.run.len,
        );
    }

    /// A run is kept for small files, of which this one is the first.
    pub(crate) fn trace_new_group_pa(&self, ino: u64, run: Run) {
        trace!(
            name: "ext4_mb_new_group_pa",
            target: "ext4",
            dev = self.dev(),
            ino,
            pa_pstart = run.start.0,
            pa_lstart = run.start.0,
            pa_len = run.len,
        );
    }

    /// What was kept for a file was given back.
    pub(crate) fn trace_release_inode(&self, ino: u64, runs: &[Run]) {
        for run in runs {
            trace!(
                name: "ext4_mb_release_inode_pa",
                target: "ext4",
                dev = self.dev(),
                ino,
                block = run.start.0,
                count = run.len,
            );
            self.trace_discard(ino, *run);
        }
    }

    /// What was kept for small files was given back.
    pub(crate) fn trace_release_group(&self, runs: &[Run]) {
        for run in runs {
            trace!(
                name: "ext4_mb_release_group_pa",
                target: "ext4",
                dev = self.dev(),
                pa_pstart = run.start.0,
                pa_len = run.len,
            );
            self.trace_discard(0, *run);
        }
    }

    fn trace_discard(&self, ino: u64, run: Run) {
        trace!(
            name: "ext4_mballoc_discard",
            target: "ext4",
            dev = self.dev(),
            ino,
            result_group = self.place(run).0,
            result_start = self.place(run).1,
            result_len = run.len,
        );
    }

    /// All that was kept for a file was given back, so many parts.
    pub(crate) fn trace_discard_file(&self, ino: u64, parts: usize) {
        trace!(
            name: "ext4_discard_preallocations",
            target: "ext4",
            dev = self.dev(),
            ino,
            len = parts,
        );
    }

    /// All that is kept is given back, because so many blocks are needed.
    pub(crate) fn trace_discard_all(&self, needed: u32) {
        trace!(name: "ext4_mb_discard_preallocations", target: "ext4", dev = self.dev(), needed);
    }

    /// Blocks were freed.
    pub(crate) fn trace_free(&self, run: Run) {
        trace!(
            name: "ext4_free_blocks",
            target: "ext4",
            dev = self.dev(),
            ino = 0u64,
            block = run.start.0,
            count = run.len,
            flags = 0u32,
            mode = 0u32,
        );
        trace!(
            name: "ext4_mballoc_free",
            target: "ext4",
            dev = self.dev(),
            ino = 0u64,
            result_group = self.place(run).0,
            result_start = self.place(run).1,
            result_len = run.len,
        );
    }

    /// A free run is shown to the device.
    pub(crate) fn trace_trim_extent(&self, group: u32, start: u32, len: u32) {
        trace!(name: "ext4_trim_extent", target: "ext4", dev_major = 0u32, dev_minor = self.dev(), group, start, len);
    }

    /// All free runs of a part of a group are about to be.
    pub(crate) fn trace_trim_all_free(&self, group: u32, start: u32, len: u32) {
        trace!(name: "ext4_trim_all_free", target: "ext4", dev_major = 0u32, dev_minor = self.dev(), group, start, len);
    }
}

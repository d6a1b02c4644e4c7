//! Trace events with the names and fields of the kernel's `ext4` events, for any thread that
//! subscribes to the target `ext4` of crate `tracing`. Without a subscriber an event costs a
//! load. All but those of a loaded bitmap (`groups.rs`) are here, and all are sent with no lock
//! of this crate held.
//!
//! `dev` is the number of the allocator among those of the process. `ino` is
//! [`DataRequest::file`](crate::DataRequest::file), 0 for what is of no file. Starts are counted
//! within their group, as there; blocks and places from the start of the device.
//!
//! What differs from the kernel's:
//!
//! - `buddy` of `ext4_mballoc_alloc` is the binary logarithm of the goal's length, 0 if that is
//!   no power of two, and `tail` what the result is shorter by; not what is left of the chunk it
//!   was cut from.
//! - `ext4_free_blocks` and `ext4_mballoc_free` have 0 for `ino`, `flags` and `mode`: who frees
//!   does not say for whom.
//! - `ext4_mballoc_alloc` reports of searches only: a block taken as the next after a goal, or a
//!   run taken just where it was asked for, sends none.
//! - Where a file keeps more parts than it may, the first is reported as released before the new
//!   one is notified of.

use tracing::trace;
use uext4_ondisk::Lblk;

use crate::Run;
use crate::groups::{Groups, Place};
use crate::request::DataRequest;
use crate::search::{Query, Seek};

/// `EXT4_MB_HINT_MERGE`, `EXT4_MB_HINT_DATA`, `EXT4_MB_STREAM_ALLOC`.
const HINT_MERGE: u32 = 0x1;
const HINT_DATA: u32 = 0x20;
const STREAM_ALLOC: u32 = 0x800;

/// Group of a run and its start there.
fn place(groups: &Groups, run: Run) -> Place {
    groups.locate(run.start).unwrap_or(Place {
        group: 0,
        offset: 0,
    })
}

/// Blocks are wanted for a file.
pub(crate) fn request(groups: &Groups, request: &DataRequest) {
    trace!(
        name: "ext4_request_blocks",
        target: "ext4",
        dev = groups.number,
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
pub(crate) fn answer(groups: &Groups, request: &DataRequest, run: Run) {
    trace!(
        name: "ext4_allocate_blocks",
        target: "ext4",
        dev = groups.number,
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

/// The search found `run` for what was first asked, `first`, and for what that was changed to.
pub(crate) fn alloc(groups: &Groups, first: &Query, seek: &Seek<'_>, run: Run) {
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    let (query, hints, work) = (&seek.query, &seek.hints, &seek.work);
    trace!(
        name: "ext4_mballoc_alloc",
        target: "ext4",
        dev = groups.number,
        ino = hints.ino,
        orig_logical = hints.lblk,
        orig_group = first.goal.group,
        orig_start = first.goal.offset,
        orig_len = query.need,
        goal_logical = hints.lblk,
        goal_group = query.goal.group,
        goal_start = query.goal.offset,
        goal_len = query.want,
        result_logical = hints.lblk,
        result_group = place(groups, run).group,
        result_start = place(groups, run).offset,
        result_len = run.len,
        found = work.extents,
        groups = work.groups,
        cr = work.step,
        buddy = query.want.checked_ilog2().filter(|_| query.want.is_power_of_two()).unwrap_or(0),
        tail = query.want.saturating_sub(run.len),
        flags = flag(hints.merge, HINT_MERGE)
            | flag(hints.data, HINT_DATA)
            | flag(hints.stream.is_some(), STREAM_ALLOC),
    );
}

/// What was preallocated before serves a request.
pub(crate) fn prealloc(groups: &Groups, request: &DataRequest, run: Run) {
    let goal = Run {
        start: request.goal,
        len: request.len,
    };
    trace!(
        name: "ext4_mballoc_prealloc",
        target: "ext4",
        dev = groups.number,
        ino = request.file,
        orig_logical = request.lblk.0,
        orig_group = place(groups, goal).group,
        orig_start = place(groups, goal).offset,
        orig_len = request.len,
        result_logical = request.lblk.0,
        result_group = place(groups, run).group,
        result_start = place(groups, run).offset,
        result_len = run.len,
    );
}

/// A part is preallocated for a file.
pub(crate) fn new_inode_pa(groups: &Groups, ino: u64, lblk: Lblk, run: Run) {
    trace!(
        name: "ext4_mb_new_inode_pa",
        target: "ext4",
        dev = groups.number,
        ino,
        pa_pstart = run.start.0,
        pa_lstart = lblk.0,
        pa_len = run.len,
    );
}

/// A run is preallocated for small files, of which this one is the first.
pub(crate) fn new_group_pa(groups: &Groups, ino: u64, run: Run) {
    trace!(
        name: "ext4_mb_new_group_pa",
        target: "ext4",
        dev = groups.number,
        ino,
        pa_pstart = run.start.0,
        pa_lstart = run.start.0,
        pa_len = run.len,
    );
}

/// What was preallocated for a file was given back.
pub(crate) fn release_inode(groups: &Groups, ino: u64, runs: &[Run]) {
    for run in runs {
        trace!(
            name: "ext4_mb_release_inode_pa",
            target: "ext4",
            dev = groups.number,
            ino,
            block = run.start.0,
            count = run.len,
        );
        discard(groups, ino, *run);
    }
}

/// What was preallocated for small files was given back.
pub(crate) fn release_group(groups: &Groups, runs: &[Run]) {
    for run in runs {
        trace!(
            name: "ext4_mb_release_group_pa",
            target: "ext4",
            dev = groups.number,
            pa_pstart = run.start.0,
            pa_len = run.len,
        );
        discard(groups, 0, *run);
    }
}

fn discard(groups: &Groups, ino: u64, run: Run) {
    trace!(
        name: "ext4_mballoc_discard",
        target: "ext4",
        dev = groups.number,
        ino,
        result_group = place(groups, run).group,
        result_start = place(groups, run).offset,
        result_len = run.len,
    );
}

/// All that was preallocated for a file was given back, so many parts.
pub(crate) fn discard_file(groups: &Groups, ino: u64, parts: usize) {
    trace!(
        name: "ext4_discard_preallocations",
        target: "ext4",
        dev = groups.number,
        ino,
        len = parts,
    );
}

/// All that is preallocated is given back, because so many blocks are needed.
pub(crate) fn discard_all(groups: &Groups, needed: u32) {
    trace!(name: "ext4_mb_discard_preallocations", target: "ext4", dev = groups.number, needed);
}

/// Blocks were freed.
pub(crate) fn free(groups: &Groups, run: Run) {
    trace!(
        name: "ext4_free_blocks",
        target: "ext4",
        dev = groups.number,
        ino = 0u64,
        block = run.start.0,
        count = run.len,
        flags = 0u32,
        mode = 0u32,
    );
    trace!(
        name: "ext4_mballoc_free",
        target: "ext4",
        dev = groups.number,
        ino = 0u64,
        result_group = place(groups, run).group,
        result_start = place(groups, run).offset,
        result_len = run.len,
    );
}

/// A free run is shown to the device.
pub(crate) fn trim_extent(groups: &Groups, group: u32, start: u32, len: u32) {
    trace!(name: "ext4_trim_extent", target: "ext4", dev_major = 0u32, dev_minor = groups.number, group, start, len);
}

/// All free runs of a part of a group are about to be.
pub(crate) fn trim_all_free(groups: &Groups, group: u32, start: u32, len: u32) {
    trace!(name: "ext4_trim_all_free", target: "ext4", dev_major = 0u32, dev_minor = groups.number, group, start, len);
}

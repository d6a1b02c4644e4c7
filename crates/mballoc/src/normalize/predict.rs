//! By what the file did so far.
//!
//! - A file that was appended to is expected to grow on: a window is as long again as the run so
//!   far, so windows double. A window that the device could not fill is followed by one of twice
//!   what it had. Blocks that are dirty behind the request are known to follow and are taken at
//!   once.
//! - A file that is written here and there gets what is asked for, up to a boundary of 16 KiB.
//! - A file that is closed will not grow: it gets what it still needs. Closed files lie side by
//!   side, small ones in what is preallocated for the small files of the thread, larger ones
//!   behind these.
//! - `fallocate` is not padded: nothing follows that it does not ask for. Its windows end at
//!   multiples of 32,767 blocks of the file, the length of the longest unwritten extent: what
//!   lies side by side becomes as few extents as it can, wherever a group ends.
//! - Windows of at least a stripe are whole stripes. As the device fills, windows become shorter.

use std::ops::Range;

use super::{Normalize, Plan, SmallFiles, Stream, Surroundings, Wanted, Window};
use crate::request::DataRequest;

/// All windows together are at most this part of what is free. What is not used of them is given
/// back when the file is closed; with an eighth, ten writers on a half full device get no larger
/// windows than the kernel's table gives them.
const SHARE: u64 = 2;
/// Binary logarithm of the bytes that a scattered request is rounded up to.
const SCATTERED: u32 = 14;
/// Blocks of the longest extent that is not written (`EXT_UNWRITTEN_MAX_LEN`).
const UNWRITTEN_MAX: u64 = 32_767;
/// Blocks of the longest extent (`EXT_INIT_MAX_LEN`).
const EXTENT_MAX: u32 = 32_768;
/// Free extents of most length, or groups, for each file that grows, below which none lies apart.
const ROOMY: u64 = 8;
/// Where free runs are short, a stream fills those of this part of what the file has, and of so
/// many blocks at least.
const FILLED_PART: u32 = 64;
const FILLED_MIN: u32 = 32;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predict;

impl Normalize for Predict {
    fn plan(&self, request: &DataRequest, around: &Surroundings<'_>) -> Plan {
        let has_short_runs = around.average_run < around.group_prealloc.into();
        let is_small = is_small(request, around);
        // Where free runs are short, a closed file fills those that fit it.
        let exact = is_small && request.closed && has_short_runs;
        let small = is_small && !exact && around.group_prealloc > 0;
        let window = if exact || small {
            Window::exact(request, around)
        } else {
            Window::new(span(request, around), request, around)
        };
        let is_alone = request.left.is_none() && request.right.is_none();
        let is_stream = !request.closed && request.is_stream(around.stream_req);
        Plan {
            small: small.then_some(SmallFiles::Joined),
            next_to_closed: request.closed && is_alone && !has_short_runs,
            leads_closed: request.closed,
            // Less than the window goes on from what lies before it, but does not reach what lies
            // behind.
            merge: window.try_goal() && request.left.is_some(),
            stream: is_stream.then(|| stream(request, around, &window)),
            window,
        }
    }
}

/// Whether a request is served from what is preallocated for small files. Nothing small is
/// fallocated.
fn is_small(request: &DataRequest, around: &Surroundings<'_>) -> bool {
    let size = request.size.max(request.end());
    if request.unwritten {
        false
    } else if request.closed {
        // All that it still needs at once, or else a window for it.
        request.end() >= size && size <= around.group_prealloc.into()
    } else {
        size <= around.stream_req.into()
    }
}

/// What the window should hold, before it is trimmed.
fn span(request: &DataRequest, around: &Surroundings<'_>) -> Range<u64> {
    let wanted = Wanted::of(request);
    let Wanted { lblk, len, .. } = wanted;
    if request.unwritten {
        let most = UNWRITTEN_MAX - lblk % UNWRITTEN_MAX;
        return lblk..lblk + len.min(most);
    }
    let group = u64::from(around.blocks_per_group.max(1));
    let cap = (group / around.fullness()).max(len).clamp(1, group);
    let end = expected_end(&wanted, request.closed, around);
    let share = around.free / (SHARE * u64::from(around.writers.max(1)));
    let had = around.history.granted();
    let had = had.map_or(u64::MAX, |granted| 2 * granted);
    let most = cap.min(share).min(had).max(len);
    let end = end.min(lblk + most).max(lblk + len).min(lblk + cap);
    around.to_stripes(lblk..end.max(lblk + 1), cap)
}

/// Where the file is expected to end, as far as that is known now.
fn expected_end(wanted: &Wanted, closed: bool, around: &Surroundings<'_>) -> u64 {
    let &Wanted { lblk, len, size } = wanted;
    let history = &around.history;
    let request_end = lblk + len;
    match (history.is_sequential(), closed) {
        (true, true) => size,
        (true, false) => {
            // At least as much again as came so far, up to a power of two.
            let run = history.run().max(len);
            let double = (2 * run).next_power_of_two();
            size.max(request_end.saturating_add(double - run))
        }
        (false, true) => request_end,
        (false, false) => {
            let step = 1u64 << SCATTERED.saturating_sub(around.block_size_log2);
            request_end.next_multiple_of(step)
        }
    }
}

fn stream(request: &DataRequest, around: &Surroundings<'_>, window: &Window) -> Stream {
    // There is less free space than lets each of the files that grow lie far from the others.
    let room = ROOMY * u64::from(around.blocks_per_group.max(EXTENT_MAX));
    let crowded = around.free / (u64::from(around.files) + 1) < room;
    Stream {
        follows: crowded || around.files == 0,
        crowded,
        fill: fill(request, around, window, crowded),
    }
}

/// The shortest free run that a stream takes whole before it breaks one that is longer: half of its
/// window; where free runs are short, a part of what the file has, so that its extents grow as it
/// does, and their number by the logarithm of its size.
fn fill(request: &DataRequest, around: &Surroundings<'_>, window: &Window, crowded: bool) -> u32 {
    let need = window.need(request);
    if around.average_run < around.group_prealloc.into() {
        (request.lblk.0 / FILLED_PART).max(FILLED_MIN).min(need)
    } else if crowded {
        need
    } else {
        need.max(window.blocks() / 2)
    }
}

#[cfg(test)]
mod tests;

//! What every window keeps, whatever design made it, and where it should lie.

use std::ops::Range;

use uext4_ondisk::{Lblk, Pblk};

use super::Surroundings;
use crate::request::DataRequest;

/// End of the longest file.
const BLOCKS_MAX: u64 = Lblk::LAST.0 as u64 + 1;
/// Longest extent of unwritten blocks (`EXT_UNWRITTEN_MAX_LEN`).
const UNWRITTEN_MAX: u64 = 32_767;

/// A request within what a file can have, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The first block wanted.
    pub lblk: u64,
    /// Blocks wanted, at least 1.
    pub len: u64,
    /// End of the request or of the file, whichever is more.
    pub size: u64,
}

impl Wanted {
    /// No number of the request makes this fail: one outside the longest file is cut or moved
    /// into it.
    pub fn of(request: &DataRequest) -> Self {
        let lblk = u64::from(request.lblk.0).min(BLOCKS_MAX - 1);
        let len = u64::from(request.len).clamp(1, BLOCKS_MAX - lblk);
        Self {
            lblk,
            len,
            size: request.size.min(BLOCKS_MAX).max(lblk + len),
        }
    }
}

/// What the search is asked for: blocks of a file that are not mapped, and where they should lie.
///
/// It holds the first block wanted; nothing of it is mapped or preallocated; it ends within the
/// longest file and is no longer than a group. It may be shorter than the request, which is then
/// answered in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    lblk: Lblk,
    len: u32,
    goal: Pblk,
    try_goal: bool,
}

impl Window {
    /// Trims `span`, in blocks of the file, which may be anything.
    pub fn new(span: Range<u64>, request: &DataRequest, around: &Surroundings<'_>) -> Self {
        let span = trim(span, request, around);
        let (goal, try_goal) = goal(&span, request);
        Self {
            // OK to truncate: trimmed to the longest file, and to a group.
            lblk: Lblk(span.start as u32),
            len: (span.end - span.start) as u32,
            goal,
            try_goal,
        }
    }

    /// What is asked for, and nothing else; for `fallocate` no more than one extent.
    pub fn exact(request: &DataRequest, around: &Surroundings<'_>) -> Self {
        let wanted = Wanted::of(request);
        let most = if request.unwritten {
            UNWRITTEN_MAX
        } else {
            u64::MAX
        };
        let span = wanted.lblk..wanted.lblk + wanted.len.min(most);
        Self::new(span, request, around)
    }

    /// The same blocks of the file at another place.
    pub(crate) fn at(self, goal: Pblk) -> Self {
        Self { goal, ..self }
    }

    /// Its first block in the file, at or before the first one wanted.
    pub fn lblk(&self) -> Lblk {
        self.lblk
    }

    /// Blocks, 1 to a group.
    pub fn blocks(&self) -> u32 {
        self.len
    }

    /// The block of the device where [`Window::lblk`] should lie.
    pub fn goal(&self) -> Pblk {
        self.goal
    }

    /// Whether what is mapped next to it lies right before or behind that place.
    pub fn try_goal(&self) -> bool {
        self.try_goal
    }

    /// Blocks of it before the first one wanted.
    pub(crate) fn skipped(&self, request: &DataRequest) -> u32 {
        request.lblk.0.saturating_sub(self.lblk.0)
    }

    /// Blocks of the request that it holds.
    pub fn need(&self, request: &DataRequest) -> u32 {
        let left = self.len.saturating_sub(self.skipped(request));
        request.len.min(left)
    }
}

/// Trims a span against what is mapped and preallocated, the longest file, and a group; the first
/// block wanted is in it then.
fn trim(span: Range<u64>, request: &DataRequest, around: &Surroundings<'_>) -> Range<u64> {
    let Range { mut start, mut end } = span;
    let wanted = Wanted::of(request);
    let lblk = wanted.lblk;
    if let Some((left, _)) = request.left {
        start = start.max(u64::from(left.0) + 1);
    }
    if let Some((right, _)) = request.right {
        end = end.min(right.0.into());
    }
    for held in around.held.iter().filter(|held| !held.is_empty()) {
        if held.end <= lblk {
            start = start.max(held.end);
        } else if held.start > lblk {
            end = end.min(held.start);
        }
    }
    start = start.min(lblk);
    end = end.min(BLOCKS_MAX).max(lblk + 1);
    let group = u64::from(around.blocks_per_group.max(1));
    // The blocks wanted matter more than those before them.
    let wanted_end = lblk + wanted.len.min(group);
    start = start.max(wanted_end.min(end).saturating_sub(group));
    start..end.min(start + group)
}

/// Where a window should lie, and whether its neighbour lies right next to that place: behind
/// what is mapped before it, else before what is mapped behind it, each at its distance, else
/// where the request says.
fn goal(span: &Range<u64>, request: &DataRequest) -> (Pblk, bool) {
    if let Some((lblk, pblk)) = request.left {
        let distance = span.start.saturating_sub(lblk.0.into());
        return (Pblk(pblk.0.saturating_add(distance)), distance == 1);
    }
    if let Some((lblk, pblk)) = request.right {
        let distance = u64::from(lblk.0).saturating_sub(span.start);
        if let Some(goal) = pblk.0.checked_sub(distance) {
            return (Pblk(goal), span.end == u64::from(lblk.0));
        }
    }
    (request.goal, false)
}

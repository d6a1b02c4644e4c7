//! What every window must keep, whatever rule made it, and where it should lie.

use uext4_ondisk::Pblk;

use crate::DataRequest;

use super::{BLOCKS_MAX, Span, Surroundings, Wanted};

/// Trims a window that holds the first block wanted: against what is mapped and preallocated, the
/// longest file, and a group. It still holds that block then.
pub(super) fn trim(
    mut span: Span,
    wanted: &Wanted,
    request: &DataRequest,
    around: &Surroundings<'_>,
) -> Span {
    let lblk = wanted.lblk;
    if let Some((left, _)) = request.left {
        span.start = span.start.max(u64::from(left.0) + 1);
    }
    if let Some((right, _)) = request.right {
        span.end = span.end.min(right.0.into());
    }
    for held in around.held.iter().filter(|held| !held.is_empty()) {
        if held.end <= lblk {
            span.start = span.start.max(held.end);
        } else if held.start > lblk {
            span.end = span.end.min(held.start);
        }
    }
    span.start = span.start.min(lblk);
    span.end = span.end.min(BLOCKS_MAX).max(lblk + 1);
    let group = u64::from(around.blocks_per_group.max(1));
    // The blocks wanted matter more than those before them.
    let end = wanted.lblk + wanted.len.min(group);
    span.start = span.start.max(end.min(span.end).saturating_sub(group));
    span.end = span.end.min(span.start + group);
    span
}

/// Where a window should lie, and whether its neighbour lies right beside that place: behind what is
/// mapped before it, else before what is mapped behind it, each at its distance, else where the
/// request says.
pub(super) fn goal(span: Span, request: &DataRequest) -> (Pblk, bool) {
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

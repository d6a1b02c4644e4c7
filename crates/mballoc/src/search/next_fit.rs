//! The next free run after a goal, as it comes: for a stream of requests that fills the device.

use super::{Found, Seek};
use crate::groups::{Lock, Place, Visit};

/// The next run of at least [`Query::min`](super::Query::min) blocks at or after the goal; then
/// from the start.
pub(crate) fn next_fit(seek: &mut Seek<'_>) -> Option<Found> {
    let goal = seek.query.goal;
    let has_free = seek.group(goal.group).free > 0;
    if has_free && let Some(found) = next_in(seek, goal) {
        if found.piece.start == goal.offset {
            seek.goal_hit();
        }
        return Some(found);
    }
    let min = seek.query.min;
    for groups in [goal.group + 1..seek.groups_count(), 0..goal.group] {
        let mut next = groups.start;
        while let Some(group) = seek.longest().next(min, next)
            && groups.contains(&group)
        {
            seek.work.groups += 1;
            let start = Place { group, offset: 0 };
            if let Some(found) = next_in(seek, start) {
                return Some(found);
            }
            next = group + 1;
        }
    }
    let start = Place { offset: 0, ..goal };
    if has_free { next_in(seek, start) } else { None }
}

fn next_in(seek: &Seek<'_>, from: Place) -> Option<Found> {
    let (want, min) = (seek.query.want, seek.query.min);
    let visit = seek.visit(from.group, Lock::Wait, |buddy| {
        let piece = buddy.next_run(from.offset, want, min)?;
        buddy.take(piece.start, piece.len);
        Some(piece)
    });
    match visit {
        Visit::Done(piece) => Some(Found {
            group: from.group,
            piece,
        }),
        _ => None,
    }
}

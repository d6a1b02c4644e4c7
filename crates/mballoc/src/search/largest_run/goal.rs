//! The goal of a request, and of its stream.

use super::Walk;
use crate::buddy::Buddy;
use crate::groups::{Lock, Place, Visit};
use crate::runs::Piece;
use crate::search::{Found, Query};

impl Walk<'_, '_> {
    /// A run for the request; `None` if there is none of [`Query::min`] blocks.
    ///
    /// If the goal does not do, the search for a stream starts where that goes on; a stream that
    /// continues nothing starts there at once. A thread that had to wait starts in a group of its
    /// own.
    pub(super) fn find(&mut self) -> Option<Found> {
        let hints = self.seek.hints;
        let starts = !hints.merge;
        if starts && self.leases.start_apart() {
            self.busy = true;
        } else if (!starts || hints.stream.is_none())
            && let Some(found) = self.at_goal()
        {
            return Some(found);
        }
        let goes_on = hints.stream.and_then(|file| {
            if hints.follows {
                self.streams.latest()
            } else {
                self.streams.goal(file)
            }
        });
        let goes_on = goes_on.and_then(|goal| self.seek.locate(goal));
        if let Some(goal) = goes_on {
            self.seek.query.goal = goal;
            if starts
                && !self.busy
                && let Some(found) = self.at_goal()
            {
                return Some(found);
            }
        }
        self.stream = hints.stream.filter(|_| !hints.crowded);
        let found = self.search();
        if let (Some(goal), Some(found)) = (goes_on, found)
            && goal.group == found.group
        {
            self.seek.stream_goal_hit();
        }
        found
    }

    /// The run that starts at the goal, if it is long enough: as long as wanted, or with
    /// [`Hints::merge`](crate::Hints::merge) as little as will do. Also one that ends with the
    /// group, if the next begins with what is missing: the caller asks for that next, and both
    /// lie side by side. Requests of a stripe or more are only answered here at the start of one,
    /// unless they continue something.
    pub(super) fn at_goal(&mut self) -> Option<Found> {
        let Query { want, min, .. } = self.seek.query;
        let Place { group, offset } = self.seek.query.goal;
        let (merge, fill) = (self.seek.hints.merge, self.seek.hints.fill);
        if self.seek.group(group).free == 0 {
            return None;
        }
        let stripe = self.seek.options().stripe;
        let by_stripe = stripe > 1 && want >= stripe;
        let block = self.seek.group_start(group) + u64::from(offset);
        if by_stripe && !merge && !block.is_multiple_of(stripe.into()) {
            return None;
        }
        let least = if merge {
            min
        } else if fill > 0 && !by_stripe {
            fill.clamp(min, want)
        } else {
            want
        };
        let goes_on = self.goes_on_behind();
        let take = |buddy: &mut Buddy| {
            let len = buddy.run_at(offset, want);
            let is_tail = goes_on && len >= min && offset + len == buddy.blocks();
            if len < least && !is_tail {
                return None;
            }
            buddy.take(offset, len);
            Some(Piece { start: offset, len })
        };
        let mut visit = self.seek.visit(group, Lock::Try, take);
        if matches!(visit, Visit::Busy) && merge {
            self.leases.waits();
            visit = self.seek.visit(group, Lock::Wait, take);
        }
        self.busy |= matches!(visit, Visit::Busy);
        let Visit::Done(piece) = visit else {
            return None;
        };
        self.seek.goal_hit();
        Some(Found { group, piece })
    }

    /// Whether data wanted from the goal on go past the end of its group, and the next group begins
    /// with as many free blocks as its own lacks.
    fn goes_on_behind(&self) -> bool {
        let Place { group, offset } = self.seek.query.goal;
        let want = self.seek.query.want;
        let here = self.seek.blocks_in_group(group).saturating_sub(offset);
        self.seek.hints.data && here < want && self.seek.begins_free(group + 1, want - here)
    }
}

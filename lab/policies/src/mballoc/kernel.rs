//! What the kernel's searches have in common: the goal, the goals of streams, tunables, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use uext4_mballoc::{
    Found, GroupState, Hints, Index, Layout, Lock, Piece, Place, Query, Search, Seek, Visit,
};
use uext4_ondisk::Pblk;

use super::orders::Orders;
use super::scan::{Look, Scan};

/// From how many groups of a flex group on data keep out of its first.
const FLEX_SIZE_DIR_ALLOC: u32 = 4;

/// A search of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSearch {
    /// Linux 3.15: four criteria, each over all groups one after the other (`linear`).
    Linear,
    /// Linux since 2023: five criteria with indexes of groups by order (`criteria`).
    Criteria,
}

/// The kernel's tunables, with its names, units and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// The device seeks: near groups are tried one by one before any index.
    pub rotational: bool,
    /// `mb_max_to_scan`: free runs looked at before the best is taken. Default: 200.
    pub max_to_scan: u32,
    /// `mb_min_to_scan`: free runs looked at although one is good enough. Default: 10.
    pub min_to_scan: u32,
    /// `mb_order2_req`: log₂ of the shortest power of two that is looked for by order. Default: 2.
    pub order2_req: u32,
    /// `mb_max_linear_groups`: groups tried one by one on a rotational device. Default: 4.
    pub max_linear_groups: u32,
    /// `mb_best_avail_max_trim_order`: orders a request may shrink before all groups are walked.
    /// Default: 3.
    pub best_avail_max_trim_order: u32,
    /// `mb_prefetch`: bitmaps read ahead at once. Default: 32.
    pub prefetch: u32,
    /// `mb_prefetch_limit`: bitmaps read ahead for one request. Default: 128.
    pub prefetch_limit: u32,
    /// Goals of streams at most; the kernel has as many as there are processors. Default: 16.
    pub stream_goals: u32,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            rotational: false,
            max_to_scan: 200,
            min_to_scan: 10,
            order2_req: 2,
            max_linear_groups: 4,
            best_avail_max_trim_order: 3,
            prefetch: 32,
            prefetch_limit: 128,
            stream_goals: 16,
        }
    }
}

/// What only the kernel's searches count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStats {
    /// `2^n_hits`: requests answered by the order of a chunk.
    pub pow2_hits: u64,
    /// `lost`: runs that another thread took between their choice and their taking.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub(super) struct KernelCounters {
    pub(super) pow2_hits: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl KernelCounters {
    pub(super) fn snapshot(&self) -> KernelStats {
        KernelStats {
            pow2_hits: self.pow2_hits.load(Relaxed),
            lost: self.lost.load(Relaxed),
        }
    }
}

/// Where streams go on: 3.15 has one goal for the whole file system, today's kernel an array of
/// them by the file's number.
#[derive(Debug)]
struct Streams(Box<[AtomicU64]>);

/// No goal yet.
const NONE: u64 = u64::MAX;

impl Streams {
    fn of(&self, file: u64) -> &AtomicU64 {
        &self.0[(file % self.0.len() as u64) as usize]
    }

    fn goal(&self, file: u64) -> Option<Pblk> {
        let goal = self.of(file).load(Relaxed);
        (goal != NONE).then_some(Pblk(goal))
    }
}

/// The search of one allocator.
#[derive(Debug)]
pub(super) struct Kernel {
    which: KernelSearch,
    pub(super) tunables: Tunables,
    pub(super) orders: Arc<Orders>,
    streams: Streams,
    pub(super) counters: Arc<KernelCounters>,
}

impl Kernel {
    pub(super) fn new(
        which: KernelSearch,
        tunables: Tunables,
        counters: Arc<KernelCounters>,
        layout: Layout,
    ) -> Self {
        let goals = match which {
            KernelSearch::Linear => 1,
            KernelSearch::Criteria => tunables.stream_goals.min(layout.groups / 4).max(1),
        };
        Self {
            which,
            tunables,
            orders: Arc::new(Orders::new(layout)),
            streams: Streams((0..goals).map(|_| AtomicU64::new(NONE)).collect()),
            counters,
        }
    }
}

impl Search for Kernel {
    fn index(&self) -> Option<Arc<dyn Index>> {
        let orders = Arc::clone(&self.orders);
        (self.which == KernelSearch::Criteria).then_some(orders)
    }

    /// If the goal does not do, the search for a stream starts in the group where that goes on.
    fn find(&self, seek: &mut Seek<'_>) -> Option<Found> {
        let stream = seek.hints.stream;
        let found = self.at_goal(seek).or_else(|| {
            let goes_on = stream.and_then(|file| self.streams.goal(file));
            let goes_on = goes_on.and_then(|goal| seek.locate(goal));
            seek.query.goal = goes_on.unwrap_or(seek.query.goal);
            let found = match self.which {
                KernelSearch::Linear => Walk::new(self, seek).linear(),
                KernelSearch::Criteria => Walk::new(self, seek).criteria(),
            }?;
            if goes_on.is_some_and(|goal| goal.group == found.group) {
                seek.stream_goal_hit();
            }
            Some(found)
        })?;
        if let Some(file) = stream {
            let start = seek.group_start(found.group) + u64::from(found.piece.start);
            self.streams.of(file).store(start, Relaxed);
        }
        Some(found)
    }

    /// As long as wanted, or with [`Hints::merge`] as little as will do. Requests of exactly a
    /// stripe are only answered here at the start of one, unless they continue something.
    fn at_goal(&self, seek: &mut Seek<'_>) -> Option<Found> {
        let Query { want, min, .. } = seek.query;
        let Place { group, offset } = seek.query.goal;
        let Hints { merge, .. } = seek.hints;
        if seek.group(group).free == 0 {
            return None;
        }
        let stripe = seek.options().stripe;
        let block = seek.group_start(group) + u64::from(offset);
        let is_stripe = stripe > 1 && want == stripe;
        if is_stripe && !merge && !block.is_multiple_of(stripe.into()) {
            return None;
        }
        let least = if merge { min } else { want };
        let visit = seek.visit(group, Lock::Wait, |buddy| {
            let len = buddy.run_at(offset, want);
            if len < least {
                return None;
            }
            buddy.take(offset, len);
            Some(Piece { start: offset, len })
        });
        let Visit::Done(piece) = visit else {
            return None;
        };
        seek.goal_hit();
        Some(Found { group, piece })
    }
}

/// One request on its way.
#[derive(Debug)]
pub(super) struct Walk<'s, 'a> {
    pub(super) kernel: &'s Kernel,
    pub(super) seek: &'s mut Seek<'a>,
    /// The next group at which bitmaps are asked for ahead, and how many were.
    pub(super) ahead: u32,
    pub(super) asked: u32,
}

/// A group that is asked whether it may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) group: u32,
    pub(super) lock: Lock,
    /// The criterion that it is asked by.
    pub(super) criterion: usize,
    /// What is looked at in it.
    pub(super) look: Look,
}

impl<'s, 'a> Walk<'s, 'a> {
    fn new(kernel: &'s Kernel, seek: &'s mut Seek<'a>) -> Self {
        Self {
            kernel,
            ahead: seek.query.goal.group,
            asked: 0,
            seek,
        }
    }

    /// Order of the request if it is a power of two that is looked for by order.
    pub(super) fn order2(&self) -> Option<u32> {
        let want = self.seek.query.want;
        let order = want.ilog2();
        let by_order = want.is_power_of_two()
            && order > 0
            && order + 1 >= self.kernel.tunables.order2_req
            && order <= self.seek.order_max();
        by_order.then_some(order)
    }

    /// Whether a group may have a chunk of `order`; the first group of a flex group is for
    /// directories.
    pub(super) fn good_order(&self, group: u32, state: GroupState, order: u32) -> bool {
        let flex = self.seek.options().flex_groups;
        let is_first = flex >= FLEX_SIZE_DIR_ALLOC && group.is_multiple_of(flex);
        let spared = self.seek.hints.data && is_first;
        !spared && state.largest_order.is_some_and(|largest| largest >= order)
    }

    /// Requests of whole stripes are first looked for at the starts of stripes.
    pub(super) fn look_aligned(&self, group: u32, want: u32) -> Look {
        let stripe = self.seek.options().stripe;
        if stripe <= 1 || want < stripe || !want.is_multiple_of(stripe) {
            return Look::Runs;
        }
        let past = self.seek.group_start(group) % u64::from(stripe);
        let first = (u64::from(stripe) - past) % u64::from(stripe);
        Look::Stripes {
            stripe,
            first: first as u32,
        }
    }

    /// Looks through one group if it is good; it is asked before it is loaded, and again under its
    /// lock.
    pub(super) fn scan_group(
        &mut self,
        candidate: Candidate,
        good: impl Fn(&Self, GroupState) -> bool,
        scan: &mut Scan,
    ) -> Option<Found> {
        let Candidate {
            group,
            criterion,
            look,
            ..
        } = candidate;
        if !good(self, self.seek.group(group)) {
            return None;
        }
        let before = scan.found;
        let mut scanned = false;
        let visit = self.seek.visit(group, candidate.lock, |buddy| {
            scanned = good(self, GroupState::of(buddy));
            if !scanned {
                return None;
            }
            scan.group(look, buddy, group)
        });
        if scanned {
            self.seek.scanned(criterion, scan.found - before);
        }
        let Visit::Done(piece) = visit else {
            return None;
        };
        self.seek.hit(criterion);
        if matches!(look, Look::Order(_)) {
            self.kernel.counters.pow2_hits.fetch_add(1, Relaxed);
        }
        Some(Found { group, piece })
    }

    /// The best run met; from here on the first that will do is taken. `None` if none will.
    pub(super) fn broken_off(&self, scan: &mut Scan) -> Option<Found> {
        if scan.enough {
            self.seek.breaks();
        }
        scan.give_up()
    }

    /// Takes the best run met, if it is still there.
    pub(super) fn take_best(&mut self, scan: &Scan, best: Found) -> Option<Found> {
        let group = best.group;
        let visit = self
            .seek
            .visit(group, Lock::Wait, |buddy| scan.retake(buddy, best.piece));
        if let Visit::Done(piece) = visit {
            return Some(Found { group, piece });
        }
        self.kernel.counters.lost.fetch_add(1, Relaxed);
        None
    }
}

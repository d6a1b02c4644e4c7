//! `criteria`: five criteria with indexes of groups by order.
//!
//! Source: ext4 in Linux since 2023. H. Shirwadkar (2021) and J. Kara (2022) brought the indexes
//! of groups by the order of their largest chunk and of their average free run, O. Mujoo (2023)
//! the criteria by name and the one that shrinks the request, B. Li (2025) the order by group
//! number and the skipping of groups that are busy. In this order:
//!
//! - `POWER2_ALIGNED`: groups with a chunk of the request's order or more, the lowest order first.
//! - `GOAL_LEN_FAST`: groups whose average run has the request's order or more.
//! - `BEST_AVAIL_LEN`, for data: the request cut to a power of two, at most
//!   `mb_best_avail_max_trim_order` orders, not below what was needed before it was normalised, and
//!   rounded up to the stripe; groups whose average run has that order.
//! - `GOAL_LEN_SLOW`: all groups with as many free blocks.
//! - `ANY_FREE`: all groups with any; only here a lock that another thread holds is waited for.
//!
//! In each index the groups from the goal's on are asked before those below it. With fewer than
//! 16 groups there is no index: all criteria but the third walk over all groups. A device that
//! seeks has `mb_max_linear_groups` near groups asked first.
//!
//! It differs in two points. Mainline reads all bitmaps in the background after the mount, and
//! knows nothing of a group before; here such a group stands under what its number of free blocks
//! allows at best. And, as in `linear.rs`, the last criterion goes on until what it found is of
//! use.
//!
//! Tunables: as `linear.rs`, and `mb_max_linear_groups` (4 groups, only if rotational),
//! `mb_best_avail_max_trim_order` (3), `mb_prefetch` (32 groups), `mb_prefetch_limit` (128 groups).

use std::ops::Range;

use uext4_mballoc::{Found, GroupState, Lock};
use uext4_ondisk::GroupNr;

use super::kernel::{Candidate, Walk};
use super::orders::average_order;
use super::scan::{Look, Scan};

const POWER2_ALIGNED: usize = 0;
const GOAL_LEN_FAST: usize = 1;
const BEST_AVAIL_LEN: usize = 2;
const GOAL_LEN_SLOW: usize = 3;
const ANY_FREE: usize = 4;

/// From how many groups on the indexes are used.
const INDEX_FROM: u32 = 16;

impl Walk<'_, '_> {
    /// See the file's head.
    pub(super) fn criteria(&mut self) -> Option<Found> {
        let mut scan = Scan::new(&self.seek.query, &self.kernel.tunables);
        let mut cr = match self.order2() {
            Some(_) => POWER2_ALIGNED,
            None => GOAL_LEN_FAST,
        };
        loop {
            while cr <= ANY_FREE {
                let found = self.criterion(cr, &mut scan);
                scan.want = self.seek.query.want;
                if found.is_some() {
                    return found;
                }
                if scan.enough {
                    break;
                }
                self.seek.useless(cr);
                let by_index = self.has_index() && self.seek.hints.data;
                cr = match cr {
                    GOAL_LEN_FAST if !by_index => GOAL_LEN_SLOW,
                    cr => cr + 1,
                };
            }
            let best = self.broken_off(&mut scan)?;
            if let Some(found) = self.take_best(&scan, best) {
                return Some(found);
            }
            cr = ANY_FREE;
        }
    }

    fn has_index(&self) -> bool {
        self.seek.groups_count() >= INDEX_FROM
    }

    fn criterion(&mut self, cr: usize, scan: &mut Scan) -> Option<Found> {
        scan.skip_short = matches!(cr, GOAL_LEN_FAST | BEST_AVAIL_LEN);
        if cr >= GOAL_LEN_SLOW || !self.has_index() {
            return self.one_by_one(cr, u32::MAX, scan);
        }
        if self.kernel.tunables.rotational {
            let most = self.kernel.tunables.max_linear_groups;
            let found = self.one_by_one(cr, most, scan);
            if found.is_some() || scan.enough {
                return found;
            }
        }
        let order_max = self.seek.order_max();
        match (cr, self.order2()) {
            (POWER2_ALIGNED, Some(order)) => self.by_order(cr, order..order_max + 1, scan),
            (BEST_AVAIL_LEN, _) => self.cut(scan),
            _ => {
                let order = average_order(scan.want, order_max);
                self.by_order(cr, order..order_max + 1, scan)
            }
        }
    }

    /// At most `most` groups from the goal's on, once round.
    fn one_by_one(&mut self, cr: usize, most: u32, scan: &mut Scan) -> Option<Found> {
        let count = self.seek.groups_count();
        let goal = self.seek.query.goal.group;
        for group in (goal..count).chain(0..goal).take(most as usize) {
            let found = self.ask_group(cr, group, scan);
            if found.is_some() || scan.enough {
                return found;
            }
        }
        None
    }

    /// The groups of these orders: those from the goal's on, then the others.
    fn by_order(&mut self, cr: usize, orders: Range<u32>, scan: &mut Scan) -> Option<Found> {
        let kernel = self.kernel;
        let index = match cr {
            POWER2_ALIGNED => &kernel.orders.largest,
            _ => &kernel.orders.average,
        };
        let goal = self.seek.query.goal.group;
        for part in [goal..self.seek.groups_count(), 0..goal] {
            for order in orders.clone() {
                let mut from = part.start;
                while let Some(group) = index.next(order, from).filter(|g| part.contains(g)) {
                    let found = self.ask_group(cr, group, scan);
                    if found.is_some() || scan.enough {
                        return found;
                    }
                    from = group + 1;
                }
            }
        }
        None
    }

    /// `BEST_AVAIL_LEN`: ever shorter requests.
    fn cut(&mut self, scan: &mut Scan) -> Option<Found> {
        let order_max = self.seek.order_max();
        let whole = self.seek.query.want.ilog2();
        let stripe = self.seek.options().stripe.max(1);
        let enough = self.seek.query.need.next_power_of_two().ilog2();
        let least = whole
            .saturating_sub(self.kernel.tunables.best_avail_max_trim_order)
            .max(stripe.ilog2())
            .max(enough);
        for order in (least..=whole).rev() {
            let cut = (1u32 << order).next_multiple_of(stripe);
            scan.want = cut.min(self.seek.query.want);
            let order = average_order(scan.want, order_max);
            let found = self.by_order(BEST_AVAIL_LEN, order..order + 1, scan);
            if found.is_some() || scan.enough {
                return found;
            }
        }
        None
    }

    /// One group: whether it may do, and then what is in it.
    fn ask_group(&mut self, cr: usize, group: u32, scan: &mut Scan) -> Option<Found> {
        self.prefetch(group, cr < GOAL_LEN_SLOW);
        self.seek.consider(cr);
        let order2 = self.order2();
        let want = scan.want;
        let good = |walk: &Self, state: GroupState| match (cr, order2) {
            (POWER2_ALIGNED, Some(order)) => walk.good_order(group, state, order),
            (GOAL_LEN_FAST | BEST_AVAIL_LEN, _) => state.average_run() >= want,
            (GOAL_LEN_SLOW, _) => state.free >= want,
            _ => state.free > 0,
        };
        let look = match (cr, order2) {
            (POWER2_ALIGNED, Some(order)) => Look::Order(order),
            (GOAL_LEN_FAST | BEST_AVAIL_LEN, _) => self.look_aligned(group, scan.want),
            _ => Look::Runs,
        };
        let candidate = Candidate {
            group,
            lock: if cr == ANY_FREE {
                Lock::Wait
            } else {
                Lock::Try
            },
            criterion: cr,
            look,
        };
        self.scan_group(candidate, good, scan)
    }

    /// Asks for the bitmaps of the groups from `group` on, if the scan has come to where the last
    /// ones asked for end: the rest of its flex group, `mb_prefetch` at most; cheap criteria ask
    /// for `mb_prefetch_limit` in all.
    fn prefetch(&mut self, group: u32, cheap: bool) {
        let tunables = &self.kernel.tunables;
        if group != self.ahead || cheap && self.asked >= tunables.prefetch_limit {
            return;
        }
        let (flex, groups) = (self.seek.options().flex_groups, self.seek.groups_count());
        let in_flex = flex - group % flex;
        let count = if flex > 1 {
            tunables.prefetch.min(in_flex)
        } else {
            tunables.prefetch
        };
        let end = group.saturating_add(count.max(1)).min(groups);
        let wanted: Vec<GroupNr> = (group..end)
            .filter(|&group| {
                let state = self.seek.group(group);
                state.free > 0 && !state.loaded
            })
            .map(GroupNr)
            .collect();
        self.ahead = end % groups;
        self.asked += wanted.len() as u32;
        self.seek.prefetch(&wanted);
    }
}

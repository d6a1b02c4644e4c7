//! `linear`: four criteria, each over all groups one after the other.
//!
//! Source: ext4 in Linux 3.15, the vanilla of Czerner and Dilger, "ext4: Fix
//! ext4_mb_normalize_request", linux-ext4, June 2014. From the goal's group on and once round, per
//! criterion: cr0 wants a chunk of the request's order, cr1 groups whose average free run is long
//! enough, cr2 groups with as many free blocks, cr3 groups with any. Each group that may do is loaded,
//! locked, and looked through as `scan.rs` says.
//!
//! It differs in three points. Groups whose bitmap was not read are asked by what their number of
//! free blocks allows, and read only if that would do. A request for more than the largest chunk
//! starts at cr1 and not with a cr0 that cannot find any. And cr3 goes on until what it found is of
//! use, so that nothing is refused that could be had.
//!
//! Tunables: `mb_max_to_scan` (200 runs), `mb_min_to_scan` (10 runs), `mb_order2_req` (2: powers of two
//! from 2 blocks up are looked for by order), `stripe` (blocks).

use super::scan::{Look, Scan};
use super::{Found, Seek};
use crate::GroupBitmaps;
use crate::buddy::Piece;
use crate::groups::{Answer, Glance, Visit};

/// Criteria by number: a chunk, the average, the sum, anything.
const CR_ORDER: usize = 0;
const CR_AVERAGE: usize = 1;
const CR_SUM: usize = 2;
const CR_ANY: usize = 3;

/// From how many groups of a flex group on data keep out of its first.
pub(super) const FLEX_SIZE_DIR_ALLOC: u32 = 4;

impl<B: GroupBitmaps> Seek<'_, B> {
    /// See the file's head.
    pub(super) fn linear(&mut self) -> Answer<Option<Found>, B> {
        let order2 = self.order2();
        let mut scan = Scan::new(&self.ask, self.options());
        let mut first = if order2.is_some() {
            CR_ORDER
        } else {
            CR_AVERAGE
        };
        loop {
            for cr in first..=CR_ANY {
                if let Some(found) = self.linear_pass(cr, order2, &mut scan)? {
                    return Ok(Some(found));
                }
                if scan.enough {
                    break;
                }
            }
            let Some((group, best)) = self.broken_off(&mut scan) else {
                return Ok(None);
            };
            if let Some(found) = self.take_best(&scan, group, best)? {
                return Ok(Some(found));
            }
            first = CR_ANY;
        }
    }

    fn linear_pass(
        &mut self,
        cr: usize,
        order2: Option<u32>,
        scan: &mut Scan,
    ) -> Answer<Option<Found>, B> {
        let count = self.allocator.groups().count();
        let goal = self.ask.goal.0;
        for group in (goal..count).chain(0..goal) {
            self.consider(cr);
            let look = match order2 {
                Some(order) if cr == CR_ORDER => Look::Order(order),
                _ if cr == CR_AVERAGE => self.look_aligned(group, scan.want),
                _ => Look::Runs,
            };
            let want = scan.want;
            let good = |seek: &Self, glance: Glance| match (cr, order2) {
                (CR_ORDER, Some(order)) => seek.good_order(group, glance, order),
                (CR_AVERAGE, _) => glance.free / glance.fragments.max(1) >= want,
                (CR_SUM, _) => glance.free >= want,
                _ => glance.free > 0,
            };
            let found = self.scan_group(group, true, cr, look, good, scan)?;
            if found.is_some() {
                return Ok(found);
            }
            if scan.enough {
                return Ok(None);
            }
        }
        let counters = self.counters();
        counters.add(&counters.criteria[cr].useless_loops, 1);
        Ok(None)
    }

    /// Order of the request if it is a power of two that is looked for by order.
    pub(super) fn order2(&self) -> Option<u32> {
        let order = self.ask.want.ilog2();
        let by_order = self.ask.want.is_power_of_two()
            && order > 0
            && order + 1 >= self.options().order2_req
            && order <= self.allocator.groups().shape.order_max;
        by_order.then_some(order)
    }

    /// Whether a group may have a chunk of `order`; the first group of a flex group is kept for
    /// directories.
    pub(super) fn good_order(&self, group: u32, glance: Glance, order: u32) -> bool {
        let flex = self.options().flex_groups;
        let kept = self.ask.data && flex >= FLEX_SIZE_DIR_ALLOC && group.is_multiple_of(flex);
        !kept && glance.largest_order.is_some_and(|largest| largest >= order)
    }

    /// Requests of whole stripes are first looked for at the starts of stripes.
    pub(super) fn look_aligned(&self, group: u32, want: u32) -> Look {
        let stripe = self.options().stripe;
        if stripe <= 1 || want < stripe || !want.is_multiple_of(stripe) {
            return Look::Runs;
        }
        let past = self.allocator.groups().group_start(group) % u64::from(stripe);
        let first = (u64::from(stripe) - past) % u64::from(stripe);
        Look::Stripes {
            stripe,
            first: first as u32,
        }
    }

    /// Looks through one group if it is good, waiting for its lock or not; it is asked before it is
    /// loaded, and again under its lock.
    pub(super) fn scan_group(
        &mut self,
        group: u32,
        wait: bool,
        cr: usize,
        look: Look,
        good: impl Fn(&Self, Glance) -> bool,
        scan: &mut Scan,
    ) -> Answer<Option<Found>, B> {
        if !good(self, self.allocator.groups().glance(group)) {
            return Ok(None);
        }
        let before = scan.found;
        let mut scanned = false;
        let visit = self.visit(group, wait, |buddy| {
            scanned = good(self, Glance::of(buddy));
            if !scanned {
                return None;
            }
            scan.group(look, buddy, group)
        })?;
        if scanned {
            self.scanned(cr, scan.found - before);
        }
        let Visit::Done(piece) = visit else {
            return Ok(None);
        };
        let counters = self.counters();
        counters.add(&counters.criteria[cr].hits, 1);
        let by_order = matches!(look, Look::Order(_));
        counters.add(&counters.pow2_hits, by_order.into());
        Ok(Some(Found { group, piece }))
    }

    /// The best run met; from here on the first that will do is taken. `None` if none will.
    pub(super) fn broken_off(&self, scan: &mut Scan) -> Option<(u32, Piece)> {
        let counters = self.counters();
        counters.add(&counters.breaks, scan.enough.into());
        scan.give_up()
    }

    /// Takes the best run met, if it is still there.
    pub(super) fn take_best(
        &mut self,
        scan: &Scan,
        group: u32,
        best: Piece,
    ) -> Answer<Option<Found>, B> {
        let visit = self.visit(group, true, |buddy| scan.retake(buddy, best))?;
        if let Visit::Done(piece) = visit {
            return Ok(Some(Found { group, piece }));
        }
        let counters = self.counters();
        counters.add(&counters.lost, 1);
        Ok(None)
    }
}

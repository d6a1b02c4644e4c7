//! `linear`: four criteria, each over all groups one after the other.
//!
//! Source: ext4 in Linux 3.15, the vanilla of Czerner and Dilger, "ext4: Fix
//! ext4_mb_normalize_request", linux-ext4, June 2014. From the goal's group on and once round,
//! per criterion: cr0 wants a chunk of the request's order, cr1 groups whose average free run is
//! long enough, cr2 groups with as many free blocks, cr3 groups with any. Each group that may do
//! is loaded, locked, and looked through as `scan.rs` says.
//!
//! It differs in three points. Groups whose bitmap was not read are asked by what their number of
//! free blocks allows, and read only if that would do. A request for more than the largest chunk
//! starts at cr1 and not with a cr0 that cannot find any. And cr3 goes on until what it found is of
//! use, so that nothing is refused that could be had.
//!
//! Tunables: `mb_max_to_scan` (200 runs), `mb_min_to_scan` (10 runs), `mb_order2_req` (2: powers
//! of two from 2 blocks up are looked for by order), `stripe` (blocks).

use uext4_mballoc::{Found, GroupState, Lock};

use super::kernel::{Candidate, Walk};
use super::scan::{Look, Scan};

/// Criteria by number: a chunk, the average, the sum, anything.
const CR_ORDER: usize = 0;
const CR_AVERAGE: usize = 1;
const CR_SUM: usize = 2;
const CR_ANY: usize = 3;

impl Walk<'_, '_> {
    /// See the file's head.
    pub(super) fn linear(&mut self) -> Option<Found> {
        let order2 = self.order2();
        let mut scan = Scan::new(&self.seek.query, &self.kernel.tunables);
        let mut first = if order2.is_some() {
            CR_ORDER
        } else {
            CR_AVERAGE
        };
        loop {
            for cr in first..=CR_ANY {
                if let Some(found) = self.linear_pass(cr, order2, &mut scan) {
                    return Some(found);
                }
                if scan.enough {
                    break;
                }
            }
            let best = self.broken_off(&mut scan)?;
            if let Some(found) = self.take_best(&scan, best) {
                return Some(found);
            }
            first = CR_ANY;
        }
    }

    fn linear_pass(&mut self, cr: usize, order2: Option<u32>, scan: &mut Scan) -> Option<Found> {
        let count = self.seek.groups_count();
        let goal = self.seek.query.goal.group;
        for group in (goal..count).chain(0..goal) {
            self.seek.consider(cr);
            let look = match order2 {
                Some(order) if cr == CR_ORDER => Look::Order(order),
                _ if cr == CR_AVERAGE => self.look_aligned(group, scan.want),
                _ => Look::Runs,
            };
            let want = scan.want;
            let good = |walk: &Self, state: GroupState| match (cr, order2) {
                (CR_ORDER, Some(order)) => walk.good_order(group, state, order),
                (CR_AVERAGE, _) => state.average_run() >= want,
                (CR_SUM, _) => state.free >= want,
                _ => state.free > 0,
            };
            let candidate = Candidate {
                group,
                lock: Lock::Wait,
                criterion: cr,
                look,
            };
            let found = self.scan_group(candidate, good, scan);
            if found.is_some() || scan.enough {
                return found;
            }
        }
        self.seek.useless(cr);
        None
    }
}

//! `largest-run`: the exact longest run of every group, and bounded work.
//!
//! Each group's longest run is kept exact while blocks come and go, and so is its longest row of free
//! stripes; trees of maxima over the groups find the next group that has enough. So a group that is
//! looked into has what is wanted, but for groups whose bitmap was never read: these stand under
//! their number of free blocks, and are corrected when they are read. In this order:
//!
//! 0. A stream that needs a new place: the start of the longest run, or row of free stripes, of the
//!    next group where that has eight times what is wanted and no other stream goes on: so files that
//!    grow together lie apart, and go on for long. Where there is not so much space ([`crate::Hints::crowded`])
//!    none looks for such a place: they lie one behind the other.
//! 1. With a stripe, requests of one or more: the next group with a row of as many free stripes, the
//!    shortest such row among the first few; if there is none, the longest row there is, as long as it
//!    has half of what is wanted or all that is needed.
//! 2. For streams, but not with windows of stripes: a run among the first few of the next groups that
//!    is no longer than what is wanted and not much shorter ([`crate::Hints::fill`]): it is taken whole, so
//!    that one free run less is left, not one more.
//!    Else the next group with a run of the length wanted; in it the shortest such run among the first few
//!    after the goal. With a stripe one that breaks fewer free stripes is preferred.
//! 3. The next group whose longest run has the binary order of the longest there is.
//! 4. What is certain: the longest run met, else the next group that has any of use.
//!
//! Data keep out of the first group of a flex group of four or more, where the metadata of all are:
//! steps 0 to 3 pass by it, and only if they find nothing look again without that. What is not data goes there first if its goal does not do, not behind somebody's data.
//!
//! All but the last together look into [`GROUPS_MAX`] groups at most, and measure [`FIT_SCAN`] runs in
//! each; the last looks into few: each group that was read once answers. Only a request that has a
//! least length of more than one block may there have to read groups never read before, and groups
//! that turn out to be bad come on top once each. Somebody else's lock is waited for in the last step
//! only, and by requests that continue something at their goal. Who finds a lock held goes to a group
//! of its own from then on (`leases.rs`) as long as its goal is held.
//!
//! It differs from the proposals it draws on: no chunks are handed out under a lease without the lock,
//! as most requests are windows already, and an answer does not go past the end of a group: one that
//! would is given as the group's tail, and the rest goes on in the next group. No tunables but `stripe` and `mb_prefetch`.

use uext4_ondisk::GroupNr;

use super::linear::FLEX_SIZE_DIR_ALLOC;
use super::{Ask, Found, Seek};
use crate::GroupBitmaps;
use crate::buddy::{Buddy, Piece};
use crate::groups::{Answer, Visit};
use crate::maxima::Maxima;

/// Groups looked into by the steps that may find nothing.
pub(super) const GROUPS_MAX: u64 = 60;
/// Of them, those in search of a place for a stream.
const PLACES_MAX: u64 = 16;
/// Of them, those in search of a run to fill.
const FILLED_MAX: u64 = 16;
/// Runs measured in one group.
const FIT_SCAN: u32 = 8;

const STRIPES: usize = 0;
const LONG_ENOUGH: usize = 1;
const LONGEST: usize = 2;
const CERTAIN: usize = 3;
const PLACE: usize = 4;

/// Blocks of the longest extent (`EXT_INIT_MAX_LEN`).
const EXTENT_MAX: u64 = 32_768;

/// How many times what a stream wants should be free where it begins.
const WIDE: u32 = 8;

/// The longest run met and not taken: its group and its length then.
type Met = Option<(u32, u32)>;

impl<B: GroupBitmaps> Seek<'_, B> {
    /// See the file's head.
    pub(super) fn largest_run(&mut self) -> Answer<Option<Found>, B> {
        let mut met = None;
        let flex = self.options().flex_groups;
        self.spares_first = self.ask.data && flex >= FLEX_SIZE_DIR_ALLOC;
        if !self.ask.data && !self.ask.merge && flex >= FLEX_SIZE_DIR_ALLOC {
            let group = self.ask.goal.0;
            self.ask.goal = (group - group % flex, 0);
        }
        let mut found = self.bounded(&mut met)?;
        if found.is_none() && self.spares_first {
            self.spares_first = false;
            found = self.bounded(&mut met)?;
        }
        if found.is_none() {
            found = self.certain(met)?;
        }
        if let Some(found) = found
            && self.busy
        {
            self.allocator.leases().set(found.group);
        }
        Ok(found)
    }

    fn bounded(&mut self, met: &mut Met) -> Answer<Option<Found>, B> {
        let Ask {
            want, min, need, ..
        } = self.ask;
        let groups = self.allocator.groups();
        if self.stream.is_some() {
            let found = self.place_apart(met)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        if let Some(wholes) = want.checked_div(groups.shape.stripe).filter(|&n| n > 0) {
            let found = self.stripes(wholes, met)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let found = self.filled(met)?;
        if found.is_some() {
            return Ok(found);
        }
        let fit = |buddy: &Buddy, from: u32| buddy.fit(want, from, FIT_SCAN);
        let found = self.walk(LONG_ENOUGH, &groups.longest, want, met, fit)?;
        if found.is_some() {
            return Ok(found);
        }
        let mut last = u32::MAX;
        loop {
            let top = groups.longest.largest();
            // Shorter each time, but for groups that others hold.
            if top < min || top >= last || self.work.groups >= GROUPS_MAX {
                return Ok(None);
            }
            last = top;
            let least = min.max(1 << top.ilog2()).max(need.min(top));
            let longest = |buddy: &Buddy, _| match buddy.longest() {
                longest if longest >= least => buddy.fit(longest, 0, 1),
                _ => (None, 0),
            };
            let found = self.walk(LONGEST, &groups.longest, least, met, longest)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// A place for a stream, so far from others that it does not meet them before it has filled an
    /// extent; with small blocks an extent is longer than a group, and if there is no place that far, a
    /// group of its own will do.
    fn place_apart(&mut self, met: &mut Met) -> Answer<Option<Found>, B> {
        let group = u64::from(self.allocator.groups().shape.blocks_per_group);
        self.apart = EXTENT_MAX.max(group);
        self.most = PLACES_MAX;
        let mut found = self.new_place(met)?;
        if found.is_none() && self.apart > group {
            self.apart = group;
            found = self.new_place(met)?;
        }
        self.apart = 0;
        self.most = GROUPS_MAX;
        Ok(found)
    }

    /// A place where a stream can go on for long: the next group in which no other stream goes on and
    /// whose longest run, or row of free stripes, has several times what is wanted; its start.
    fn new_place(&mut self, met: &mut Met) -> Answer<Option<Found>, B> {
        let want = self.ask.want;
        let groups = self.allocator.groups();
        let shape = groups.shape;
        let wide = want
            .saturating_mul(WIDE)
            .min(shape.blocks_per_group / 2)
            .max(want);
        let wholes = wide.checked_div(shape.stripe).filter(|&n| n > 0);
        let (index, least) = match wholes {
            Some(wholes) => (&groups.stripe_rows, wholes),
            None => (&groups.longest, wide),
        };
        let longest = |buddy: &Buddy, _| {
            if wholes.is_none() {
                return buddy.fit(buddy.longest().max(least), 0, 1);
            }
            let (start, looked) = buddy.stripe_row(buddy.stripes().1.max(least), 0, 1);
            let piece = start.map(|start| Piece {
                start,
                len: buddy.run_at(start, want),
            });
            (piece, looked)
        };
        self.walk(PLACE, index, least, met, longest)
    }

    /// Step 2: a run that is taken whole, of a group whose bitmap is known.
    fn filled(&mut self, met: &mut Met) -> Answer<Option<Found>, B> {
        let Ask {
            want, min, fill, ..
        } = self.ask;
        let groups = self.allocator.groups();
        let by_stripe = groups.shape.stripe > 1 && want >= groups.shape.stripe;
        if fill == 0 || by_stripe {
            return Ok(None);
        }
        let least = fill.clamp(min, want);
        let whole = |buddy: &Buddy, from: u32| {
            let (piece, looked) = buddy.fit(least, from, FIT_SCAN);
            (piece.filter(|piece| piece.len <= want), looked)
        };
        self.most = self.work.groups + FILLED_MAX;
        self.only_loaded = true;
        let found = self.walk(LONG_ENOUGH, &groups.longest, least, met, whole);
        self.most = GROUPS_MAX;
        self.only_loaded = false;
        found
    }

    /// Step 1: `wholes` free stripes in a row, or as many as there are.
    fn stripes(&mut self, wholes: u32, met: &mut Met) -> Answer<Option<Found>, B> {
        let Ask {
            want, min, need, ..
        } = self.ask;
        let groups = self.allocator.groups();
        let stripe = groups.shape.stripe;
        let mut least = wholes;
        loop {
            let row = |buddy: &Buddy, from: u32| {
                let (start, looked) = buddy.stripe_row(least, from, FIT_SCAN);
                let piece = start.map(|start| Piece {
                    start,
                    len: buddy.run_at(start, want),
                });
                (piece, looked)
            };
            let found = self.walk(STRIPES, &groups.stripe_rows, least, met, row)?;
            if found.is_some() || self.work.groups >= GROUPS_MAX {
                return Ok(found);
            }
            let top = groups.stripe_rows.largest();
            let blocks = top.saturating_mul(stripe);
            let will_do = blocks >= need || blocks >= min && top >= wholes.div_ceil(2);
            if top == 0 || top >= least || !will_do {
                return Ok(None);
            }
            least = top;
        }
    }

    /// Groups whose number is at least `least`, from the goal's on and once round, until `choose`
    /// finds something in one; it is given the offset to start at, and also tells at how many runs it
    /// looked. Who found a lock held passes by the groups that others were sent to, at first.
    fn walk(
        &mut self,
        criterion: usize,
        index: &Maxima,
        least: u32,
        met: &mut Met,
        choose: impl Fn(&Buddy, u32) -> (Option<Piece>, u32),
    ) -> Answer<Option<Found>, B> {
        let start = self.start(index, least);
        let mut step = |seek: &mut Self, group: u32| {
            let from = if group == start.0 { start.1 } else { 0 };
            seek.look(criterion, group, met, |buddy| choose(buddy, from))
        };
        let mut found = self.round(index, least, start.0, false, &mut step)?;
        if found.is_none() && self.busy {
            found = self.round(index, least, start.0, true, &mut step)?;
        }
        if found.is_none() {
            let counters = self.counters();
            let enough = self.work.groups >= GROUPS_MAX;
            counters.add(&counters.breaks, enough.into());
            counters.add(&counters.criteria[criterion].useless_loops, 1);
        }
        Ok(found)
    }

    /// One round of a walk, over all groups or those that nobody was sent to.
    fn round(
        &mut self,
        index: &Maxima,
        least: u32,
        start: u32,
        leased: bool,
        step: &mut impl FnMut(&mut Self, u32) -> Answer<Option<Found>, B>,
    ) -> Answer<Option<Found>, B> {
        let mut loads = 0;
        for part in [start..self.allocator.groups().count(), 0..start] {
            let mut next = part.start;
            while let Some(group) = index.next(least, next).filter(|g| part.contains(g)) {
                if self.work.groups >= self.most.min(GROUPS_MAX) {
                    return Ok(None);
                }
                next = group + 1;
                let is_spared =
                    self.spares_first && group.is_multiple_of(self.options().flex_groups);
                if is_spared || self.apart > 0 && self.has_other_streams(group) {
                    continue;
                }
                let others = self.busy && group != start;
                if others && !leased && self.allocator.leases().is_leased(group) {
                    continue;
                }
                if !self.allocator.groups().glance(group).loaded {
                    if self.only_loaded {
                        continue;
                    }
                    self.read_ahead(index, least, group, loads);
                    loads += 1;
                }
                let found = step(self, group)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// Whether another stream goes on in the group, or within [`Seek::apart`] blocks of its ends.
    fn has_other_streams(&self, group: u32) -> bool {
        let groups = self.allocator.groups();
        let start = groups.group_start(group);
        let len = u64::from(groups.blocks_in_group(group));
        let apart = self.apart.max(len);
        let blocks = start.saturating_sub(apart - len)..start.saturating_add(apart);
        let streams = self.allocator.streams();
        self.stream
            .is_some_and(|file| streams.others_in(file, &blocks))
    }

    /// Where a walk starts: at the goal, or if that is busy in the group the thread was sent to.
    fn start(&self, index: &Maxima, least: u32) -> (u32, u32) {
        let lease = if self.busy {
            self.allocator.leases().group()
        } else {
            None
        };
        match lease.filter(|&group| index.get(group) >= least) {
            Some(group) => (group, 0),
            None => self.ask.goal,
        }
    }

    /// Tries one group.
    fn look(
        &mut self,
        criterion: usize,
        group: u32,
        met: &mut Met,
        choose: impl FnOnce(&Buddy) -> (Option<Piece>, u32),
    ) -> Answer<Option<Found>, B> {
        let Ask { want, min, .. } = self.ask;
        let (mut looked, mut longest) = (0, 0);
        let visit = self.visit(group, criterion == CERTAIN, |buddy| {
            let (piece, runs) = choose(buddy);
            (looked, longest) = (runs, buddy.longest());
            let piece = piece.filter(|piece| piece.len >= min)?;
            let len = piece.len.min(want);
            buddy.take(piece.start, len);
            Some(Piece { len, ..piece })
        })?;
        if matches!(visit, Visit::Bad) {
            return Ok(None);
        }
        self.consider(criterion);
        if matches!(visit, Visit::Busy) {
            self.busy = true;
            return Ok(None);
        }
        self.scanned(criterion, looked);
        let Visit::Done(piece) = visit else {
            if met.is_none_or(|(_, known)| longest > known) {
                *met = Some((group, longest));
            }
            return Ok(None);
        };
        let counters = self.counters();
        counters.add(&counters.criteria[criterion].hits, 1);
        Ok(Some(Found { group, piece }))
    }

    /// Step 4.
    fn certain(&mut self, met: Met) -> Answer<Option<Found>, B> {
        let min = self.ask.min;
        let index = &self.allocator.groups().longest;
        let mut next = met.filter(|&(_, longest)| longest >= min);
        loop {
            let goal = self.ask.goal.0;
            let group = next
                .take()
                .map(|(group, _)| group)
                .or_else(|| index.next(min, goal))
                .or_else(|| index.next(min, 0))
                .or_else(|| index.any(min));
            let Some(group) = group else {
                return Ok(None);
            };
            let found = self.look(CERTAIN, group, &mut None, |buddy| match buddy.longest() {
                longest if longest >= min => buddy.fit(longest, 0, 1),
                _ => (None, 0),
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Asks for the bitmaps of groups that the walk may come to after `group`, if that is not the
    /// first it reads: where one did not do, more may not.
    fn read_ahead(&mut self, index: &Maxima, least: u32, group: u32, loads: u32) {
        let options = self.options();
        let (_, asked) = self.ahead;
        let most = options
            .prefetch
            .min(options.prefetch_limit.saturating_sub(asked));
        if loads == 0 || most == 0 || !(loads - 1).is_multiple_of(options.prefetch) {
            return;
        }
        let groups = self.allocator.groups();
        let mut next = Some(group);
        let candidates = std::iter::from_fn(|| {
            let here = next?;
            next = index.next(least, here + 1);
            Some(here)
        });
        let wanted: Vec<GroupNr> = candidates
            .take(most as usize * 2)
            .filter(|&group| !groups.glance(group).loaded)
            .take(most as usize)
            .map(GroupNr)
            .collect();
        self.ahead.1 = asked + wanted.len() as u32;
        self.prefetch_these(&wanted);
    }
}

//! The exact longest run of every group, and bounded work.
//!
//! Each group's longest run stays exact while blocks come and go, and so is its longest row of
//! free stripes; trees of maxima over the groups find the next group that has enough. So a group
//! that is looked into has what is wanted, but for groups whose bitmap was never read: these
//! stand under their number of free blocks, and are corrected when they are read. If the goal
//! does not do (`goal.rs`), in this order:
//!
//! 0. A stream that needs a new place: the start of the longest run, or row of free stripes, of
//!    the next group where that has eight times what is wanted and no other stream goes on: so
//!    files that grow together lie apart, and go on for long. Where there is not so much space
//!    ([`crate::Hints::crowded`]) none looks for such a place: they lie one behind the other.
//! 1. With a stripe, requests of one or more: the next group with a row of as many free stripes,
//!    the shortest such row among the first few; if there is none, the longest row there is, as
//!    long as it has half of what is wanted or all that is needed.
//! 2. For streams, but not with windows of stripes: a run among the first few of the next groups
//!    that is no longer than what is wanted and not much shorter ([`crate::Hints::fill`]): it is
//!    taken whole, so that one free run less is left, not one more. Else the next group with a
//!    run of the length wanted; in it the shortest such run among the first few after the goal.
//!    With a stripe one that breaks fewer free stripes is preferred.
//! 3. The next group whose longest run has the binary order of the longest there is.
//! 4. What is certain: the longest run met, else the next group that has any of use.
//!
//! Data keep out of the first group of a flex group of four or more, where the metadata of all are:
//! steps 0 to 3 pass by it, and only if they find nothing look again without that. What is not data
//! goes there first if its goal does not do, not behind the data of a file.
//!
//! All but the last together look into [`GROUPS_MAX`] groups at most, and measure [`FIT_SCAN`]
//! runs in each; the last looks into few: each group that was read once answers. Only a request
//! that has a least length of more than one block may there have to read groups never read
//! before, and groups that turn out to be bad come on top once each. A lock that another thread
//! holds is waited for in the last step only, and by requests that continue something at their
//! goal. A thread that finds a lock held goes to a group of its own from then on (`leases.rs`) as
//! long as its goal is held.
//!
//! It differs from the proposals it draws on: no chunks are handed out under a lease without the
//! lock, as most requests are windows already, and an answer does not go past the end of a group:
//! one that would is given as the group's tail, and the rest goes on in the next group.

use uext4_ondisk::GroupNr;
use uext4_support::Replaced;

use super::{Found, Query, Search, Seek};
use crate::buddy::Buddy;
use crate::groups::{Lock, Place, Visit};
use crate::maxima::Maxima;
use crate::options::{PREFETCH, PREFETCH_LIMIT};
use crate::runs::Piece;

mod goal;
mod leases;
mod streams;

use leases::Leases;
use streams::Streams;

/// Groups looked into by the steps that may find nothing.
const GROUPS_MAX: u64 = 60;
/// Of them, those in search of a place for a stream.
const PLACES_MAX: u64 = 16;
/// Of them, those in search of a run to fill.
const FILLED_MAX: u64 = 16;
/// Runs measured in one group.
const FIT_SCAN: u32 = 8;

// The steps, by which statistics count (`Stats::criteria`).
const STRIPES: usize = 0;
const LONG_ENOUGH: usize = 1;
const LONGEST: usize = 2;
const CERTAIN: usize = 3;
const PLACE: usize = 4;

/// From how many groups of a flex group on data keep out of its first (`FLEX_SIZE_DIR_ALLOC`).
const FLEX_SIZE_DIR_ALLOC: u32 = 4;
/// Blocks of the longest extent (`EXT_INIT_MAX_LEN`).
const EXTENT_MAX: u64 = 32_768;

/// How many times what a stream wants should be free where it begins.
const WIDE: u32 = 8;

/// The longest run met and not taken, if any.
type Met = Option<Longest>;

/// The longest run of a group when it was looked into.
#[derive(Clone, Copy, Debug)]
struct Longest {
    group: u32,
    longest: u32,
}

/// The groups of a walk: those whose number in `index` is at least `least`, from `start` on.
struct Round<'i> {
    index: &'i Maxima,
    least: u32,
    start: u32,
    /// Groups that other threads were sent to are not passed by.
    leased: bool,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct LargestRun {
    streams: Replaced<Streams>,
    leases: Replaced<Leases>,
}

impl LargestRun {
    /// For a file system of so many groups.
    pub(crate) fn new(groups: u32) -> Self {
        Self {
            streams: Replaced::new(Streams::new(groups)),
            leases: Replaced::new(Leases::new(groups)),
        }
    }

    /// For a file system that has so many groups from now on. Where that allows more places,
    /// streams and threads begin anew.
    pub(crate) fn grow(&self, groups: u32) {
        if Streams::count(groups) > self.streams.get().len() {
            self.streams.set(Streams::new(groups));
        }
        if Leases::count(groups) > self.leases.get().len() {
            self.leases.set(Leases::new(groups));
        }
    }
}

impl Search for LargestRun {
    fn find(&self, seek: &mut Seek<'_>) -> Option<Found> {
        let found = Walk::new(self, seek).find();
        if let (Some(file), Some(found)) = (seek.hints.stream, found) {
            let start = seek.group_start(found.group) + u64::from(found.piece.start);
            let end = start + u64::from(found.piece.len);
            self.streams.get().set(file, end);
        }
        found
    }

    fn at_goal(&self, seek: &mut Seek<'_>) -> Option<Found> {
        Walk::new(self, seek).at_goal()
    }
}

/// One request on its way.
#[derive(Debug)]
struct Walk<'s, 'a> {
    streams: &'s Streams,
    leases: &'s Leases,
    seek: &'s mut Seek<'a>,
    /// How many bitmaps were asked for ahead.
    asked: u32,
    /// Another thread held the lock of a group that would have been looked into.
    busy: bool,
    /// The file whose stream needs a new place.
    stream: Option<u64>,
    /// Groups are passed by if another stream goes on in so many blocks around them; 0: none is.
    apart: u64,
    /// Groups are passed by whose bitmaps are yet to be read.
    only_loaded: bool,
    /// Groups looked into so far from which on a walk ends.
    most: u64,
    /// The first group of each flex group is passed by.
    spares_first: bool,
}

impl<'s, 'a> Walk<'s, 'a> {
    fn new(search: &'s LargestRun, seek: &'s mut Seek<'a>) -> Self {
        Self {
            streams: search.streams.get(),
            leases: search.leases.get(),
            seek,
            asked: 0,
            busy: false,
            stream: None,
            apart: 0,
            only_loaded: false,
            most: GROUPS_MAX,
            spares_first: false,
        }
    }

    /// Looks for a run away from the goal.
    fn search(&mut self) -> Option<Found> {
        let mut met = None;
        let flex = self.seek.options().flex_groups;
        let hints = self.seek.hints;
        self.spares_first = hints.data && flex >= FLEX_SIZE_DIR_ALLOC;
        if !hints.data && !hints.merge && flex >= FLEX_SIZE_DIR_ALLOC {
            let group = self.seek.query.goal.group;
            self.seek.query.goal = Place {
                group: group - group % flex,
                offset: 0,
            };
        }
        let mut found = self.bounded(&mut met);
        if found.is_none() && self.spares_first {
            self.spares_first = false;
            found = self.bounded(&mut met);
        }
        let found = found.or_else(|| self.certain(met));
        if let Some(found) = found
            && self.busy
        {
            self.leases.set(found.group);
        }
        found
    }

    fn bounded(&mut self, met: &mut Met) -> Option<Found> {
        if self.stream.is_some()
            && let Some(found) = self.place_apart(met)
        {
            return Some(found);
        }
        let want = self.seek.query.want;
        let wholes = want.checked_div(self.seek.stripe()).filter(|&n| n > 0);
        if let Some(wholes) = wholes
            && let Some(found) = self.stripes(wholes, met)
        {
            return Some(found);
        }
        if let Some(found) = self.filled(met) {
            return Some(found);
        }
        let longest = self.seek.longest();
        let fit = |buddy: &Buddy, from: u32| buddy.fit(want, from, FIT_SCAN);
        self.walk(LONG_ENOUGH, longest, want, met, fit)
            .or_else(|| self.longest(met))
    }

    /// Step 3.
    fn longest(&mut self, met: &mut Met) -> Option<Found> {
        let Query { min, need, .. } = self.seek.query;
        let index = self.seek.longest();
        let mut last = u32::MAX;
        loop {
            let top = index.largest();
            // Shorter each time, but for groups that others hold.
            if top < min || top >= last || self.seek.work.groups >= GROUPS_MAX {
                return None;
            }
            last = top;
            let least = min.max(1 << top.ilog2()).max(need.min(top));
            let longest = |buddy: &Buddy, _| match buddy.longest() {
                longest if longest >= least => buddy.fit(longest, 0, 1),
                _ => (None, 0),
            };
            let found = self.walk(LONGEST, index, least, met, longest);
            if found.is_some() {
                return found;
            }
        }
    }

    /// A place for a stream, so far from others that it does not meet them before it has filled
    /// an extent; with small blocks an extent is longer than a group, and if there is no place
    /// that far, a group of its own will do.
    fn place_apart(&mut self, met: &mut Met) -> Option<Found> {
        let group = u64::from(self.seek.blocks_per_group());
        self.apart = EXTENT_MAX.max(group);
        self.most = PLACES_MAX;
        let mut found = self.new_place(met);
        if found.is_none() && self.apart > group {
            self.apart = group;
            found = self.new_place(met);
        }
        self.apart = 0;
        self.most = GROUPS_MAX;
        found
    }

    /// A place where a stream can go on for long: the next group in which no other stream goes on
    /// and whose longest run, or row of free stripes, has several times what is wanted; its
    /// start.
    fn new_place(&mut self, met: &mut Met) -> Option<Found> {
        let want = self.seek.query.want;
        let wide = want
            .saturating_mul(WIDE)
            .min(self.seek.blocks_per_group() / 2)
            .max(want);
        let wholes = wide.checked_div(self.seek.stripe()).filter(|&n| n > 0);
        let (index, least) = match wholes {
            Some(wholes) => (self.seek.stripe_rows(), wholes),
            None => (self.seek.longest(), wide),
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
    fn filled(&mut self, met: &mut Met) -> Option<Found> {
        let Query { want, min, .. } = self.seek.query;
        let fill = self.seek.hints.fill;
        let stripe = self.seek.stripe();
        if fill == 0 || stripe > 1 && want >= stripe {
            return None;
        }
        let least = fill.clamp(min, want);
        let whole = |buddy: &Buddy, from: u32| {
            let (piece, looked) = buddy.fit(least, from, FIT_SCAN);
            (piece.filter(|piece| piece.len <= want), looked)
        };
        self.most = self.seek.work.groups + FILLED_MAX;
        self.only_loaded = true;
        let longest = self.seek.longest();
        let found = self.walk(LONG_ENOUGH, longest, least, met, whole);
        self.most = GROUPS_MAX;
        self.only_loaded = false;
        found
    }

    /// Step 1: `wholes` free stripes in a row, or as many as there are.
    fn stripes(&mut self, wholes: u32, met: &mut Met) -> Option<Found> {
        let Query {
            want, min, need, ..
        } = self.seek.query;
        let stripe = self.seek.stripe();
        let rows = self.seek.stripe_rows();
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
            let found = self.walk(STRIPES, rows, least, met, row);
            if found.is_some() || self.seek.work.groups >= GROUPS_MAX {
                return found;
            }
            let top = rows.largest();
            let blocks = top.saturating_mul(stripe);
            let will_do = blocks >= need || blocks >= min && top >= wholes.div_ceil(2);
            if top == 0 || top >= least || !will_do {
                return None;
            }
            least = top;
        }
    }

    /// Groups whose number is at least `least`, from the goal's on and once round, until `choose`
    /// finds something in one; it is given the offset to start at, and also returns at how many
    /// runs it looked. A thread that found a lock held passes by the groups that others were sent
    /// to, at first.
    fn walk(
        &mut self,
        step: usize,
        index: &Maxima,
        least: u32,
        met: &mut Met,
        choose: impl Fn(&Buddy, u32) -> (Option<Piece>, u32),
    ) -> Option<Found> {
        let start = self.start(index, least);
        let mut look = |walk: &mut Self, group: u32| {
            let from = if group == start.group {
                start.offset
            } else {
                0
            };
            walk.look(step, group, met, |buddy| choose(buddy, from))
        };
        let mut round = Round {
            index,
            least,
            start: start.group,
            leased: false,
        };
        let mut found = self.round(&round, &mut look);
        if found.is_none() && self.busy {
            round.leased = true;
            found = self.round(&round, &mut look);
        }
        if found.is_none() {
            if self.seek.work.groups >= GROUPS_MAX {
                self.seek.breaks();
            }
            self.seek.useless(step);
        }
        found
    }

    /// One round of a walk.
    fn round(
        &mut self,
        round: &Round<'_>,
        look: &mut impl FnMut(&mut Self, u32) -> Option<Found>,
    ) -> Option<Found> {
        let &Round { least, start, .. } = round;
        let mut loads = 0;
        for part in [start..self.seek.groups_count(), 0..start] {
            let mut next = part.start;
            while let Some(group) = round.index.next(least, next).filter(|g| part.contains(g)) {
                if self.seek.work.groups >= self.most.min(GROUPS_MAX) {
                    return None;
                }
                next = group + 1;
                if self.passes_by(group, round) {
                    continue;
                }
                if !self.seek.group(group).loaded {
                    if self.only_loaded {
                        continue;
                    }
                    self.read_ahead(round, group, loads);
                    loads += 1;
                }
                let found = look(self, group);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Whether a group is left to others: to metadata, to another stream, or to another thread.
    fn passes_by(&self, group: u32, round: &Round<'_>) -> bool {
        let flex = self.seek.options().flex_groups;
        if self.spares_first && group.is_multiple_of(flex) {
            return true;
        }
        if self.apart > 0 && self.has_other_streams(group) {
            return true;
        }
        let others = self.busy && group != round.start;
        others && !round.leased && self.leases.is_leased(group)
    }

    /// Whether another stream goes on in the group, or within [`Walk::apart`] blocks of its ends.
    fn has_other_streams(&self, group: u32) -> bool {
        let start = self.seek.group_start(group);
        let len = u64::from(self.seek.blocks_in_group(group));
        let apart = self.apart.max(len);
        let blocks = start.saturating_sub(apart - len)..start.saturating_add(apart);
        let file = self.stream;
        file.is_some_and(|file| self.streams.others_in(file, &blocks))
    }

    /// Where a walk starts: at the goal, or if that is busy in the group the thread was sent to.
    fn start(&self, index: &Maxima, least: u32) -> Place {
        let lease = if self.busy { self.leases.group() } else { None };
        match lease.filter(|&group| index.get(group) >= least) {
            Some(group) => Place { group, offset: 0 },
            None => self.seek.query.goal,
        }
    }

    /// Tries one group.
    fn look(
        &mut self,
        step: usize,
        group: u32,
        met: &mut Met,
        choose: impl Fn(&Buddy) -> (Option<Piece>, u32),
    ) -> Option<Found> {
        let Query { want, min, .. } = self.seek.query;
        let (mut looked, mut longest) = (0, 0);
        let lock = if step == CERTAIN {
            Lock::Wait
        } else {
            Lock::Try
        };
        let visit = self.seek.visit(group, lock, |buddy| {
            let (piece, runs) = choose(buddy);
            (looked, longest) = (runs, buddy.longest());
            let piece = piece.filter(|piece| piece.len >= min)?;
            let len = piece.len.min(want);
            buddy.take(piece.start, len);
            Some(Piece { len, ..piece })
        });
        if matches!(visit, Visit::Bad) {
            return None;
        }
        self.seek.consider(step);
        if matches!(visit, Visit::Busy) {
            self.busy = true;
            return None;
        }
        self.seek.scanned(step, looked);
        let Visit::Done(piece) = visit else {
            if met.is_none_or(|met| longest > met.longest) {
                *met = Some(Longest { group, longest });
            }
            return None;
        };
        self.seek.hit(step);
        Some(Found { group, piece })
    }

    /// Step 4.
    fn certain(&mut self, met: Met) -> Option<Found> {
        let min = self.seek.query.min;
        let index = self.seek.longest();
        let mut next = met.filter(|met| met.longest >= min);
        loop {
            let goal = self.seek.query.goal.group;
            let group = next
                .take()
                .map(|met| met.group)
                .or_else(|| index.next(min, goal))
                .or_else(|| index.next(min, 0))
                .or_else(|| index.any(min))?;
            let longest = |buddy: &Buddy| match buddy.longest() {
                longest if longest >= min => buddy.fit(longest, 0, 1),
                _ => (None, 0),
            };
            let found = self.look(CERTAIN, group, &mut None, longest);
            if found.is_some() {
                return found;
            }
        }
    }

    /// Asks for the bitmaps of groups that the walk may come to after `group`, if that is not the
    /// first it reads: where one did not do, more may not.
    fn read_ahead(&mut self, round: &Round<'_>, group: u32, loads: u32) {
        let most = PREFETCH.min(PREFETCH_LIMIT.saturating_sub(self.asked));
        if loads == 0 || most == 0 || !(loads - 1).is_multiple_of(PREFETCH) {
            return;
        }
        let mut next = Some(group);
        let candidates = std::iter::from_fn(|| {
            let here = next?;
            next = round.index.next(round.least, here + 1);
            Some(here)
        });
        let wanted: Vec<GroupNr> = candidates
            .take(most as usize * 2)
            .filter(|&group| !self.seek.group(group).loaded)
            .take(most as usize)
            .map(GroupNr)
            .collect();
        self.asked += wanted.len() as u32;
        self.seek.prefetch(&wanted);
    }
}

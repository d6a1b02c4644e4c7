//! In which groups a run is looked for.

use std::fmt;
use std::str::FromStr;

use uext4_ondisk::GroupNr;

use crate::buddy::{Buddy, Piece};
use crate::groups::{Answer, Visit};
use crate::io::Io;
use crate::stats::Counters;
use crate::{Allocator, Error, GroupBitmaps, Options};

mod criteria;
mod largest_run;
mod linear;
mod scan;

/// A policy of the search; see each one's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Vanilla 3.15: four criteria, each over all groups one after the other.
    Linear,
    /// Linux since 2023: five criteria with indexes of groups by order.
    Criteria,
    /// The exact longest run of each group, in sets of groups; bounded work.
    #[default]
    LargestRun,
}

impl Search {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Criteria, Self::LargestRun];

    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Criteria => "criteria",
            Self::LargestRun => "largest-run",
        }
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no search policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no search policy {0:?}: linear, criteria or largest-run")]
pub struct UnknownSearch(pub String);

impl FromStr for Search {
    type Err = UnknownSearch;

    fn from_str(name: &str) -> Result<Self, UnknownSearch> {
        Self::ALL
            .into_iter()
            .find(|search| search.name() == name)
            .ok_or_else(|| UnknownSearch(name.to_owned()))
    }
}

/// What else is known of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// For data of a file rather than for metadata: these keep out of the first group of a flex
    /// group in the cheap criterion.
    pub data: bool,
    /// The goal continues what is mapped already: whatever is free there will do, from
    /// [`crate::Request::min_len`] up (`EXT4_MB_HINT_MERGE`).
    pub merge: bool,
    /// Blocks needed before the request was normalised; 0: [`crate::Request::min_len`].
    pub need: u32,
    /// Number of a file that grows as a stream: if the goal is taken, the search starts where
    /// streams go on ([`crate::Allocator::stream_goal`]), and that is moved on.
    pub stream: Option<u64>,
    /// Nobody writes beside it: with the bounded search it goes on behind the last stream, whichever
    /// that was, so that nothing is left over between files.
    pub follows: bool,
    /// With the bounded search a free run of at least so many blocks, and no more than are wanted,
    /// is taken whole before a longer one is broken; 0: none is.
    pub fill: u32,
    /// There is not so much free space that streams could lie far apart: none looks for such a place.
    pub crowded: bool,
    /// The file's number and the block of it that is wanted, for events; 0 for what is of no file.
    pub ino: u64,
    /// See [`Hints::ino`].
    pub lblk: u32,
}

/// A request as the search sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Blocks wanted, at most a group.
    pub(crate) want: u32,
    /// Fewest that are of use.
    pub(crate) min: u32,
    /// Blocks that were wanted before the request was normalised.
    pub(crate) need: u32,
    /// Runs from so many blocks up that are no longer than wanted are taken whole; 0: none is.
    pub(crate) fill: u32,
    /// Blocks of the run that count as handed out, at most.
    pub(crate) counted: u32,
    /// Group and offset to start at.
    pub(crate) goal: (u32, u32),
    pub(crate) data: bool,
    pub(crate) merge: bool,
}

/// A run that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) group: u32,
    pub(crate) piece: Piece,
}

/// What one request has cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) groups: u64,
    pub(crate) extents: u64,
    /// Number of the last criterion that a group was asked by.
    pub(crate) criterion: usize,
}

impl Work {
    pub(crate) fn report(self, counters: &Counters) {
        counters.add(&counters.groups_considered, self.groups);
        counters.add(&counters.extents_scanned, self.extents);
        counters.most_work(self.groups, self.extents);
    }
}

/// One request on its way.
pub(crate) struct Seek<'a, B> {
    allocator: &'a Allocator,
    bitmaps: &'a B,
    pub(crate) ask: Ask,
    pub(crate) work: Work,
    /// The next group at which bitmaps are asked for ahead, and how many were.
    ahead: (u32, u32),
    /// Somebody else held the lock of a group that would have been looked into.
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

impl<'a, B: GroupBitmaps> Seek<'a, B> {
    pub(crate) fn new(allocator: &'a Allocator, bitmaps: &'a B, ask: Ask) -> Self {
        Self {
            allocator,
            bitmaps,
            ask,
            work: Work::default(),
            ahead: (ask.goal.0, 0),
            busy: false,
            stream: None,
            apart: 0,
            only_loaded: false,
            most: largest_run::GROUPS_MAX,
            spares_first: false,
        }
    }

    /// A run for the request; `None` if there is none of [`Ask::min`] blocks. If the goal does not
    /// do, the search for a `stream` starts where that goes on. With the bounded search a stream
    /// that continues nothing does so at once, and who had to wait starts in a group of its own.
    pub(crate) fn run(&mut self, hints: &Hints) -> Answer<Option<Found>, B> {
        let stream = hints.stream;
        let bounded = self.options().search == Search::LargestRun;
        let starts = bounded && !self.ask.merge;
        if starts && self.allocator.leases().start_apart() {
            self.busy = true;
        } else if !(starts && stream.is_some())
            && let Some(found) = self.at_goal()?
        {
            return Ok(Some(found));
        }
        let goes_on = stream.and_then(|file| match bounded && hints.follows {
            true => self.allocator.latest_stream_goal(),
            false => self.allocator.stream_goal(file),
        });
        let goes_on = goes_on.and_then(|goal| self.allocator.groups().locate(goal));
        if let Some(goal) = goes_on {
            self.ask.goal = goal;
            self.ahead.0 = goal.0;
            if starts
                && !self.busy
                && let Some(found) = self.at_goal()?
            {
                return Ok(Some(found));
            }
        }
        self.stream = stream.filter(|_| !hints.crowded);
        let found = match self.options().search {
            Search::Linear => self.linear()?,
            Search::Criteria => self.criteria()?,
            Search::LargestRun => self.largest_run()?,
        };
        if let (Some((group, _)), Some(found)) = (goes_on, found) {
            let counters = self.counters();
            counters.add(&counters.stream_goal_hits, (group == found.group).into());
        }
        Ok(found)
    }

    fn options(&self) -> &'a Options {
        self.allocator.options()
    }

    fn counters(&self) -> &'a Counters {
        self.allocator.counters()
    }

    /// Looks into a group; see [`crate::groups::Groups::visit`].
    fn visit<R>(
        &self,
        group: u32,
        wait: bool,
        f: impl FnOnce(&mut Buddy) -> Option<R>,
    ) -> Answer<Visit<R>, B> {
        let io = Io {
            bitmaps: self.bitmaps,
            counters: self.counters(),
        };
        let counted = self.ask.counted;
        let groups = self.allocator.groups();
        match groups.visit_counted(io, group, wait, counted, f) {
            // It is marked bad now; there are others.
            Err(Error::Bitmaps(_)) => Ok(Visit::Bad),
            visit => visit,
        }
    }

    /// A group is asked whether it may do.
    fn consider(&mut self, criterion: usize) {
        self.work.groups += 1;
        self.work.criterion = criterion;
        let counters = self.counters();
        counters.add(&counters.criteria[criterion].groups_considered, 1);
    }

    /// The free runs of a group were looked at, so many of them measured.
    fn scanned(&mut self, criterion: usize, extents: u32) {
        self.work.extents += u64::from(extents);
        let counters = self.counters();
        counters.add(&counters.groups_scanned, 1);
        let criterion = &counters.criteria[criterion];
        counters.add(&criterion.extents_scanned, extents.into());
    }

    /// The run that starts at the goal, if it is long enough: as long as wanted, or with
    /// [`Ask::merge`] as little as will do. With the bounded search also one that ends with the group,
    /// if the next begins with what is missing: who asks for that gets it, and both lie side by side.
    /// Requests of exactly a stripe, with the bounded search of a
    /// stripe or more, are only answered here at the start of one, unless they continue something.
    pub(crate) fn at_goal(&mut self) -> Answer<Option<Found>, B> {
        let Ask {
            want,
            min,
            merge,
            fill,
            ..
        } = self.ask;
        let (group, offset) = self.ask.goal;
        let groups = self.allocator.groups();
        if groups.glance(group).free == 0 {
            return Ok(None);
        }
        let bounded = self.options().search == Search::LargestRun;
        let stripe = self.options().stripe;
        let by_stripe = stripe > 1 && (want == stripe || bounded && want > stripe);
        let block = groups.group_start(group) + u64::from(offset);
        if by_stripe && !merge && !block.is_multiple_of(stripe.into()) {
            return Ok(None);
        }
        let least = match () {
            () if merge => min,
            () if bounded && fill > 0 && !by_stripe => fill.clamp(min, want),
            () => want,
        };
        let goes_on = bounded && self.goes_on_behind();
        let take = |buddy: &mut Buddy| {
            let len = buddy.run_at(offset, want);
            let is_tail = goes_on && len >= min && offset + len == buddy.blocks();
            if len < least && !is_tail {
                return None;
            }
            buddy.take(offset, len);
            Some(Piece { start: offset, len })
        };
        let mut visit = self.visit(group, !bounded, take)?;
        if matches!(visit, Visit::Busy) && merge {
            self.allocator.leases().waits();
            visit = self.visit(group, true, take)?;
        }
        self.busy |= matches!(visit, Visit::Busy);
        let Visit::Done(piece) = visit else {
            return Ok(None);
        };
        let counters = self.counters();
        counters.add(&counters.goal_hits, 1);
        Ok(Some(Found { group, piece }))
    }

    /// Whether data wanted from the goal on go past the end of its group, and the next group begins
    /// with as many free blocks as its own lacks.
    fn goes_on_behind(&self) -> bool {
        let (group, offset) = self.ask.goal;
        let groups = self.allocator.groups();
        let here = groups.blocks_in_group(group).saturating_sub(offset);
        self.ask.data && here < self.ask.want && groups.begins_free(group + 1, self.ask.want - here)
    }

    /// The next run of at least [`Ask::min`] blocks at or after the goal; then from the start.
    pub(crate) fn next_fit(&mut self) -> Answer<Option<Found>, B> {
        let (goal_group, offset) = self.ask.goal;
        let groups = self.allocator.groups();
        let has_free = groups.glance(goal_group).free > 0;
        if has_free && let Some(found) = self.next_in(goal_group, offset)? {
            let counters = self.counters();
            let at_goal = found.piece.start == offset;
            counters.add(&counters.goal_hits, at_goal.into());
            return Ok(Some(found));
        }
        // Below that order no chunk can lie in a run of `min` blocks.
        let orders = self.ask.min.ilog2().saturating_sub(1)..=groups.shape.order_max;
        let index = &groups.largest_orders;
        let mut skip = 1;
        while let Some(group) = index.nearest(orders.clone(), goal_group, skip) {
            self.work.groups += 1;
            if let Some(found) = self.next_in(group, 0)? {
                return Ok(Some(found));
            }
            skip = index.distance(goal_group, group) + 1;
        }
        if has_free {
            return self.next_in(goal_group, 0);
        }
        Ok(None)
    }

    fn next_in(&mut self, group: u32, from: u32) -> Answer<Option<Found>, B> {
        let Ask { want, min, .. } = self.ask;
        let visit = self.visit(group, true, |buddy| {
            let piece = buddy.next_run(from, want, min)?;
            buddy.take(piece.start, piece.len);
            Some(piece)
        })?;
        Ok(match visit {
            Visit::Done(piece) => Some(Found { group, piece }),
            _ => None,
        })
    }

    /// Asks for the bitmaps of the groups from `group` on, if the scan has come to where the last ones
    /// asked for end: the rest of its flex group, `mb_prefetch` at most; cheap criteria ask for
    /// `mb_prefetch_limit` in all.
    fn prefetch(&mut self, group: u32, cheap: bool) {
        let options = self.options();
        let (next, asked) = self.ahead;
        if group != next || cheap && asked >= options.prefetch_limit {
            return;
        }
        let groups = self.allocator.groups();
        let in_flex = options.flex_groups - group % options.flex_groups;
        let count = if options.flex_groups > 1 {
            options.prefetch.min(in_flex)
        } else {
            options.prefetch
        };
        let end = group.saturating_add(count.max(1)).min(groups.count());
        let wanted: Vec<GroupNr> = (group..end)
            .filter(|&group| {
                let glance = groups.glance(group);
                glance.free > 0 && !glance.loaded
            })
            .map(GroupNr)
            .collect();
        self.ahead = (end % groups.count(), asked + wanted.len() as u32);
        self.prefetch_these(&wanted);
    }

    fn prefetch_these(&self, wanted: &[GroupNr]) {
        // One alone is read at once anyway.
        if wanted.len() > 1 {
            let counters = self.counters();
            counters.add(&counters.prefetched, wanted.len() as u64);
            self.bitmaps.prefetch(wanted);
        }
    }
}

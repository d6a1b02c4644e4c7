//! Where a run is looked for: which groups, in which order, and which of their free runs.
//!
//! # Why
//!
//! The kernel's search asks group after group by criteria that get weaker, and measures free runs
//! in those that may do. What it knows of a group without its lock says little of the longest run
//! in it: on an aged device it looks at ten times as many groups and runs as the search here, and
//! finds shorter ones (`lab/records`).
//!
//! # The design
//!
//! [`LargestRun`] knows the length of the longest free run of each group exactly, and that of the
//! longest row of free stripes. Trees of maxima over the groups find the next group that has what
//! is wanted, so a group that is looked into has it; the work for one request is bounded.
//!
//! # The seam
//!
//! Another design is an object with the trait [`Search`], made by a
//! [`NewSearch`](crate::NewSearch) in [`Policies::search`](crate::Policies::search). It sees the
//! groups through a [`Seek`] and takes a run under the lock of its group. It decides which run is
//! found and what that costs, never whether: it may refuse nothing as long as any run of
//! [`Query::min`] blocks is free. The searches of Linux 3.15 and of today's kernel are in
//! `lab/policies`, with the tests that any design must pass.
//!
//! Source: the thread named in `normalize.rs`, and the kernels named in `lab/policies`.

use std::fmt;
use std::sync::Arc;

use uext4_ondisk::{GroupNr, Pblk};

use crate::buddy::Buddy;
use crate::groups::{Groups, Lock, Place, Visit};
use crate::index::{GroupState, Index};
use crate::io::Io;
use crate::maxima::Maxima;
use crate::runs::Piece;
use crate::stats::Counters;
use crate::{GroupBitmaps, Options, Request};

pub(crate) mod largest_run;
mod next_fit;

use largest_run::LargestRun;
pub(crate) use next_fit::next_fit;

/// What else is known of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// For data of a file rather than for metadata: these keep out of the first group of a flex
    /// group, where the metadata of all its groups are.
    pub data: bool,
    /// The goal continues what is mapped already: whatever is free there will do, from
    /// [`Request::min_len`] up (`EXT4_MB_HINT_MERGE`).
    pub merge: bool,
    /// Blocks needed before the request was normalised; 0: [`Request::min_len`].
    pub need: u32,
    /// Number of a file that grows as a stream: if the goal is not free, the search starts where
    /// the stream goes on.
    pub stream: Option<u64>,
    /// No other file is written: the stream goes on behind the last stream, whichever that was, so
    /// that nothing is left over between files.
    pub follows: bool,
    /// A free run of at least so many blocks, and no more than are wanted, is taken whole before a
    /// longer one is broken; 0: none is.
    pub fill: u32,
    /// There is not so much free space that streams could lie far apart: none looks for such a
    /// place.
    pub crowded: bool,
    /// The file's number and the block of it that is wanted, for events; 0 for what is of no file.
    pub ino: u64,
    /// See [`Hints::ino`].
    pub lblk: u32,
}

/// What a search looks for.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// Blocks wanted, 1 to a group.
    pub want: u32,
    /// Fewest that are of use, 1 to `want`.
    pub min: u32,
    /// Blocks that were wanted before the request was normalised, `min` to `want`.
    pub need: u32,
    /// Where to start.
    pub goal: Place,
    /// Blocks of the run that count as handed out, at most.
    pub(crate) counted: u32,
}

impl Query {
    pub(crate) fn new(groups: &Groups, request: &Request, hints: &Hints, counted: u32) -> Self {
        let want = request.len.clamp(1, groups.shape.blocks_per_group);
        let min = request.min_len.clamp(1, want);
        let start = Place {
            group: 0,
            offset: 0,
        };
        Self {
            want,
            min,
            need: hints.need.clamp(min, want),
            goal: groups.locate(request.goal).unwrap_or(start),
            counted,
        }
    }
}

/// A run that was taken: its group, and where it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The group's number.
    pub group: u32,
    /// The run within the group.
    pub piece: Piece,
}

/// A design of the search.
///
/// One object searches for one allocator, for all its threads at once. It is called with no lock of
/// the allocator held.
pub trait Search: fmt::Debug + Send + Sync {
    /// An index to be brought up to date with each change of a group; asked for once, before
    /// anything else is.
    fn index(&self) -> Option<Arc<dyn Index>> {
        None
    }

    /// Takes a run for `seek.query`, from the goal on or from where `seek.hints` say; `None` only
    /// if no free run has [`Query::min`] blocks.
    fn find(&self, seek: &mut Seek<'_>) -> Option<Found>;

    /// Takes the run that starts at the goal, if it will do; looks nowhere else.
    fn at_goal(&self, seek: &mut Seek<'_>) -> Option<Found>;
}

/// What a search is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Groups of the file system.
    pub groups: u32,
    /// The largest order of chunks.
    pub order_max: u32,
}

/// Makes a [`Search`] for each allocator.
#[derive(Clone)]
pub struct NewSearch(Arc<dyn Fn(Layout) -> Box<dyn Search> + Send + Sync>);

impl NewSearch {
    /// `make` is called once for each allocator.
    pub fn new(make: impl Fn(Layout) -> Box<dyn Search> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self, layout: Layout) -> Box<dyn Search> {
        (self.0)(layout)
    }
}

impl fmt::Debug for NewSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSearch").finish_non_exhaustive()
    }
}

/// The search of one allocator.
#[derive(Debug)]
pub(crate) enum Searching {
    Shipped(LargestRun),
    Given(Box<dyn Search>),
}

impl Searching {
    pub(crate) fn index(&self) -> Option<Arc<dyn Index>> {
        match self {
            Self::Shipped(_) => None,
            Self::Given(search) => search.index(),
        }
    }

    pub(crate) fn find(&self, seek: &mut Seek<'_>) -> Option<Found> {
        match self {
            Self::Shipped(search) => search.find(seek),
            Self::Given(search) => search.find(seek),
        }
    }

    pub(crate) fn at_goal(&self, seek: &mut Seek<'_>) -> Option<Found> {
        match self {
            Self::Shipped(search) => search.at_goal(seek),
            Self::Given(search) => search.at_goal(seek),
        }
    }
}

/// What one request has cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) groups: u64,
    pub(crate) extents: u64,
    /// Number of the last step that a group was looked at by.
    pub(crate) step: usize,
}

impl Work {
    pub(crate) fn report(self, counters: &Counters) {
        counters.add(&counters.groups_considered, self.groups);
        counters.add(&counters.extents_scanned, self.extents);
        counters.most_work(self.groups, self.extents);
    }
}

/// The bitmaps of an allocator, whatever their errors are: a group that cannot be read is marked
/// bad.
trait Bitmaps {
    /// Loads a group unless it was loaded `loads` times; false if it cannot be read.
    fn load(&self, groups: &Groups, group: u32, loads: u32) -> bool;

    fn prefetch(&self, groups: &[GroupNr]);
}

impl<B: GroupBitmaps> Bitmaps for Io<'_, B> {
    fn load(&self, groups: &Groups, group: u32, loads: u32) -> bool {
        groups.load(*self, group, loads).is_ok()
    }

    fn prefetch(&self, groups: &[GroupNr]) {
        self.bitmaps.prefetch(groups);
    }
}

/// One request on its way: the groups as a search sees them, and what it has cost.
pub struct Seek<'a> {
    /// What is looked for. The search may move its goal.
    pub query: Query,
    /// What else is known of the request.
    pub hints: Hints,
    pub(crate) work: Work,
    groups: &'a Groups,
    options: &'a Options,
    counters: &'a Counters,
    bitmaps: &'a dyn Bitmaps,
}

impl fmt::Debug for Seek<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seek")
            .field("query", &self.query)
            .field("hints", &self.hints)
            .field("work", &self.work)
            .finish_non_exhaustive()
    }
}

impl<'a> Seek<'a> {
    pub(crate) fn new<B: GroupBitmaps>(
        groups: &'a Groups,
        options: &'a Options,
        io: &'a Io<'a, B>,
        query: Query,
        hints: Hints,
    ) -> Self {
        Self {
            query,
            hints,
            work: Work::default(),
            groups,
            options,
            counters: io.counters,
            bitmaps: io,
        }
    }

    /// The allocator's options.
    pub fn options(&self) -> &'a Options {
        self.options
    }

    /// How many groups there are.
    pub fn groups_count(&self) -> u32 {
        self.groups.count()
    }

    /// A group as it looks without its lock; `group` is less than [`Seek::groups_count`].
    pub fn group(&self, group: u32) -> GroupState {
        self.groups.state(group)
    }

    /// The first block of a group, on the device.
    pub fn group_start(&self, group: u32) -> u64 {
        self.groups.group_start(group)
    }

    /// Where a block of the device lies; `None` if it is in no group.
    pub fn locate(&self, block: Pblk) -> Option<Place> {
        self.groups.locate(block)
    }

    /// The largest order of chunks.
    pub fn order_max(&self) -> u32 {
        self.groups.shape.order_max
    }

    /// Blocks of every group but the last.
    pub(crate) fn blocks_per_group(&self) -> u32 {
        self.groups.shape.blocks_per_group
    }

    /// Blocks of a group.
    pub(crate) fn blocks_in_group(&self, group: u32) -> u32 {
        self.groups.blocks_in_group(group)
    }

    /// Blocks of a stripe if free ones are listed, else 0.
    pub(crate) fn stripe(&self) -> u32 {
        self.groups.shape.stripe
    }

    /// See [`Groups::begins_free`].
    pub(crate) fn begins_free(&self, group: u32, len: u32) -> bool {
        self.groups.begins_free(group, len)
    }

    /// The longest free run of each group.
    pub(crate) fn longest(&self) -> &'a Maxima {
        self.groups.longest()
    }

    /// The longest row of free stripes of each group.
    pub(crate) fn stripe_rows(&self) -> &'a Maxima {
        self.groups.stripe_rows()
    }

    /// Runs `f` under the lock of a group, with its bitmap read. What `f` answers it must have
    /// taken ([`Buddy::take`]). A group whose bitmap cannot be read, or contradicts its
    /// descriptor, is bad.
    pub fn visit(
        &self,
        group: u32,
        lock: Lock,
        mut f: impl FnMut(&mut Buddy) -> Option<Piece>,
    ) -> Visit<Piece> {
        let counted = self.query.counted;
        loop {
            let visit = self
                .groups
                .try_visit(self.counters, group, lock, counted, &mut f);
            match visit {
                Ok(visit) => return visit,
                Err(loads) if self.bitmaps.load(self.groups, group, loads) => {}
                // It is marked bad now; there are others.
                Err(_) => return Visit::Bad,
            }
        }
    }

    /// Counts a group that is asked whether it may do.
    pub fn consider(&mut self, step: usize) {
        self.work.groups += 1;
        self.work.step = step;
        let counters = self.counters;
        counters.add(&counters.criteria[step].groups_considered, 1);
    }

    /// Counts a group whose free runs were looked at, and how many of them were measured.
    pub fn scanned(&mut self, step: usize, extents: u32) {
        self.work.extents += u64::from(extents);
        let counters = self.counters;
        counters.add(&counters.groups_scanned, 1);
        let criterion = &counters.criteria[step];
        counters.add(&criterion.extents_scanned, extents.into());
    }

    /// Counts a request that a step has answered.
    pub fn hit(&self, step: usize) {
        self.counters.add(&self.counters.criteria[step].hits, 1);
    }

    /// Counts a step that found nothing in any group.
    pub fn useless(&self, step: usize) {
        let criterion = &self.counters.criteria[step];
        self.counters.add(&criterion.useless_loops, 1);
    }

    /// Counts a search that ends because it has seen enough.
    pub fn breaks(&self) {
        self.counters.add(&self.counters.breaks, 1);
    }

    /// Counts a request that was answered at its goal.
    pub fn goal_hit(&self) {
        self.counters.add(&self.counters.goal_hits, 1);
    }

    /// Counts a request that was answered where its stream goes on.
    pub fn stream_goal_hit(&self) {
        self.counters.add(&self.counters.stream_goal_hits, 1);
    }

    /// Asks for the bitmaps of these groups at once, if they are more than one: one alone is read
    /// anyway.
    pub fn prefetch(&self, groups: &[GroupNr]) {
        if groups.len() > 1 {
            self.bitmaps.prefetch(groups);
        }
    }
}

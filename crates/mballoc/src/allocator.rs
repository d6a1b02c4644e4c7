//! The allocator: taking, marking, and giving back runs.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
};

use uext4_ondisk::{Geometry, GroupNr, Pblk};

use crate::buddy::{Buddy, Shape};
use crate::groups::{Answer, Groups, Visit};
use crate::io::Io;
use crate::leases::Leases;
use crate::preallocation::Preallocations;
use crate::search::{Ask, Found, Seek};
use crate::stats::Counters;
use crate::streams::Streams;
use crate::{
    BadGroup, Error, GroupBitmaps, GroupInfo, Hints, Options, Request, Run, Search, Stats,
};

/// Times a request looks again before it is refused, while others give blocks back.
const SQUEEZES_MAX: u32 = 64;

/// Hands out and takes back blocks of one file system. See the crate's head for the search.
#[derive(Debug)]
pub struct Allocator {
    options: Options,
    block_size_log2: u32,
    groups: Groups,
    streams: Streams,
    leases: Leases,
    counters: Counters,
    /// Where [`Allocator::shrink`] goes on.
    unloaded_to: AtomicU32,
    preallocations: Preallocations,
}

impl Allocator {
    /// Over the groups of `geometry` (without clusters), whose free counts are read now and whose
    /// bitmaps when they are first needed. A group that has more free blocks than blocks is marked bad.
    ///
    /// # Errors
    /// [`Error::Bitmaps`] if a descriptor cannot be read.
    pub fn new<B: GroupBitmaps>(geometry: &Geometry, bitmaps: &B) -> Answer<Self, B> {
        Self::with_options(geometry, bitmaps, Options::default())
    }

    /// The same with these policies. A stripe longer than a group counts as none.
    ///
    /// # Errors
    /// As [`Allocator::new`].
    pub fn with_options<B: GroupBitmaps>(
        geometry: &Geometry,
        bitmaps: &B,
        mut options: Options,
    ) -> Answer<Self, B> {
        let blocks_per_group = geometry.blocks_per_group.get();
        if options.stripe > blocks_per_group {
            options.stripe = 0;
        }
        options.flex_groups = options.flex_groups.max(1);
        let mut shape = Shape::new(blocks_per_group, geometry.block_size.log2());
        if options.search == Search::LargestRun {
            // A stripe of one block is no stripe: every run is a row of them.
            shape = shape.with_longest(if options.stripe > 1 {
                options.stripe
            } else {
                0
            });
        }
        let groups = Groups::new(geometry, shape, bitmaps)?;
        Ok(Self {
            streams: Streams::new(options.search, options.stream_goals, groups.count()),
            leases: Leases::new(groups.count()),
            options,
            block_size_log2: geometry.block_size.log2(),
            groups,
            counters: Counters::default(),
            unloaded_to: AtomicU32::new(0),
            preallocations: Preallocations::default(),
        })
    }

    /// Its policies and tunables.
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Blocks of a full group, and the binary logarithm of a block's bytes.
    pub(crate) fn sizes(&self) -> (u32, u32) {
        (self.groups.shape.blocks_per_group, self.block_size_log2)
    }

    pub(crate) fn preallocations(&self) -> &Preallocations {
        &self.preallocations
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Free blocks in all groups but bad ones, and those preallocated for files; of groups whose bitmaps
    /// were not read, what their descriptors claim.
    pub fn free_blocks(&self) -> u64 {
        self.groups.free.load(Relaxed)
    }

    /// Blocks of the average free run, rounded down; a group that is not loaded counts as one run.
    pub fn average_free_run(&self) -> u64 {
        let fragments = self.groups.fragments.load(Relaxed);
        self.free_blocks() / fragments.max(1)
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// `mb_stats`: whether anything is counted from now on; it is at first.
    pub fn set_stats(&self, on: bool) {
        self.counters.switch(on);
    }

    /// Groups whose bitmap contradicts their descriptor or cannot be read, in the order they were found: their free
    /// blocks are not in the total, and nothing is taken of them or given back to them.
    pub fn bad_groups(&self) -> Vec<BadGroup> {
        self.groups.bad()
    }

    /// Whether the group of a block is among those.
    pub fn is_bad(&self, block: Pblk) -> bool {
        let group = self.groups.locate(block);
        group.is_some_and(|(group, _)| self.groups.is_bad(group))
    }

    /// What the buddy of a group tells; `None` if the group does not exist or is not loaded.
    pub fn group_info(&self, group: GroupNr) -> Option<GroupInfo> {
        self.groups.peek(group, |buddy| GroupInfo {
            free: buddy.free(),
            fragments: buddy.fragments(),
            first: buddy.next_free(0),
            counters: buddy.counters().to_vec(),
        })
    }

    /// Groups whose buddies are in memory, each [`Allocator::group_memory`] bytes. Takes no lock.
    pub fn loaded_groups(&self) -> u32 {
        self.groups.loaded.load(Relaxed)
    }

    /// Bytes of memory of one group's buddy, about: three bits a block, and its tree of runs.
    pub fn group_memory(&self) -> u64 {
        u64::from(self.groups.shape.blocks_per_group) * 15 / 32 + 512
    }

    /// Drops the buddies of up to `most` groups that nothing is under way in, and answers with how many.
    /// Changes no answer: they are read again when they are needed.
    pub fn shrink(&self, most: u32) -> u32 {
        let (dropped, next) = self.groups.unload(self.unloaded_to.load(Relaxed), most);
        self.unloaded_to.store(next, Relaxed);
        dropped
    }

    /// Takes a run of at least `request.min_len` and at most `request.len` blocks and marks it used.
    ///
    /// # Errors
    /// As [`Allocator::take`] and [`Allocator::mark`]; nothing is allocated then.
    pub fn allocate<B: GroupBitmaps>(&self, bitmaps: &B, request: &Request) -> Answer<Run, B> {
        let run = self.take(bitmaps, request)?;
        self.mark(bitmaps, run)?;
        Ok(run)
    }

    /// Takes a run as [`Allocator::allocate`] does, in memory only: nobody else is given it, and its
    /// bits are still clear. [`Allocator::mark`] or [`Allocator::untake`] must follow.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::Bitmaps`]; nothing is taken then.
    pub fn take<B: GroupBitmaps>(&self, bitmaps: &B, request: &Request) -> Answer<Run, B> {
        self.take_with(bitmaps, request, &Hints::default())
    }

    /// The same, with what else is known of the request. What is preallocated for files is given back
    /// before anything is refused.
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_with<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &Request,
        hints: &Hints,
    ) -> Answer<Run, B> {
        let take = || self.take_counted(bitmaps, request, hints, u32::MAX);
        match take() {
            Err(Error::NoSpace { .. }) => self.squeezed(|| {
                for _ in 1..SQUEEZES_MAX {
                    let given = self.groups.given.load(Acquire);
                    self.discard_for(request.min_len);
                    let answer = take();
                    // Who was given back to behind the search may be found by the next.
                    if !matches!(answer, Err(Error::NoSpace { .. }))
                        || self.groups.given.load(Acquire) == given
                    {
                        return answer;
                    }
                }
                take()
            }),
            answer => answer,
        }
    }

    /// The same, but only the first `counted` blocks of the run count as handed out: the others stay
    /// free for [`Allocator::free_blocks`], until [`Allocator::divide`] or [`Allocator::release`].
    /// Nothing is given back for it.
    pub(crate) fn take_counted<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &Request,
        hints: &Hints,
        counted: u32,
    ) -> Answer<Run, B> {
        let counters = &self.counters;
        counters.add(&counters.reqs, 1);
        let ask = self.ask(request, hints, counted);
        let mut seek = Seek::new(self, bitmaps, ask);
        let found = if request.next_fit {
            seek.next_fit()?
        } else {
            seek.run(hints)?
        };
        seek.work.report(counters);
        let Some(found) = found else {
            return Err(Error::NoSpace {
                min_len: request.min_len.clamp(1, request.len.max(1)),
                free: self.free_blocks(),
            });
        };
        let run = self.taken(found, counted);
        self.trace_alloc(&ask, &seek.ask, hints, run, seek.work);
        let shortened = run.len < request.len;
        counters.add(&counters.shortened, shortened.into());
        counters.add(&counters.len_goal_hits, (!shortened).into());
        if let Some(file) = hints.stream {
            self.set_stream_goal(file, run);
        }
        Ok(run)
    }

    /// What is free at the goal, if it is [`Request::min_len`] to [`Request::len`] blocks; counted as
    /// by [`Allocator::take_counted`].
    pub(crate) fn take_near<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &Request,
        counted: u32,
    ) -> Answer<Option<Run>, B> {
        let hints = Hints {
            data: true,
            merge: true,
            ..Hints::default()
        };
        let mut seek = Seek::new(self, bitmaps, self.ask(request, &hints, counted));
        let found = seek.at_goal()?;
        Ok(found.map(|found| self.taken(found, counted)))
    }

    fn ask(&self, request: &Request, hints: &Hints, counted: u32) -> Ask {
        let want = request.len.clamp(1, self.groups.shape.blocks_per_group);
        let min = request.min_len.clamp(1, want);
        Ask {
            want,
            min,
            need: hints.need.clamp(min, want),
            fill: hints.fill,
            counted,
            goal: self.groups.locate(request.goal).unwrap_or((0, 0)),
            data: hints.data,
            merge: hints.merge,
        }
    }

    fn taken(&self, Found { group, piece }: Found, counted: u32) -> Run {
        let counters = &self.counters;
        counters.add(&counters.success, 1);
        counters.add(&counters.allocated, counted.min(piece.len).into());
        Run {
            start: Pblk(self.groups.group_start(group) + u64::from(piece.start)),
            len: piece.len,
        }
    }

    /// Of blocks near `at` that are taken and not marked, `used` more count as handed out (fewer, if
    /// it is negative), and there are `marks` more or fewer parts than before.
    pub(crate) fn divide(&self, at: Pblk, marks: i32, used: i64) {
        let counters = &self.counters;
        if let Some((group, _)) = self.groups.locate(at) {
            self.groups.divide(counters, group, marks, used);
        }
        counters.add(&counters.allocated, used.max(0).unsigned_abs());
    }

    /// Gives a run back that was taken, not marked, and never counted as handed out.
    pub(crate) fn release(&self, run: Run) {
        if let Some((group, offset)) = self.groups.locate(run.start) {
            self.groups.release(&self.counters, group, offset, run.len);
        }
    }

    /// Whether two blocks are in one group.
    pub(crate) fn in_one_group(&self, a: Pblk, b: Pblk) -> bool {
        let group = |block| self.groups.locate(block).map(|(group, _)| group);
        group(a).is_some() && group(a) == group(b)
    }

    /// Marks a run used that was taken, as a whole.
    ///
    /// # Errors
    /// [`Error::Bitmaps`]; the run is given back then.
    pub fn mark<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<(), B> {
        let Some((group, offset)) = self.groups.locate(run.start) else {
            return Ok(());
        };
        match bitmaps.mark_used(GroupNr(group), offset, run.len) {
            Ok(()) => self.groups.marked(group),
            Err(error) => {
                self.give(run);
                return Err(Error::Bitmaps(error));
            }
        }
        Ok(())
    }

    /// Takes exactly this run, which must be in one group, and marks it used; false if any of it is in
    /// use, and nothing was changed.
    ///
    /// # Errors
    /// As [`Allocator::clear`]; nothing is taken then.
    pub fn take_at<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<bool, B> {
        let (group, offset) = self.groups.locate_run(run)?;
        let taken = self.change(bitmaps, group, |buddy| {
            (buddy.run_at(offset, run.len) == run.len).then(|| buddy.take(offset, run.len))
        })?;
        if taken.is_some() {
            let counters = &self.counters;
            counters.add(&counters.allocated, run.len.into());
            self.mark(bitmaps, run)?;
        }
        Ok(taken.is_some())
    }

    /// Whether all of a run, which must be in one group, is in use.
    ///
    /// # Errors
    /// As [`Allocator::clear`].
    pub fn is_used<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<bool, B> {
        let (group, offset) = self.groups.locate_run(run)?;
        let mut used = false;
        self.change(bitmaps, group, |buddy| {
            used = buddy.all_used(offset, run.len);
            None::<()>
        })?;
        Ok(used)
    }

    /// Gives a run back that was taken and not marked, as a whole.
    pub fn untake(&self, run: Run) {
        self.give(run);
    }

    /// Gives blocks back; all must be used and in one group.
    ///
    /// # Errors
    /// As [`Allocator::clear`].
    pub fn free<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<(), B> {
        self.clear(bitmaps, run)?;
        self.give(run);
        Ok(())
    }

    /// Marks blocks free that must all be used and in one group, but lets nobody have them before
    /// [`Allocator::give`] is called for the same run, which must happen some time.
    ///
    /// # Errors
    /// [`Error::NotUsed`] for a run that is not, or is past the end; [`Error::FreeCount`] if its group
    /// is marked bad; [`Error::Bitmaps`]. Nothing is freed then.
    pub fn clear<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<(), B> {
        let (group, offset) = self.groups.locate_run(run)?;
        self.change(bitmaps, group, |buddy| {
            buddy.all_used(offset, run.len).then_some(())
        })?
        .ok_or(Error::NotUsed {
            start: run.start,
            len: run.len,
            why: "already free",
        })?;
        let marked = bitmaps.mark_free(GroupNr(group), offset, run.len);
        if marked.is_err() {
            self.groups.marked(group);
        }
        marked.map_err(Error::Bitmaps)?;
        self.counters.add(&self.counters.freed, run.len.into());
        self.trace_free(run);
        Ok(())
    }

    /// Lets others have a run that was cleared.
    pub fn give(&self, run: Run) {
        if let Some((group, offset)) = self.groups.locate(run.start) {
            self.groups.give(&self.counters, group, offset, run.len);
        }
    }

    /// An operation on one group and no other.
    fn change<B: GroupBitmaps, R>(
        &self,
        bitmaps: &B,
        group: u32,
        f: impl FnOnce(&mut Buddy) -> Option<R>,
    ) -> Answer<Option<R>, B> {
        let io = Io {
            bitmaps,
            counters: &self.counters,
        };
        match self.groups.visit(io, group, true, f)? {
            Visit::Done(result) => Ok(Some(result)),
            Visit::Bad => Err(self.groups.bad_error(group)),
            Visit::Nothing | Visit::Busy => Ok(None),
        }
    }
}

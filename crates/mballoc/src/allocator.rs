//! The allocator: taking, marking, and giving back runs.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
};

use uext4_ondisk::{Geometry, GroupNr, Pblk};

use crate::buddy::Buddy;
use crate::free_space::FreeSpace;
use crate::groups::{Answer, Groups, Place, Visit};
use crate::normalize::{Normalize, Plan, Predict, Surroundings};
use crate::options::Options;
use crate::preallocation::Preallocations;
use crate::request::DataRequest;
use crate::search::{Hints, NewSearch};
use crate::stats::{Counters, Stats};
use crate::{BadGroup, Error, GroupBitmaps, GroupInfo, Request, Run, trace};

/// Times a request looks again before it is refused, while others give blocks back.
const SQUEEZES_MAX: u32 = 64;

/// Designs of the allocator in place of those that are shipped; `None`: the one that is shipped.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// How much is taken for a file beyond its need.
    pub normalize: Option<Arc<dyn Normalize>>,
    /// In which groups a run is looked for.
    pub search: Option<NewSearch>,
}

/// Hands out and takes back blocks of one file system. See the crate's head for the search.
#[derive(Debug)]
pub struct Allocator {
    space: FreeSpace,
    normalize: Option<Arc<dyn Normalize>>,
    /// Where [`Allocator::shrink`] goes on.
    unloaded_to: AtomicU32,
    preallocations: Preallocations,
}

impl Allocator {
    /// Over the groups of `geometry` (without clusters), whose free counts are read now and whose
    /// bitmaps when they are first needed. A group that has more free blocks than blocks is
    /// marked bad.
    ///
    /// # Errors
    /// [`Error::Bitmaps`] if a descriptor cannot be read.
    pub fn new<B: GroupBitmaps>(geometry: &Geometry, bitmaps: &B) -> Answer<Self, B> {
        Self::with_options(geometry, bitmaps, Options::default(), &Policies::default())
    }

    /// The same with these options and designs. A stripe longer than a group counts as none.
    ///
    /// # Errors
    /// As [`Allocator::new`].
    pub fn with_options<B: GroupBitmaps>(
        geometry: &Geometry,
        bitmaps: &B,
        options: Options,
        policies: &Policies,
    ) -> Answer<Self, B> {
        let search = policies.search.as_ref();
        Ok(Self {
            space: FreeSpace::new(geometry, bitmaps, options, search)?,
            normalize: policies.normalize.clone(),
            unloaded_to: AtomicU32::new(0),
            preallocations: Preallocations::default(),
        })
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.space.options
    }

    pub(crate) fn space(&self) -> &FreeSpace {
        &self.space
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.space.groups
    }

    pub(crate) fn preallocations(&self) -> &Preallocations {
        &self.preallocations
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.space.counters
    }

    /// What is to be done for a request that nothing is preallocated for.
    pub(crate) fn plan(&self, request: &DataRequest, around: &Surroundings<'_>) -> Plan {
        match &self.normalize {
            None => Predict.plan(request, around),
            Some(normalize) => normalize.plan(request, around),
        }
    }

    /// Free blocks in all groups but bad ones, and those preallocated for files; of groups whose
    /// bitmaps were not read, what their descriptors claim.
    pub fn free_blocks(&self) -> u64 {
        self.space.free_blocks()
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.space.counters.snapshot()
    }

    /// Groups whose bitmap contradicts their descriptor or cannot be read, in the order they were
    /// found: their free blocks are not in the total, and nothing is taken of them or given back
    /// to them.
    pub fn bad_groups(&self) -> Vec<BadGroup> {
        self.space.groups.bad()
    }

    /// Whether the group of a block is among those.
    pub fn is_bad(&self, block: Pblk) -> bool {
        let place = self.space.groups.locate(block);
        place.is_some_and(|place| self.space.groups.is_bad(place.group))
    }

    /// What the buddy of a group reports; `None` if the group does not exist or is not loaded.
    pub fn group_info(&self, group: GroupNr) -> Option<GroupInfo> {
        self.space.groups.peek(group, |buddy| GroupInfo {
            free: buddy.free(),
            fragments: buddy.fragments(),
            first: buddy.next_free(0),
            counters: buddy.counters().to_vec(),
        })
    }

    /// Groups whose buddies are in memory, each [`Allocator::group_memory`] bytes. Takes no lock.
    pub fn loaded_groups(&self) -> u32 {
        self.space.groups.loaded.load(Relaxed)
    }

    /// Bytes of memory of one group's buddy, about: three bits a block, and its tree of runs.
    pub fn group_memory(&self) -> u64 {
        u64::from(self.space.groups.shape.blocks_per_group) * 15 / 32 + 512
    }

    /// Drops the buddies of up to `most` groups that nothing is under way in, and answers with
    /// how many. Changes no answer: they are read again when they are needed.
    pub fn shrink(&self, most: u32) -> u32 {
        let (dropped, next) = self
            .space
            .groups
            .unload(self.unloaded_to.load(Relaxed), most);
        self.unloaded_to.store(next, Relaxed);
        dropped
    }

    /// Takes a run of at least `request.min_len` and at most `request.len` blocks and marks it
    /// used.
    ///
    /// # Errors
    /// As [`Allocator::take`] and [`Allocator::mark`]; nothing is allocated then.
    pub fn allocate<B: GroupBitmaps>(&self, bitmaps: &B, request: &Request) -> Answer<Run, B> {
        let run = self.take(bitmaps, request)?;
        self.mark(bitmaps, run)?;
        Ok(run)
    }

    /// Takes a run as [`Allocator::allocate`] does, in memory only: no other thread is given it,
    /// and its bits are still clear. [`Allocator::mark`] or [`Allocator::cancel`] must follow.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::Bitmaps`]; nothing is taken then.
    pub fn take<B: GroupBitmaps>(&self, bitmaps: &B, request: &Request) -> Answer<Run, B> {
        self.take_with(bitmaps, request, &Hints::default())
    }

    /// The same, with what else is known of the request. What is preallocated for files is given
    /// back before anything is refused.
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_with<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &Request,
        hints: &Hints,
    ) -> Answer<Run, B> {
        let take = || self.space.take(bitmaps, request, hints, u32::MAX);
        let all = &self.preallocations;
        match take() {
            Err(Error::NoSpace { .. }) => all.squeezed(|| {
                for _ in 1..SQUEEZES_MAX {
                    let given = self.space.groups.given.load(Acquire);
                    all.discard_for(&self.space, request.min_len);
                    let answer = take();
                    // What was given back behind the search may be found by the next.
                    if !matches!(answer, Err(Error::NoSpace { .. }))
                        || self.space.groups.given.load(Acquire) == given
                    {
                        return answer;
                    }
                }
                take()
            }),
            answer => answer,
        }
    }

    /// Marks a run used that was taken, as a whole.
    ///
    /// # Errors
    /// [`Error::Bitmaps`]; the run is given back then.
    pub fn mark<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<(), B> {
        let Some(place) = self.space.groups.locate(run.start) else {
            return Ok(());
        };
        match bitmaps.mark_used(GroupNr(place.group), place.offset, run.len) {
            Ok(()) => self.space.groups.marked(place.group),
            Err(error) => {
                self.give(run);
                return Err(Error::Bitmaps(error));
            }
        }
        Ok(())
    }

    /// Takes exactly this run, which must be in one group, and marks it used; false if any of it
    /// is in use, and nothing was changed.
    ///
    /// # Errors
    /// As [`Allocator::clear`]; nothing is taken then.
    pub fn take_at<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<bool, B> {
        let Place { group, offset } = self.space.groups.locate_run(run)?;
        let taken = self.change(bitmaps, group, |buddy| {
            (buddy.run_at(offset, run.len) == run.len).then(|| buddy.take(offset, run.len))
        })?;
        if taken.is_some() {
            let counters = &self.space.counters;
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
        let Place { group, offset } = self.space.groups.locate_run(run)?;
        let mut used = false;
        self.change(bitmaps, group, |buddy| {
            used = buddy.all_used(offset, run.len);
            None::<()>
        })?;
        Ok(used)
    }

    /// Gives a run back that was taken and not marked, as a whole.
    pub fn cancel(&self, run: Run) {
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

    /// Marks blocks free that must all be used and in one group, but lets no thread have them
    /// before [`Allocator::give`] is called for the same run, which must happen some time.
    ///
    /// # Errors
    /// [`Error::NotUsed`] for a run that is not, or is past the end; [`Error::FreeCount`] if its
    /// group is marked bad; [`Error::Bitmaps`]. Nothing is freed then.
    pub fn clear<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<(), B> {
        let Place { group, offset } = self.space.groups.locate_run(run)?;
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
            self.space.groups.marked(group);
        }
        marked.map_err(Error::Bitmaps)?;
        self.space
            .counters
            .add(&self.space.counters.freed, run.len.into());
        trace::free(&self.space.groups, run);
        Ok(())
    }

    /// Lets others have a run that was cleared.
    pub fn give(&self, run: Run) {
        self.space.give(run);
    }

    /// An operation on one group and no other.
    fn change<B: GroupBitmaps, R>(
        &self,
        bitmaps: &B,
        group: u32,
        f: impl FnMut(&mut Buddy) -> Option<R>,
    ) -> Answer<Option<R>, B> {
        match self.space.groups.visit(self.space.io(bitmaps), group, f)? {
            Visit::Done(result) => Ok(Some(result)),
            Visit::Bad => Err(self.space.groups.bad_error(group)),
            Visit::Nothing | Visit::Busy => Ok(None),
        }
    }
}

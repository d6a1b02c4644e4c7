//! The free space of a file system: its groups, the search over them, and the counters. What is
//! taken here is taken in memory only, and nothing is preallocated.

use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::{Geometry, Pblk};

use crate::buddy::Shape;
use crate::groups::{Answer, Groups};
use crate::io::Io;
use crate::options::Options;
use crate::search::largest_run::LargestRun;
use crate::search::{Found, Hints, Layout, NewSearch, Query, Searching, Seek, next_fit};
use crate::stats::Counters;
use crate::{Error, GroupBitmaps, Request, Run, trace};

/// See the file's head.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    pub(crate) options: Options,
    pub(crate) block_size_log2: u32,
    pub(crate) groups: Groups,
    pub(crate) search: Searching,
    pub(crate) counters: Counters,
}

impl FreeSpace {
    /// Over the groups of `geometry`; a stripe longer than a group counts as none.
    pub(crate) fn new<B: GroupBitmaps>(
        geometry: &Geometry,
        bitmaps: &B,
        mut options: Options,
        search: Option<&NewSearch>,
    ) -> Answer<Self, B> {
        let blocks_per_group = geometry.blocks_per_group.get();
        if options.stripe > blocks_per_group {
            options.stripe = 0;
        }
        options.flex_groups = options.flex_groups.max(1);
        let block_size_log2 = geometry.block_size.log2();
        // A stripe of one block is no stripe: every run is a row of them.
        let stripe = if options.stripe > 1 {
            options.stripe
        } else {
            0
        };
        let shape = Shape::new(blocks_per_group, block_size_log2, stripe);
        let layout = Layout {
            groups: geometry.groups_count.get(),
            order_max: shape.order_max,
        };
        let search = match search {
            None => Searching::Shipped(LargestRun::new(layout.groups)),
            Some(search) => Searching::Given(search.make(layout)),
        };
        Ok(Self {
            groups: Groups::new(geometry, shape, search.index(), bitmaps)?,
            options,
            block_size_log2,
            search,
            counters: Counters::default(),
        })
    }

    pub(crate) fn blocks_per_group(&self) -> u32 {
        self.groups.shape.blocks_per_group
    }

    /// Free blocks, and those preallocated for files.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.groups.free.load(Relaxed)
    }

    /// Blocks of the average free run, rounded down; a group that is not loaded counts as one run.
    pub(crate) fn average_free_run(&self) -> u64 {
        let fragments = self.groups.fragments.load(Relaxed);
        self.free_blocks() / fragments.max(1)
    }

    /// How bitmaps are read, and where that is counted.
    pub(crate) fn io<'a, B>(&'a self, bitmaps: &'a B) -> Io<'a, B> {
        Io {
            bitmaps,
            counters: &self.counters,
        }
    }

    /// Takes a run, of which only the first `counted` blocks count as handed out: the others stay
    /// free for [`FreeSpace::free_blocks`], until [`FreeSpace::divide`] or
    /// [`FreeSpace::release`].
    pub(crate) fn take<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &Request,
        hints: &Hints,
        counted: u32,
    ) -> Answer<Run, B> {
        let counters = &self.counters;
        counters.add(&counters.reqs, 1);
        let io = self.io(bitmaps);
        let query = Query::new(&self.groups, request, hints, counted);
        let mut seek = Seek::new(&self.groups, &self.options, &io, query, *hints);
        let found = if request.next_fit {
            next_fit(&mut seek)
        } else {
            self.search.find(&mut seek)
        };
        seek.work.report(counters);
        let Some(found) = found else {
            return Err(Error::NoSpace {
                min_len: request.min_len.clamp(1, request.len.max(1)),
                free: self.free_blocks(),
            });
        };
        let run = self.taken(found, counted);
        trace::alloc(&self.groups, &query, &seek, run);
        let shortened = run.len < request.len;
        counters.add(&counters.shortened, shortened.into());
        counters.add(&counters.len_goal_hits, (!shortened).into());
        Ok(run)
    }

    /// What is free at the goal, if it is [`Request::min_len`] to [`Request::len`] blocks;
    /// counted as by [`FreeSpace::take`].
    pub(crate) fn take_near<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &Request,
        counted: u32,
    ) -> Option<Run> {
        let hints = Hints {
            data: true,
            merge: true,
            ..Hints::default()
        };
        let io = self.io(bitmaps);
        let query = Query::new(&self.groups, request, &hints, counted);
        let mut seek = Seek::new(&self.groups, &self.options, &io, query, hints);
        let found = self.search.at_goal(&mut seek)?;
        Some(self.taken(found, counted))
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

    /// Of blocks near `at` that are taken and not marked, `used` more count as handed out (fewer,
    /// if it is negative), and there are `marks` more or fewer parts than before.
    pub(crate) fn divide(&self, at: Pblk, marks: i32, used: i64) {
        let counters = &self.counters;
        if let Some(place) = self.groups.locate(at) {
            self.groups.divide(counters, place.group, marks, used);
        }
        counters.add(&counters.allocated, used.max(0).unsigned_abs());
    }

    /// Gives a run back that was taken, not marked, and never counted as handed out.
    pub(crate) fn release(&self, run: Run) {
        if let Some(place) = self.groups.locate(run.start) {
            self.groups.release(&self.counters, place, run.len);
        }
    }

    /// Gives a run back that was handed out and is not marked.
    pub(crate) fn give(&self, run: Run) {
        if let Some(place) = self.groups.locate(run.start) {
            self.groups.give(&self.counters, place, run.len);
        }
    }

    /// Whether two blocks are in one group.
    pub(crate) fn in_one_group(&self, a: Pblk, b: Pblk) -> bool {
        let group = |block| self.groups.locate(block).map(|place| place.group);
        group(a).is_some() && group(a) == group(b)
    }
}

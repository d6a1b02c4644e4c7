//! The allocator over all groups: loading, search, marking.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_ondisk::{Geometry, GroupNr, Pblk};

use crate::buddy::{Buddy, Piece, Shape};
use crate::index::OrderIndex;
use crate::stats::{Counters, add};
use crate::streams::Streams;
use crate::{Error, GroupBitmaps, GroupInfo, Hints, Options, Request, Run, Stats};

/// Groups looked into for a run that is longer than any chunk.
const GROUPS_TO_SCAN: u32 = 32;
/// Chunks looked at in one group in search of the longest run.
const CHUNKS_TO_SCAN: u32 = 200;
/// Groups, and chunks in each, looked at for a run that is long enough but holds no chunk of its
/// order: luck, so not much is spent on it (together as much as the kernel's `mb_max_to_scan`).
const STRADDLING_TO_SCAN: (u32, u32) = (6, 32);

/// What is known of one group.
#[derive(Debug, Default)]
struct Slot {
    buddy: Option<Box<Buddy>>,
    /// Order under which the group stands in the index.
    indexed: Option<u32>,
    /// Marks of this group's bitmap under way; its buddy is kept until they are done.
    marks: u32,
    /// Times a buddy was put here: tells whether a bitmap read without the lock is still good.
    loads: u32,
}

/// Hands out and takes back blocks of one file system. See the crate's head for the search.
#[derive(Debug)]
pub struct Allocator {
    options: Options,
    shape: Shape,
    first_data_block: u64,
    blocks_count: u64,
    slots: Box<[Mutex<Slot>]>,
    index: OrderIndex,
    streams: Streams,
    free: AtomicU64,
    counters: Counters,
}

/// One walk over the groups.
struct Walk {
    /// Lowest and highest order that a group's largest chunk may have.
    orders: (u32, u32),
    /// Groups to look into, at most.
    groups_max: u32,
    /// Chunks to look at in one of them, at most.
    chunks_max: u32,
    /// Blocks wanted.
    want: u32,
    /// Blocks that will do, more than 0.
    accept: u32,
}

type Answer<T, B> = Result<T, Error<<B as GroupBitmaps>::Error>>;

impl Allocator {
    /// Over the groups of `geometry` (without clusters), whose free counts are read now and whose
    /// bitmaps when they are first needed.
    ///
    /// # Errors
    /// [`Error::Bitmaps`] if a descriptor cannot be read, [`Error::FreeCount`] if one has more free
    /// blocks than the group has blocks.
    pub fn new<B: GroupBitmaps>(geometry: &Geometry, bitmaps: &B) -> Answer<Self, B> {
        Self::with_options(geometry, bitmaps, Options::default())
    }

    /// The same with these policies.
    ///
    /// # Errors
    /// As [`Allocator::new`].
    pub fn with_options<B: GroupBitmaps>(
        geometry: &Geometry,
        bitmaps: &B,
        options: Options,
    ) -> Answer<Self, B> {
        let blocks_per_group = geometry.blocks_per_group.get();
        let shape = Shape::new(blocks_per_group, geometry.block_size.log2());
        let groups = geometry.groups_count.get();
        let index = OrderIndex::new(groups, shape.order_max);
        let mut all_free = 0u64;
        let mut slots = Vec::with_capacity(groups as usize);
        for group in (0..groups).map(GroupNr) {
            let free = bitmaps.free_blocks(group).map_err(Error::Bitmaps)?;
            let blocks = geometry.blocks_in_group(group);
            if free > blocks {
                return Err(Error::FreeCount {
                    group,
                    bitmap: blocks,
                    descriptor: free,
                });
            }
            all_free += u64::from(free);
            let indexed = free.checked_ilog2().map(|order| order.min(shape.order_max));
            index.change(group.0, None, indexed);
            slots.push(Mutex::new(Slot {
                indexed,
                ..Slot::default()
            }));
        }
        Ok(Self {
            streams: Streams::new(options.search, options.stream_goals, groups),
            options,
            shape,
            first_data_block: geometry.first_data_block.into(),
            blocks_count: geometry.blocks_count,
            slots: slots.into_boxed_slice(),
            index,
            free: AtomicU64::new(all_free),
            counters: Counters::default(),
        })
    }

    /// Its policies and tunables.
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Free blocks in all groups.
    pub fn free_blocks(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// What was done so far.
    pub fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    /// What the buddy of a group tells; `None` if the group does not exist or is not loaded.
    pub fn group_info(&self, group: GroupNr) -> Option<GroupInfo> {
        let slot = self.slots.get(group.0 as usize)?.lock();
        let buddy = slot.buddy.as_ref()?;
        Some(GroupInfo {
            free: buddy.free(),
            fragments: buddy.fragments(),
            counters: buddy.counters().to_vec(),
        })
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
    /// [`Error::NoSpace`], [`Error::FreeCount`] for a bitmap that contradicts its descriptor, and
    /// [`Error::Bitmaps`]; nothing is taken then.
    pub fn take<B: GroupBitmaps>(&self, bitmaps: &B, request: &Request) -> Answer<Run, B> {
        self.take_with(bitmaps, request, &Hints::default())
    }

    /// The same, with what else is known of the request.
    ///
    /// # Errors
    /// As [`Allocator::take`].
    pub fn take_with<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        request: &Request,
        hints: &Hints,
    ) -> Answer<Run, B> {
        add(&self.counters.reqs, 1);
        let want = request.len.clamp(1, self.shape.blocks_per_group);
        let min = request.min_len.clamp(1, want);
        let goal = self.locate(request.goal).unwrap_or((0, 0));
        let (group, piece) = if request.next_fit {
            self.next_fit(bitmaps, (want, min), goal)?
        } else {
            let least = if hints.merge { min } else { want };
            match self.at_goal(bitmaps, (want, least), goal)? {
                Some(piece) => (goal.0, piece),
                None => {
                    let stream = hints.stream.and_then(|file| self.stream_goal(file));
                    let from = stream.and_then(|goal| self.locate(goal)).unwrap_or(goal);
                    self.search(bitmaps, want, min, from)?
                }
            }
        };
        self.free.fetch_sub(piece.len.into(), Relaxed);
        add(&self.counters.success, 1);
        add(&self.counters.allocated, piece.len.into());
        add(&self.counters.shortened, u64::from(piece.len < request.len));
        let run = Run {
            start: Pblk(self.group_start(group) + u64::from(piece.start)),
            len: piece.len,
        };
        if let Some(file) = hints.stream {
            self.set_stream_goal(file, run);
        }
        Ok(run)
    }

    /// Marks a run used that was taken, as a whole.
    ///
    /// # Errors
    /// [`Error::Bitmaps`]; the run is given back then.
    pub fn mark<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<(), B> {
        let Some((group, offset)) = self.locate(run.start) else {
            return Ok(());
        };
        let marked = bitmaps.mark_used(GroupNr(group), offset, run.len);
        self.marked(group, |buddy| {
            if marked.is_err() {
                buddy.give(offset, run.len);
                self.free.fetch_add(run.len.into(), Relaxed);
            }
        });
        marked.map_err(Error::Bitmaps)
    }

    /// Takes exactly this run, which must be in one group, and marks it used; false if any of it is in
    /// use, and nothing was changed.
    ///
    /// # Errors
    /// As [`Allocator::clear`]; nothing is taken then.
    pub fn take_at<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<bool, B> {
        let (group, offset) = self.locate_run(run)?;
        let taken = self.with_group(bitmaps, group, |buddy| {
            (buddy.run_at(offset, run.len) == run.len).then(|| buddy.take(offset, run.len))
        })?;
        if taken.is_some() {
            self.free.fetch_sub(run.len.into(), Relaxed);
            add(&self.counters.allocated, run.len.into());
            self.mark(bitmaps, run)?;
        }
        Ok(taken.is_some())
    }

    /// Whether all of a run, which must be in one group, is in use.
    ///
    /// # Errors
    /// As [`Allocator::clear`].
    pub fn is_used<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<bool, B> {
        let (group, offset) = self.locate_run(run)?;
        let mut used = false;
        self.with_group(bitmaps, group, |buddy| {
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
    /// [`Error::NotUsed`] for a run that is not, or is past the end; and as for
    /// [`Allocator::take`]. Nothing is freed then.
    pub fn clear<B: GroupBitmaps>(&self, bitmaps: &B, run: Run) -> Answer<(), B> {
        let (group, offset) = self.locate_run(run)?;
        self.with_group(bitmaps, group, |buddy| {
            buddy.all_used(offset, run.len).then_some(())
        })?
        .ok_or(Error::NotUsed {
            start: run.start,
            len: run.len,
            why: "already free",
        })?;
        let marked = bitmaps.mark_free(GroupNr(group), offset, run.len);
        if marked.is_err() {
            self.marked(group, |_| ());
        }
        marked.map_err(Error::Bitmaps)?;
        add(&self.counters.freed, run.len.into());
        Ok(())
    }

    /// Lets others have a run that was cleared.
    pub fn give(&self, run: Run) {
        if let Some((group, offset)) = self.locate(run.start) {
            self.marked(group, |buddy| buddy.give(offset, run.len));
            self.free.fetch_add(run.len.into(), Relaxed);
        }
    }

    fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * u64::from(self.shape.blocks_per_group)
    }

    fn blocks_in_group(&self, group: u32) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_start(group));
        left.min(self.shape.blocks_per_group.into()) as u32
    }

    /// Group of a block and its offset there.
    fn locate(&self, block: Pblk) -> Option<(u32, u32)> {
        if block.0 >= self.blocks_count {
            return None;
        }
        let from_first = block.0.checked_sub(self.first_data_block)?;
        let per_group = u64::from(self.shape.blocks_per_group);
        Some((
            (from_first / per_group) as u32,
            (from_first % per_group) as u32,
        ))
    }

    /// Group of a run and its offset there.
    fn locate_run<E: std::error::Error>(&self, run: Run) -> Result<(u32, u32), Error<E>> {
        let refuse = |why| Error::NotUsed {
            start: run.start,
            len: run.len,
            why,
        };
        let (group, offset) = self
            .locate(run.start)
            .ok_or_else(|| refuse("outside the file system"))?;
        if run.len == 0 || run.len > self.blocks_in_group(group).saturating_sub(offset) {
            return Err(refuse("not within one group"));
        }
        Ok((group, offset))
    }

    /// True if something is free in the group, as far as is known.
    fn has_free(&self, group: u32) -> bool {
        self.slots[group as usize].lock().indexed.is_some()
    }

    /// Step 1: the run that starts at the goal, if it has `least` blocks.
    fn at_goal<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        (want, least): (u32, u32),
        (group, offset): (u32, u32),
    ) -> Answer<Option<Piece>, B> {
        if !self.has_free(group) {
            return Ok(None);
        }
        self.with_group(bitmaps, group, |buddy| {
            let len = buddy.run_at(offset, want);
            if len < least {
                return None;
            }
            add(&self.counters.goal_hits, 1);
            buddy.take(offset, len);
            Some(Piece { start: offset, len })
        })
    }

    /// The next run of at least `min` blocks at or after the goal; then from the start.
    fn next_fit<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        (want, min): (u32, u32),
        (goal_group, offset): (u32, u32),
    ) -> Answer<(u32, Piece), B> {
        let ask = |group, from| {
            let found = self.with_group(bitmaps, group, |buddy| {
                let piece = buddy.next_run(from, want, min)?;
                buddy.take(piece.start, piece.len);
                Some(piece)
            })?;
            Ok(found.map(|piece| (group, piece)))
        };
        if self.has_free(goal_group)
            && let Some(found) = ask(goal_group, offset)?
        {
            add(&self.counters.goal_hits, u64::from(found.1.start == offset));
            return Ok(found);
        }
        // Below that order no chunk can lie in a run of `min` blocks.
        let orders = min.ilog2().saturating_sub(1)..=self.shape.order_max;
        let mut skip = 1;
        while let Some(group) = self.index.nearest(orders.clone(), goal_group, skip) {
            add(&self.counters.groups_considered, 1);
            if let Some(found) = ask(group, 0)? {
                return Ok(found);
            }
            skip = self.index.distance(goal_group, group) + 1;
        }
        if self.has_free(goal_group)
            && let Some(found) = ask(goal_group, 0)?
        {
            return Ok(found);
        }
        Err(Error::NoSpace {
            min_len: min,
            free: self.free_blocks(),
        })
    }

    /// Steps 2 to 4.
    fn search<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        want: u32,
        min: u32,
        goal: (u32, u32),
    ) -> Answer<(u32, Piece), B> {
        let order_max = self.shape.order_max;
        let order = want.next_power_of_two().ilog2().min(order_max);
        // Certain, unless the run is longer than any chunk.
        let long = want > 1 << order_max;
        let mut walk = Walk {
            orders: (order, order_max),
            groups_max: if long { GROUPS_TO_SCAN } else { u32::MAX },
            chunks_max: CHUNKS_TO_SCAN,
            want,
            accept: want,
        };
        if let Some(found) = self.walk(bitmaps, &walk, goal)? {
            return Ok(found);
        }
        if !long && order > 0 {
            walk.orders = (order.saturating_sub(2), order - 1);
            (walk.groups_max, walk.chunks_max) = STRADDLING_TO_SCAN;
            if let Some(found) = self.walk(bitmaps, &walk, goal)? {
                return Ok(found);
            }
        }
        // Less. A chunk of order o promises 2^o blocks: no run shorter than that is taken before
        // all groups of that order have been asked. Where the chunk alone is not enough, every run
        // has to be measured, as far down as one long enough may be made of.
        (walk.groups_max, walk.chunks_max) = (u32::MAX, CHUNKS_TO_SCAN);
        let lowest = min.ilog2().saturating_sub(1);
        for order in (lowest..=order).rev() {
            walk.orders = (order, order_max);
            walk.accept = min.max(1 << order).min(want);
            if walk.accept > 1 << order {
                walk.chunks_max = u32::MAX;
            }
            if let Some(found) = self.walk(bitmaps, &walk, goal)? {
                return Ok(found);
            }
        }
        Err(Error::NoSpace {
            min_len: min,
            free: self.free_blocks(),
        })
    }

    /// Takes the first run that will do, from the group nearest to the goal.
    fn walk<B: GroupBitmaps>(
        &self,
        bitmaps: &B,
        walk: &Walk,
        (goal_group, goal_offset): (u32, u32),
    ) -> Answer<Option<(u32, Piece)>, B> {
        let (low, high) = walk.orders;
        let mut skip = 0;
        for _ in 0..walk.groups_max {
            let Some(group) = self.index.nearest(low..=high, goal_group, skip) else {
                return Ok(None);
            };
            add(&self.counters.groups_considered, 1);
            let from = if group == goal_group { goal_offset } else { 0 };
            let found = self.with_group(bitmaps, group, |buddy| {
                let piece = buddy
                    .find(walk.want, from)
                    .or_else(|| buddy.longest(walk.want, low, walk.chunks_max))
                    .filter(|piece| piece.len >= walk.accept)?;
                buddy.take(piece.start, piece.len);
                Some(piece)
            })?;
            if let Some(piece) = found {
                return Ok(Some((group, piece)));
            }
            skip = self.index.distance(goal_group, group) + 1;
        }
        Ok(None)
    }

    /// Runs `f` under the group's lock, with its buddy loaded, and brings the index up to date. If it
    /// answers, a mark of the bitmap is under way until [`Allocator::marked`].
    fn with_group<B: GroupBitmaps, R>(
        &self,
        bitmaps: &B,
        group: u32,
        f: impl FnOnce(&mut Buddy) -> Option<R>,
    ) -> Answer<Option<R>, B> {
        loop {
            let loads = {
                let mut guard = self.slots[group as usize].lock();
                let slot = &mut *guard;
                if let Some(buddy) = slot.buddy.as_mut() {
                    let result = f(buddy);
                    slot.marks += u32::from(result.is_some());
                    self.reindex(group, slot);
                    return Ok(result);
                }
                slot.loads
            };
            let buddy = self.load(bitmaps, group);
            let mut slot = self.slots[group as usize].lock();
            // Loaded by somebody else meanwhile, and perhaps changed: then ours may be half old.
            if slot.loads == loads {
                slot.buddy = Some(Box::new(buddy?));
                slot.loads = slot.loads.wrapping_add(1);
            }
        }
    }

    fn load<B: GroupBitmaps>(&self, bitmaps: &B, group: u32) -> Answer<Buddy, B> {
        add(&self.counters.buddies_generated, 1);
        let nr = GroupNr(group);
        let mut bitmap = vec![0; self.shape.blocks_per_group.div_ceil(8) as usize];
        bitmaps
            .read_bitmap(nr, &mut bitmap)
            .map_err(Error::Bitmaps)?;
        let descriptor = bitmaps.free_blocks(nr).map_err(Error::Bitmaps)?;
        let buddy = Buddy::generate(self.shape, &bitmap, self.blocks_in_group(group));
        if buddy.free() != descriptor {
            return Err(Error::FreeCount {
                group: nr,
                bitmap: buddy.free(),
                descriptor,
            });
        }
        Ok(buddy)
    }

    /// A mark of the group's bitmap is done; `f` may still correct the buddy. Drops the buddy of a
    /// full group.
    fn marked(&self, group: u32, f: impl FnOnce(&mut Buddy)) {
        let mut slot = self.slots[group as usize].lock();
        slot.marks -= 1;
        if let Some(buddy) = slot.buddy.as_mut() {
            f(buddy);
        }
        self.reindex(group, &mut slot);
        if slot.marks == 0 && slot.buddy.as_ref().is_some_and(|b| b.free() == 0) {
            slot.buddy = None;
        }
    }

    fn reindex(&self, group: u32, slot: &mut Slot) {
        if let Some(buddy) = &slot.buddy {
            let largest = buddy.largest_order();
            self.index.change(group, slot.indexed, largest);
            slot.indexed = largest;
        }
    }
}

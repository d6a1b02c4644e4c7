//! All groups: their locks, their buddies, and what is known of them without a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use parking_lot::{Mutex, MutexGuard};
use tracing::trace;
use uext4_ondisk::{Geometry, GroupNr, Pblk};
use uext4_support::{Growing, Replaced};

use crate::buddy::{Buddy, Shape};
use crate::index::{GroupState, Index};
use crate::io::Io;
use crate::maxima::Maxima;
use crate::stats::Counters;
use crate::{BadGroup, Error, GroupBitmaps, Run};

mod grow;

use grow::stripe_rows_of;

pub(crate) type Answer<T, B> = Result<T, Error<<B as GroupBitmaps>::Error>>;

/// What a group's lock guards.
#[derive(Debug, Default)]
struct Slot {
    buddy: Option<Box<Buddy>>,
    /// Free blocks as far as they count in the total.
    free: u32,
    /// Blocks taken and preallocated for files: used in the buddy, counted as free in the total.
    kept: u32,
    /// Times a buddy was put here: reports whether a bitmap read without the lock is still good.
    loads: u32,
    /// Its bitmap was read and agreed with its descriptor.
    checked: bool,
    /// Its bitmap contradicts its descriptor: left alone.
    bad: bool,
}

#[derive(Debug, Default)]
struct Group {
    slot: Mutex<Slot>,
    /// Marks of this group's bitmap under way; its buddy stays until they are done. Only raised
    /// under the lock.
    marks: AtomicU32,
    free: AtomicU32,
    fragments: AtomicU32,
    /// Order of the largest chunk and one, 0 for none; the highest bit is set if it is loaded.
    state: AtomicU8,
}

const LOADED: u8 = 0x80;

/// Whether a lock that another thread holds is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is waited for.
    Wait,
    /// It is not: [`Visit::Busy`].
    Try,
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The group's number.
    pub group: u32,
    /// The block within the group.
    pub offset: u32,
}

/// What came of a look into a group.
#[derive(Debug)]
pub enum Visit<R> {
    /// Another thread holds its lock.
    Busy,
    /// It is marked bad.
    Bad,
    /// Nothing of use.
    Nothing,
    /// What the closure answered.
    Done(R),
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Groups {
    /// That of the allocator in events.
    pub(crate) number: u32,
    pub(crate) shape: Shape,
    first_data_block: u64,
    blocks_count: AtomicU64,
    groups: Growing<Group>,
    /// Blocks of each group's longest free run, at most so many if it is not loaded.
    longest: Replaced<Maxima>,
    /// Free stripes in the longest row of each group, likewise; of no group if there are no
    /// stripes.
    stripe_rows: Replaced<Maxima>,
    /// That of a design of the search other than ours.
    index: Option<Arc<dyn Index>>,
    /// Free blocks in all groups but bad ones.
    pub(crate) free: AtomicU64,
    /// Those of groups that are checked.
    pub(crate) checked_free: AtomicU64,
    /// Groups before this one need not be checked any more.
    pub(crate) checked_to: AtomicU32,
    /// Free runs in all groups, one for each that is not loaded and has any.
    pub(crate) fragments: AtomicU64,
    bad: Mutex<Vec<BadGroup>>,
    /// Groups whose buddies are in memory.
    pub(crate) loaded: AtomicU32,
    /// Moves on whenever something becomes free: who found nothing may find something now.
    pub(crate) given: AtomicU64,
}

impl Groups {
    /// All groups with the free counts their descriptors say, none loaded.
    pub(crate) fn new<B: GroupBitmaps>(
        geometry: &Geometry,
        shape: Shape,
        index: Option<Arc<dyn Index>>,
        bitmaps: &B,
    ) -> Answer<Self, B> {
        let count = geometry.groups_count.get();
        let mut all = Self {
            number: next_device(),
            shape,
            first_data_block: geometry.first_data_block.into(),
            blocks_count: AtomicU64::new(geometry.blocks_count),
            groups: (0..count).map(|_| Group::default()).collect(),
            longest: Replaced::new(Maxima::new(count)),
            stripe_rows: Replaced::new(Maxima::new(stripe_rows_of(shape, count))),
            index,
            free: AtomicU64::new(0),
            checked_free: AtomicU64::new(0),
            checked_to: AtomicU32::new(0),
            fragments: AtomicU64::new(0),
            bad: Mutex::default(),
            loaded: AtomicU32::new(0),
            given: AtomicU64::new(0),
        };
        let mut total = 0u64;
        for group in 0..count {
            let descriptor = bitmaps
                .free_blocks(GroupNr(group))
                .map_err(Error::Bitmaps)?;
            let blocks = all.blocks_in_group(group);
            let slot = &mut *all.groups[group as usize].slot.lock();
            if descriptor > blocks {
                slot.bad = true;
                all.bad.get_mut().push(BadGroup {
                    group: GroupNr(group),
                    bitmap: Some(blocks),
                    descriptor,
                });
                continue;
            }
            slot.free = descriptor;
            total += u64::from(descriptor);
            all.reindex(group, slot);
        }
        *all.free.get_mut() = total;
        Ok(all)
    }

    /// All blocks, free or not.
    pub(crate) fn blocks_count(&self) -> u64 {
        self.blocks_count.load(Relaxed)
    }

    pub(crate) fn longest(&self) -> &Maxima {
        self.longest.get()
    }

    pub(crate) fn stripe_rows(&self) -> &Maxima {
        self.stripe_rows.get()
    }

    pub(crate) fn count(&self) -> u32 {
        self.groups.len() as u32
    }

    pub(crate) fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * u64::from(self.shape.blocks_per_group)
    }

    pub(crate) fn blocks_in_group(&self, group: u32) -> u32 {
        let left = self.blocks_count().saturating_sub(self.group_start(group));
        left.min(self.shape.blocks_per_group.into()) as u32
    }

    /// First block of the group that begins a stripe.
    fn first_stripe(&self, group: u32) -> u32 {
        let stripe = u64::from(self.shape.stripe.max(1));
        let past = self.group_start(group) % stripe;
        ((stripe - past) % stripe) as u32
    }

    /// Group of a block and its offset there.
    pub(crate) fn locate(&self, block: Pblk) -> Option<Place> {
        if block.0 >= self.blocks_count() {
            return None;
        }
        let from_first = block.0.checked_sub(self.first_data_block)?;
        let per_group = u64::from(self.shape.blocks_per_group);
        let group = (from_first / per_group) as u32;
        // One that grows has the blocks first.
        (group < self.count()).then_some(Place {
            group,
            offset: (from_first % per_group) as u32,
        })
    }

    /// Group of a run and its offset there.
    pub(crate) fn locate_run<E: std::error::Error>(&self, run: Run) -> Result<Place, Error<E>> {
        let refuse = |why| Error::NotUsed {
            start: run.start,
            len: run.len,
            why,
        };
        let place = self
            .locate(run.start)
            .ok_or_else(|| refuse("outside the file system"))?;
        let blocks = self.blocks_in_group(place.group);
        if run.len == 0 || run.len > blocks.saturating_sub(place.offset) {
            return Err(refuse("not within one group"));
        }
        Ok(place)
    }

    /// A group as it looks without its lock.
    pub(crate) fn state(&self, group: u32) -> GroupState {
        let at = &self.groups[group as usize];
        let state = at.state.load(Relaxed);
        GroupState {
            free: at.free.load(Relaxed),
            fragments: at.fragments.load(Relaxed),
            largest_order: (state & !LOADED).checked_sub(1).map(u32::from),
            loaded: state & LOADED != 0,
        }
    }

    /// Looks at the buddy of a group under its lock; `None` if it does not exist or is not loaded.
    pub(crate) fn peek<R>(&self, group: GroupNr, f: impl FnOnce(&Buddy) -> R) -> Option<R> {
        let slot = self.groups.get(group.0 as usize)?.slot.lock();
        slot.buddy.as_ref().map(|buddy| f(buddy))
    }

    /// Whether the first `len` blocks of a group are free, as far as is known at once: without its
    /// bitmap if that was not read, and without waiting for its lock.
    pub(crate) fn begins_free(&self, group: u32, len: u32) -> bool {
        let Some(at) = self.groups.get(group as usize) else {
            return false;
        };
        let state = self.state(group);
        if !state.loaded {
            return state.free >= len && state.free == self.blocks_in_group(group);
        }
        let slot = at.slot.try_lock();
        let buddy = slot.as_ref().and_then(|slot| slot.buddy.as_ref());
        buddy.is_some_and(|buddy| buddy.run_at(0, len) >= len)
    }

    /// The groups marked bad so far, in the order they were found.
    pub(crate) fn bad(&self) -> Vec<BadGroup> {
        self.bad.lock().clone()
    }

    /// The error that names a bad group.
    pub(crate) fn bad_error<E: std::error::Error>(&self, group: u32) -> Error<E> {
        let group = GroupNr(group);
        let bad = self.bad.lock();
        let known = bad.iter().find(|bad| bad.group == group);
        match known.and_then(|bad| bad.bitmap.zip(Some(bad.descriptor))) {
            Some((bitmap, descriptor)) => Error::FreeCount {
                group,
                bitmap,
                descriptor,
            },
            None => Error::Unreadable { group },
        }
    }

    /// Whether a group is marked bad.
    pub(crate) fn is_bad(&self, group: u32) -> bool {
        let groups = self.groups.get(group as usize);
        groups.is_some_and(|group| group.slot.lock().bad)
    }

    /// Locks a group; `None` if another thread holds the lock and it is not waited for.
    fn lock(&self, counters: &Counters, group: u32, lock: Lock) -> Option<MutexGuard<'_, Slot>> {
        let mutex = &self.groups[group as usize].slot;
        if let Some(slot) = mutex.try_lock() {
            counters.add(&counters.lock_acquired, 1);
            return Some(slot);
        }
        if lock == Lock::Try {
            counters.add(&counters.trylock_skipped, 1);
            return None;
        }
        counters.add(&counters.lock_acquired, 1);
        counters.add(&counters.lock_contended, 1);
        Some(mutex.lock())
    }

    /// Runs `f` under the group's lock, with its buddy loaded, and brings the indexes up to date.
    /// If it answers, a mark of the bitmap is under way until [`Groups::marked`].
    pub(crate) fn visit<B: GroupBitmaps, R>(
        &self,
        io: Io<'_, B>,
        group: u32,
        f: impl FnMut(&mut Buddy) -> Option<R>,
    ) -> Answer<Visit<R>, B> {
        self.visit_counted(io, group, u32::MAX, f)
    }

    /// The same; of what `f` takes only the first `counted` blocks leave the total, the others
    /// are preallocated.
    pub(crate) fn visit_counted<B: GroupBitmaps, R>(
        &self,
        io: Io<'_, B>,
        group: u32,
        counted: u32,
        mut f: impl FnMut(&mut Buddy) -> Option<R>,
    ) -> Answer<Visit<R>, B> {
        loop {
            match self.try_visit(io.counters, group, Lock::Wait, counted, &mut f) {
                Ok(visit) => return Ok(visit),
                Err(loads) => self.load(io, group, loads)?,
            }
        }
    }

    /// The same if the buddy is loaded; else fails with how often it was, for [`Groups::load`].
    pub(crate) fn try_visit<R>(
        &self,
        counters: &Counters,
        group: u32,
        lock: Lock,
        counted: u32,
        f: &mut impl FnMut(&mut Buddy) -> Option<R>,
    ) -> Result<Visit<R>, u32> {
        let Some(mut guard) = self.lock(counters, group, lock) else {
            return Ok(Visit::Busy);
        };
        let slot = &mut *guard;
        if slot.bad {
            return Ok(Visit::Bad);
        }
        let Some(buddy) = slot.buddy.as_mut() else {
            return Err(slot.loads);
        };
        let before = buddy.free();
        let Some(result) = f(buddy) else {
            return Ok(Visit::Nothing);
        };
        let taken = before.saturating_sub(buddy.free());
        slot.kept += taken.saturating_sub(counted);
        self.groups[group as usize].marks.fetch_add(1, Relaxed);
        self.reindex(group, slot);
        Ok(Visit::Done(result))
    }

    /// How often a group was loaded, if it calls blocks free and was not checked.
    pub(crate) fn unchecked(&self, group: u32) -> Option<u32> {
        let at = &self.groups[group as usize];
        if at.free.load(Relaxed) == 0 {
            return None;
        }
        let slot = at.slot.lock();
        (!slot.checked && !slot.bad).then_some(slot.loads)
    }

    /// Reads a group's bitmap and keeps its buddy, unless it was loaded `loads` times already;
    /// marks the group bad if the two contradict each other, or it cannot be read: others may be
    /// used.
    pub(crate) fn load<B: GroupBitmaps>(
        &self,
        Io { bitmaps, counters }: Io<'_, B>,
        group: u32,
        loads: u32,
    ) -> Answer<(), B> {
        let nr = GroupNr(group);
        let mut bitmap = vec![0; self.shape.blocks_per_group.div_ceil(8) as usize];
        let read = bitmaps.read_bitmap(nr, &mut bitmap);
        let descriptor = match read.and_then(|()| bitmaps.free_blocks(nr)) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                let bad = |slot: &Slot| BadGroup {
                    group: nr,
                    bitmap: None,
                    descriptor: slot.free,
                };
                if self.mark_bad(group, loads, bad) {
                    bitmaps.left_alone(nr);
                }
                return Err(Error::Bitmaps(error));
            }
        };
        let blocks = self.blocks_in_group(group);
        let buddy = Buddy::generate(self.shape, &bitmap, blocks, self.first_stripe(group));
        counters.add(&counters.buddies_generated, 1);
        let dev = self.number;
        trace!(name: "ext4_mb_bitmap_load", target: "ext4", dev, group);
        trace!(name: "ext4_mb_buddy_bitmap_load", target: "ext4", dev, group);
        if buddy.free() != descriptor {
            let bitmap = Some(buddy.free());
            let bad = |_: &Slot| BadGroup {
                group: nr,
                bitmap,
                descriptor,
            };
            if self.mark_bad(group, loads, bad) {
                bitmaps.left_alone(nr);
            }
            return Ok(());
        }
        let mut guard = self.groups[group as usize].slot.lock();
        let slot = &mut *guard;
        // Loaded by another thread meanwhile, and perhaps changed: then ours may be half old.
        if slot.loads == loads && !slot.bad {
            slot.loads = slot.loads.wrapping_add(1);
            slot.buddy = Some(Box::new(buddy));
            self.loaded.fetch_add(1, Relaxed);
            if !std::mem::replace(&mut slot.checked, true) {
                self.checked_free.fetch_add(slot.free.into(), Relaxed);
            }
            self.reindex(group, slot);
        }
        Ok(())
    }

    /// Leaves a group alone from now on, unless it was loaded meanwhile: then it may have changed
    /// between one look and the next. Returns whether it did.
    fn mark_bad(&self, group: u32, loads: u32, bad: impl FnOnce(&Slot) -> BadGroup) -> bool {
        let mut guard = self.groups[group as usize].slot.lock();
        let slot = &mut *guard;
        if slot.loads != loads || slot.bad {
            return false;
        }
        slot.loads = slot.loads.wrapping_add(1);
        let bad = bad(slot);
        slot.bad = true;
        self.free.fetch_sub(slot.free.into(), Relaxed);
        if std::mem::replace(&mut slot.checked, false) {
            self.checked_free.fetch_sub(slot.free.into(), Relaxed);
        }
        slot.free = 0;
        self.reindex(group, slot);
        drop(guard);
        self.bad.lock().push(bad);
        true
    }

    /// A mark of the group's bitmap is done; drops the buddy of a full group.
    pub(crate) fn marked(&self, group: u32) {
        let at = &self.groups[group as usize];
        let before = at.marks.fetch_sub(1, Release);
        if before == 1
            && at.free.load(Relaxed) == 0
            && let Some(mut slot) = at.slot.try_lock()
            && at.marks.load(Acquire) == 0
            && slot.buddy.as_ref().is_some_and(|b| b.free() == 0)
        {
            slot.buddy = None;
            self.loaded.fetch_sub(1, Relaxed);
            self.reindex(group, &mut slot);
        }
    }

    /// Gives blocks of the group back to its buddy; ends their mark.
    pub(crate) fn give(&self, counters: &Counters, at: Place, len: u32) {
        let Place { group, offset } = at;
        if let Some(mut guard) = self.lock(counters, group, Lock::Wait) {
            let slot = &mut *guard;
            if let Some(buddy) = slot.buddy.as_mut() {
                buddy.give(offset, len);
                self.reindex(group, slot);
                self.given.fetch_add(1, Release);
            }
        }
        self.marked(group);
    }

    /// Of the blocks that are preallocated, `used` are handed out (or preallocated again, if it
    /// is negative), in `marks` more or fewer parts; some mark is under way before and after.
    pub(crate) fn divide(&self, counters: &Counters, group: u32, marks: i32, used: i64) {
        let Some(mut guard) = self.lock(counters, group, Lock::Wait) else {
            return;
        };
        let at = &self.groups[group as usize];
        at.marks.fetch_add(marks.cast_unsigned(), Relaxed);
        let kept = i64::from(guard.kept) - used;
        // Never out of range: what is used was preallocated before.
        guard.kept = u32::try_from(kept).unwrap_or(0);
        if used != 0 {
            self.reindex(group, &mut guard);
        }
    }

    /// Gives blocks that are held back to their buddy; ends their mark.
    pub(crate) fn release(&self, counters: &Counters, at: Place, len: u32) {
        let Place { group, offset } = at;
        if let Some(mut guard) = self.lock(counters, group, Lock::Wait) {
            let slot = &mut *guard;
            slot.kept = slot.kept.saturating_sub(len);
            if let Some(buddy) = slot.buddy.as_mut() {
                buddy.give(offset, len);
                self.reindex(group, slot);
                self.given.fetch_add(1, Release);
            }
        }
        self.marked(group);
    }

    /// Drops the buddies of up to `most` groups that nothing is under way in, from `from` on and
    /// once round; what the indexes know of them stays true. Answers with how many, and where to
    /// go on.
    pub(crate) fn unload(&self, from: u32, most: u32) -> (u32, u32) {
        let from = from.min(self.count());
        let mut dropped = 0;
        for group in (from..self.count()).chain(0..from) {
            if dropped == most {
                return (dropped, group);
            }
            let at = &self.groups[group as usize];
            if at.state.load(Relaxed) & LOADED != 0
                && let Some(mut slot) = at.slot.try_lock()
                && at.marks.load(Acquire) == 0
                && slot.buddy.take().is_some()
            {
                at.state.fetch_and(!LOADED, Relaxed);
                self.loaded.fetch_sub(1, Relaxed);
                dropped += 1;
            }
        }
        (dropped, from)
    }

    /// Brings what is known without the lock up to date, the total too.
    fn reindex(&self, group: u32, slot: &mut Slot) {
        let at = &self.groups[group as usize];
        let (state, longest, rows) = match &slot.buddy {
            Some(buddy) => (GroupState::of(buddy), buddy.longest(), buddy.stripes().1),
            // Not loaded: what the number of free blocks allows at best.
            None => (
                self.unloaded(slot.free),
                slot.free,
                slot.free / self.shape.stripe.max(1),
            ),
        };
        let counted = match &slot.buddy {
            Some(_) => state.free + slot.kept,
            None => state.free,
        };
        let checked = slot.checked.then_some(&self.checked_free);
        for total in [Some(&self.free), checked].into_iter().flatten() {
            if counted < slot.free {
                total.fetch_sub(u64::from(slot.free - counted), Relaxed);
            } else {
                total.fetch_add(u64::from(counted - slot.free), Relaxed);
            }
        }
        slot.free = counted;
        at.free.store(state.free, Relaxed);
        let before = at.fragments.swap(state.fragments, Relaxed);
        // One wraps where the other does: the sum is never less than nothing.
        let more = u64::from(state.fragments).wrapping_sub(before.into());
        self.fragments.fetch_add(more, Relaxed);
        let loaded = if state.loaded { LOADED } else { 0 };
        let largest = state.largest_order.map_or(0, |order| order as u8 + 1);
        at.state.store(largest | loaded, Relaxed);
        self.longest().set(group, longest);
        if self.shape.stripe > 0 {
            self.stripe_rows().set(group, rows);
        }
        if let Some(index) = &self.index {
            index.update(group, &state);
        }
    }

    /// A group that is not loaded, of which so many blocks are free.
    fn unloaded(&self, free: u32) -> GroupState {
        let order_max = self.shape.order_max;
        GroupState {
            free,
            fragments: free.min(1),
            largest_order: free.checked_ilog2().map(|order| order.min(order_max)),
            loaded: false,
        }
    }
}

/// A number for the next allocator.
fn next_device() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Relaxed)
}

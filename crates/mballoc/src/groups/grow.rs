//! Groups that are put behind the last: see `grow.rs` of the crate.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};

use parking_lot::Mutex;
use uext4_ondisk::{Geometry, GroupNr};
use uext4_support::Replaced;

use super::{Answer, Group, Groups, Slot};
use crate::buddy::Shape;
use crate::index::GroupState;
use crate::maxima::Maxima;
use crate::{Error, GroupBitmaps};

/// Groups that the table of free stripes has.
pub(super) fn stripe_rows_of(shape: Shape, groups: u32) -> u32 {
    if shape.stripe > 0 { groups } else { 0 }
}

impl Group {
    /// A group that is not loaded, of which so many blocks are free.
    fn unloaded(free: u32, state: &GroupState) -> Self {
        let largest = state.largest_order.map_or(0, |order| order as u8 + 1);
        Self {
            slot: Mutex::new(Slot {
                free,
                ..Slot::default()
            }),
            free: AtomicU32::new(state.free),
            fragments: AtomicU32::new(state.fragments),
            state: AtomicU8::new(largest),
            ..Self::default()
        }
    }
}

impl Groups {
    /// See [`crate::Allocator::grow`].
    pub(crate) fn grow<B: GroupBitmaps>(&self, geometry: &Geometry, bitmaps: &B) -> Answer<(), B> {
        let (before, after) = (self.count(), geometry.groups_count.get());
        let free: Result<Vec<u32>, B::Error> = (before..after)
            .map(|group| bitmaps.free_blocks(GroupNr(group)))
            .collect();
        let free = free.map_err(Error::Bitmaps)?;
        self.blocks_count.store(geometry.blocks_count, Relaxed);
        if let Some(last) = before.checked_sub(1) {
            self.lengthen(last);
        }
        if after == before {
            return Ok(());
        }
        let replace =
            |table: &Replaced<Maxima>, count| table.set(Maxima::larger(table.get(), count));
        replace(&self.longest, after);
        replace(&self.stripe_rows, stripe_rows_of(self.shape, after));
        for group in 0..before {
            self.reindex(group, &mut self.groups[group as usize].slot.lock());
        }
        let states: Vec<GroupState> = free.iter().map(|&free| self.unloaded(free)).collect();
        // The totals first, and the groups with all that is known of them: a thread that looks for
        // groups to be checked passes by one that says that nothing is free, for good.
        let sum =
            |of: fn(&GroupState) -> u32| states.iter().map(|state| u64::from(of(state))).sum();
        self.free.fetch_add(sum(|state| state.free), Relaxed);
        self.fragments
            .fetch_add(sum(|state| state.fragments), Relaxed);
        let added = free.iter().zip(&states);
        self.groups
            .append(added.map(|(&free, state)| Group::unloaded(free, state)));
        // And now the tables of the search, which need them to be there.
        for group in before..after {
            self.reindex(group, &mut self.groups[group as usize].slot.lock());
        }
        Ok(())
    }

    /// A group has become longer; its new blocks are used.
    fn lengthen(&self, group: u32) {
        let (blocks, first_stripe) = (self.blocks_in_group(group), self.first_stripe(group));
        if let Some(buddy) = &mut self.groups[group as usize].slot.lock().buddy {
            buddy.lengthen(self.shape, blocks, first_stripe);
        }
    }
}

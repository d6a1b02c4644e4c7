//! Groups that are put behind the last: see `grow.rs` of the crate.

use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::{Geometry, GroupNr};
use uext4_support::Replaced;

use super::{Answer, Group, Groups};
use crate::buddy::Shape;
use crate::maxima::Maxima;
use crate::{Error, GroupBitmaps};

/// Groups that the table of free stripes has.
pub(super) fn stripe_rows_of(shape: Shape, groups: u32) -> u32 {
    if shape.stripe > 0 { groups } else { 0 }
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
        self.groups
            .append((before..after).map(|_| Group::default()));
        let replace =
            |table: &Replaced<Maxima>, count| table.set(Maxima::larger(table.get(), count));
        replace(&self.longest, after);
        replace(&self.stripe_rows, stripe_rows_of(self.shape, after));
        for group in 0..before {
            self.reindex(group, &mut self.groups[group as usize].slot.lock());
        }
        for (group, free) in (before..after).zip(free) {
            let slot = &mut *self.groups[group as usize].slot.lock();
            slot.free = free;
            self.free.fetch_add(free.into(), Relaxed);
            self.reindex(group, slot);
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

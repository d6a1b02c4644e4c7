//! The groups as the block allocator sees them: bitmaps to read and to mark.

use uext4_mballoc::GroupBitmaps;
use uext4_ondisk::GroupNr;
use uext4_ondisk::group_desc::BG_BLOCK_UNINIT;

use crate::alloc::bitmap::{fresh_block_bitmap, is_uninit, read_ahead};
use crate::alloc::groups::{Groups, block_bitmap};
use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};

/// The groups as the block allocator sees them.
pub(crate) struct Bitmaps<'a, E> {
    groups: &'a Groups,
    disk: &'a Disk,
    edit: &'a E,
}

impl<'a, E> Bitmaps<'a, E> {
    pub(super) fn new(groups: &'a Groups, disk: &'a Disk, edit: &'a E) -> Self {
        Self { groups, disk, edit }
    }
}

impl<E: Edit> GroupBitmaps for Bitmaps<'_, E> {
    type Error = Error;

    fn free_blocks(&self, group: GroupNr) -> Result<u32> {
        Ok(self.groups.slots[group.0 as usize]
            .lock()
            .desc
            .free_clusters)
    }

    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<()> {
        let (desc, changed) = {
            let slot = self.groups.slots[group.0 as usize].lock();
            (slot.desc, slot.blocks_changed)
        };
        let mut copy = |data: &[u8]| {
            let len = bitmap.len().min(data.len());
            bitmap[..len].copy_from_slice(&data[..len]);
        };
        if is_uninit(self.disk, &desc, BG_BLOCK_UNINIT) {
            copy(&fresh_block_bitmap(self.disk, group, &desc));
        } else {
            copy(&block_bitmap(self.disk, group, &desc, changed)?.data());
        }
        self.groups
            .check_bitmap(self.disk.geometry(), group, bitmap)
    }

    fn prefetch(&self, groups: &[GroupNr]) {
        let slots = groups
            .iter()
            .map(|group| &self.groups.slots[group.0 as usize]);
        let stored = slots
            .map(|slot| slot.lock().desc)
            .filter(|desc| !is_uninit(self.disk, desc, BG_BLOCK_UNINIT));
        read_ahead(self.disk.cache(), stored.map(|desc| desc.block_bitmap));
    }

    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<()> {
        self.groups
            .mark(self.disk, self.edit, group, start, len, true)
    }

    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<()> {
        self.groups
            .mark(self.disk, self.edit, group, start, len, false)
    }

    fn left_alone(&self, group: GroupNr) {
        self.groups.leave_alone(group);
    }
}

//! Groups that are added while the file system is mounted.

use parking_lot::Mutex;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::{Geometry, GroupNr};
use uext4_support::bits::pad;

use super::{Groups, Slot, Tally, block_bitmap, check_places};
use crate::alloc::ialloc::Counts;
use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::Result;
use crate::base::owner::{Kind, Owner};

impl Groups {
    /// Fails if what the descriptors of further groups point to does not lie in the file system
    /// that has them.
    pub(crate) fn check_added(&self, geometry: &Geometry, descs: &[GroupDesc]) -> Result<()> {
        let mut added = (self.groups()..).map(GroupNr).zip(descs);
        added.try_for_each(|(group, desc)| check_places(geometry, group, desc))
    }

    /// Takes in the groups of `descs`, behind the last: `geometry` has them, the file system not
    /// yet. No handle is there to take inodes of them.
    pub(crate) fn add(&self, geometry: &Geometry, descs: &[GroupDesc]) {
        let first = self.groups();
        let flex_of = |group: u32| {
            let bits = self.log_groups_per_flex.into();
            group.checked_shr(bits).unwrap_or(0) as usize
        };
        for (group, desc) in (first..).zip(descs) {
            if flex_of(group) >= self.flex.len() {
                self.flex.append([Tally::default()]);
            }
            let tally = Tally::default();
            let blocks = geometry.blocks_in_group(GroupNr(group));
            for to in [&tally, &self.flex[flex_of(group)], &self.total] {
                to.add(desc, blocks);
            }
            self.tallies.append([tally]);
            self.inode_tables.append([desc.inode_table]);
        }
        // How many there are is read from these: they come last.
        let slots = descs.iter().map(|desc| Mutex::new(Slot::new(*desc)));
        self.slots.append(slots);
        self.find_system_zone(geometry, first as usize);
    }

    /// Makes a group's block bitmap up now if it was never written, as the group is at present.
    ///
    /// # Errors
    /// Those of reading the bitmap.
    pub(crate) fn make_block_bitmap(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        group: GroupNr,
    ) -> Result<()> {
        self.mark(disk, edit, group, 0, 0, true)?;
        let desc = self.slots[group.0 as usize].lock().desc;
        let buffer = block_bitmap(disk, group, &desc, true)?;
        // Its padding is about to count, and other programs may have left it clear.
        let blocks = disk.geometry().blocks_in_group(group);
        edit.change(&buffer, Owner::of(Kind::Bitmap), |bytes| pad(bytes, blocks));
        Ok(())
    }
}

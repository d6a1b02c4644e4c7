//! Inodes taken by their number, and what is counted whenever one is taken.

use uext4_ondisk::group_desc::DescChecksum;
use uext4_ondisk::{Damage, GroupNr, Ino, Pblk};

use crate::alloc::bitmap;
use crate::alloc::groups::{Groups, Relaxed, Slot, inode_bitmap};
use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, Owner};
use uext4_support::bits::{all_are, get, set_range};

/// What is known of the block of the table that an inode lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableBlock {
    /// It may never have been written if no other inode of it is in use.
    Unknown,
    /// It was written: deleted inodes are in it.
    Written,
}

impl Groups {
    /// Takes the inode of this number, which must be free.
    pub(crate) fn take_inode_at(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        ino: Ino,
        directory: bool,
        block: TableBlock,
    ) -> Result<()> {
        let (group, index) = place(disk, ino)?;
        let geometry = disk.geometry();
        let per_group = geometry.inodes_per_group.get();
        let slot = &mut *self.slots[group.0 as usize].lock();
        let bitmap = inode_bitmap(disk, edit, group, slot)?;
        let (first, count) = block_mates(disk, index);
        let taken = edit.change(&bitmap, Owner::of(Kind::Bitmap), |bytes| {
            let fresh = block == TableBlock::Unknown
                && all_are(bytes, first, count.min(per_group - first), false);
            let free = !get(bytes, index);
            set_range(bytes, index, 1, true);
            free.then_some(FreeInode { index, fresh })
        });
        slot.inodes_changed = true;
        self.list(group, slot);
        match taken.filter(|_| slot.desc.free_inodes > 0) {
            Some(free) => {
                self.inode_taken(disk, edit, group, slot, free, directory);
                Ok(())
            }
            None => Err(Error::Corrupt(Damage::InodeField {
                ino,
                field: "bitmap",
                value: 1,
                why: "the inode is in use, or all of its group are",
            })),
        }
    }

    /// Counts an inode whose bit was just set, and answers its block of the table.
    pub(super) fn inode_taken(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        group: GroupNr,
        slot: &mut Slot,
        taken: FreeInode,
        directory: bool,
    ) -> Pblk {
        let FreeInode { index, fresh } = taken;
        let geometry = disk.geometry();
        let desc = &mut slot.desc;
        desc.free_inodes -= 1;
        desc.used_dirs += u32::from(directory);
        for tally in self.tallies(group) {
            tally.free_inodes.fetch_sub(1, Relaxed);
            tally.used_dirs.fetch_add(directory.into(), Relaxed);
        }
        if geometry.desc_checksum != DescChecksum::None {
            let behind = geometry.inodes_per_group.get() - (index + 1);
            desc.itable_unused = desc.itable_unused.min(behind);
        }
        let offset = u64::from(index) * u64::from(geometry.inode_size);
        let block = Pblk(desc.inode_table.0 + (offset >> geometry.block_size.log2()));
        if fresh {
            // Under the lock: the next inode of this block may be taken, and written, at once.
            let buffer = edit.fresh(block);
            edit.change(&buffer, Owner::of(Kind::InodeTable), |_| ());
        }
        block
    }
}

/// An inode of a group that is free, or was until now.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeInode {
    /// Its index in the group.
    pub(super) index: u32,
    /// No other inode of its block of the table is in use: the block may never have been written.
    pub(super) fresh: bool,
}

/// Group of an inode, and its index there.
fn place(disk: &Disk, ino: Ino) -> Result<(GroupNr, u32)> {
    let inodes_count = disk.geometry().inodes_count;
    let place = disk.geometry().inode_group(ino);
    place.ok_or(Error::Corrupt(Damage::InodeNumber {
        what: "inode to be taken",
        ino,
        inodes_count,
    }))
}

/// The inodes that share a block of the table: the first one's index, and how many.
pub(super) fn block_mates(disk: &Disk, index: u32) -> (u32, u32) {
    let geometry = disk.geometry();
    let per_block = (geometry.block_size.bytes() / u32::from(geometry.inode_size)).max(1);
    (index - index % per_block, per_block)
}

/// Whether an inode is in use, by the bitmap as it is stored.
pub(crate) fn is_inode_used(disk: &Disk, ino: Ino) -> Result<bool> {
    let (group, index) = place(disk, ino)?;
    Ok(get(&bitmap::inode_bitmap(disk, group)?, index))
}

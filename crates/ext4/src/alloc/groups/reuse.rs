//! Free inodes by a bitmap that may be wrong: an inode that is in use by its own fields, or in
//! memory, is not allocated again.

use uext4_ondisk::group_desc::{DescChecksum, GroupDesc};
use uext4_ondisk::inode::{FileType, RawInode, inode_checksum, stored_checksum};
use uext4_ondisk::{Damage, GroupNr, Ino, Pblk};

use super::numbered::{FreeInode, block_mates};
use super::{Groups, Relaxed, Slot};
use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, tag};
use uext4_support::bits::{all_are, next_zero};

impl Groups {
    /// Sets a group aside whose inode bitmap is wrong: none of its inodes is allocated any more,
    /// as in the kernel. Returns the error to report.
    pub(super) fn distrust_inodes(&self, group: GroupNr, slot: &mut Slot, damage: Damage) -> Error {
        if !slot.inodes_bad {
            slot.inodes_bad = true;
            let [own, flex, all] = self.tallies(group);
            let free = own.free_inodes.swap(0, Relaxed);
            for tally in [flex, all] {
                tally.free_inodes.fetch_sub(free, Relaxed);
            }
        }
        _ = self.bad_inodes.set(damage.clone());
        Error::Corrupt(damage)
    }

    /// An inode that was just allocated is in use in memory: its group is set aside. Returns the
    /// error to report.
    pub(crate) fn in_use_in_memory(&self, disk: &Disk, ino: Ino) -> Error {
        let damage = Damage::InodeField {
            ino,
            field: "bitmap",
            value: 0,
            why: "the inode is in use, but the inode bitmap calls it free",
        };
        let Some((group, _)) = disk.geometry().inode_group(ino) else {
            return Error::Corrupt(damage);
        };
        let slot = &mut *self.slots[group.0 as usize].lock();
        self.distrust_inodes(group, slot, damage)
    }

    /// The error where no group has a free inode: the damage, if a group was set aside.
    pub(super) fn none_left(&self, count: u32) -> Error {
        match self.bad_inodes.get() {
            Some(damage) => Error::Corrupt(damage.clone()),
            None => Error::NoInodes { count },
        }
    }
}

/// Chooses the first free inode from index `from` on. With `distrusts`, the inode's own fields must
/// not say that it is in use.
pub(super) fn choose(
    disk: &Disk,
    group: GroupNr,
    slot: &Slot,
    bitmap: &[u8],
    from: u32,
    distrusts: bool,
) -> Result<FreeInode> {
    let per_group = disk.geometry().inodes_per_group.get();
    let index = next_zero(bitmap, from, per_group).ok_or(Damage::BitmapCount {
        group,
        what: "inode bitmap",
        bitmap: 0,
        descriptor: slot.desc.free_inodes,
    })?;
    let (first, count) = block_mates(disk, index);
    let count = count.min(per_group - first);
    let fresh = all_are(bitmap, first, count, false);
    if !distrusts || is_never_used(disk, &slot.desc, first) {
        return Ok(FreeInode { index, fresh });
    }
    let geometry = disk.geometry();
    let size = usize::from(geometry.inode_size);
    let table = slot.desc.inode_table;
    let at = Pblk(table.0 + ((u64::from(index) * size as u64) >> geometry.block_size.log2()));
    let end = Pblk(table.0 + u64::from(geometry.itable_blocks()));
    disk.read_itable_ahead(at, table, end);
    let buffer = disk.bread("inode table", at, tag(Kind::InodeTable), |_| Ok(()))?;
    let data = buffer.data();
    let number = |index: u32| Ino(group.0 * per_group + index + 1);
    let links = |index: u32| {
        let at = (index - first) as usize * size;
        let bytes = data.get(at..at + size).unwrap_or_default();
        links_in_use(disk, number(index), bytes)
    };
    if let Some(links) = links(index) {
        return Err(Error::Corrupt(Damage::InodeField {
            ino: number(index),
            field: "i_links_count",
            value: links.into(),
            why: "the inode is in use, but the inode bitmap calls it free",
        }));
    }
    let fresh = fresh && (first..first + count).all(|mate| links(mate).is_none());
    Ok(FreeInode { index, fresh })
}

/// Whether no inode from this index on was ever used, by the descriptor.
fn is_never_used(disk: &Disk, desc: &GroupDesc, index: u32) -> bool {
    let per_group = disk.geometry().inodes_per_group.get();
    disk.geometry().desc_checksum != DescChecksum::None
        && index >= per_group.saturating_sub(desc.itable_unused)
}

/// The links of an inode that is in use by its own fields. What has a wrong checksum is none.
fn links_in_use(disk: &Disk, ino: Ino, bytes: &[u8]) -> Option<u16> {
    let raw = RawInode::parse(bytes, ino).ok()?;
    let links = Some(raw.i_links_count.get()).filter(|links| *links > 0)?;
    FileType::from_mode(raw.i_mode.get())?;
    let generation = raw.i_generation.get();
    let is_sound = disk
        .geometry()
        .csum_seed
        .is_none_or(|seed| stored_checksum(bytes) == inode_checksum(bytes, seed, ino, generation));
    is_sound.then_some(links)
}

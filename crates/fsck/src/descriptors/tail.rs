//! Inodes in use at the end of a table that the descriptor says was never used.
//!
//! A descriptor whose checksum holds may still say so of too many: nothing behind that place is
//! read then, and the names that lead there would lead to nothing. The bitmap knows better, if it
//! is the one that the descriptor counts, or if the table was zeroed. Of a table that was not, what
//! a damaged bitmap marks may be an inode of an older file system.

use uext4_ondisk::group_desc::{BG_INODE_UNINIT, BG_INODE_ZEROED};
use uext4_ondisk::inode::{FileType, RawInode, inode_checksum, stored_checksum};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino};

use super::proofs::holds_bitmap;
use crate::error::Result;
use crate::fixed_places::MetadataOwner;
use crate::volume::{Volume, generation};

/// How many inodes of a group, from its first on, must be read for all that are in use, if that
/// is more than the descriptor says.
///
/// # Errors
/// Of the device and of the overlay.
pub fn used_behind(volume: &Volume, group: GroupNr) -> Result<Option<u32>> {
    let geometry = volume.geometry();
    let desc = volume.group(group);
    let place = desc.inode_bitmap;
    let is_there = desc.flags & BG_INODE_UNINIT == 0 && geometry.may_place(group, place, 1);
    if !is_there || desc.itable_unused == 0 {
        return Ok(None);
    }
    let per_group = geometry.inodes_per_group.get();
    let mut bits = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(place, &mut bits)?;
    let is_marked = |bit: &u32| {
        let byte = bits.get(index(bit / 8));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
    };
    let ever_used = volume.inodes_ever_used(group);
    let marked: Vec<u32> = (ever_used..per_group).filter(is_marked).collect();
    let owner = MetadataOwner::InodeBitmap(group);
    let is_zeroed = desc.flags & BG_INODE_ZEROED != 0;
    if marked.is_empty() || !(is_zeroed || holds_bitmap(volume, owner, &desc, place)?) {
        return Ok(None);
    }
    for &bit in marked.iter().rev() {
        if is_in_use(volume, group, bit)? {
            return Ok(Some(bit.saturating_add(1)));
        }
    }
    Ok(None)
}

/// Whether an inode of a group, counted from 0, is one of a file: it has links and a type, and its
/// checksum holds where there are checksums.
fn is_in_use(volume: &Volume, group: GroupNr, bit: u32) -> Result<bool> {
    let geometry = volume.geometry();
    let table = volume.group(group).inode_table;
    if !geometry.may_place(group, table, geometry.itable_blocks().into()) {
        return Ok(false);
    }
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let ino = Ino(first.saturating_add(bit).saturating_add(1));
    let size = u64::from(geometry.inode_size);
    let mut bytes = vec![0; usize::from(geometry.inode_size)];
    let offset = (table.0 << geometry.block_size.log2()) + u64::from(bit) * size;
    volume.overlay().read_at(offset, &mut bytes)?;
    if let Some(seed) = geometry.csum_seed
        && stored_checksum(&bytes) != inode_checksum(&bytes, seed, ino, generation(&bytes))
    {
        return Ok(false);
    }
    Ok(RawInode::parse(&bytes, ino).is_ok_and(|raw| {
        raw.i_links_count.get() != 0 && FileType::from_mode(raw.i_mode.get()).is_some()
    }))
}

#[cfg(test)]
mod tests {
    use uext4_testkit::e2fsprogs::debugfs;

    use crate::tests::TestImage;

    #[test]
    fn files_behind_a_table_that_is_said_to_end_before_them_are_kept() {
        for kind in [
            "-t ext4 -N 64",
            "-t ext4 -N 64 -O ^metadata_csum,uninit_bg",
            "-t ext4 -N 64 -E lazy_itable_init=1",
        ] {
            let image = TestImage::new(kind, "8M");
            for file in 0..10 {
                image.file(&format!("f{file}"), b"contents");
            }
            // Inodes 12 to 16 of 64. Those of the other five are in the table's last 48, then.
            image.debugfs(&["rm f0", "rm f1", "rm f2", "rm f3", "rm f4"]);
            assert_eq!(image.found(), [""; 0], "{kind}");
            image.debugfs(&["set_bg 0 itable_unused 48", "set_bg 0 checksum calc"]);
            assert_eq!(image.repair(), ["group-table-unused-marked"], "{kind}");
            for file in 5..10 {
                let contents = debugfs(image.path(), &format!("cat f{file}"));
                assert_eq!(contents, "contents", "{kind}");
            }
        }
    }
}

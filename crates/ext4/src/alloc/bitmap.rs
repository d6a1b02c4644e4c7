//! Block and inode bitmaps, as they are or as they would be where they were never written.

use std::sync::Arc;

use uext4_buffer_cache::{Buffer, BufferCache};
use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, DescChecksum, GroupDesc, bitmap_checksum,
};
use uext4_ondisk::{Damage, GroupNr, Pblk};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, tag};

/// The clusters of a group, one bit each, set where in use; a block long. What lies past the end of
/// the group is set.
pub(crate) fn block_bitmap(disk: &Disk, group: GroupNr) -> Result<Arc<[u8]>> {
    let desc = disk.group_desc(group)?;
    if is_uninit(disk, &desc, BG_BLOCK_UNINIT) {
        return Ok(fresh_block_bitmap(disk, group, &desc).into());
    }
    let bits = disk.geometry().clusters_per_group.get();
    let stored = desc.block_bitmap_csum;
    let block = desc.block_bitmap;
    Ok(read_bitmap(disk, "block bitmap", group, block, bits, Some(stored))?.data())
}

/// The inodes of a group, one bit each, set where in use; a block long.
pub(crate) fn inode_bitmap(disk: &Disk, group: GroupNr) -> Result<Arc<[u8]>> {
    let desc = disk.group_desc(group)?;
    let bits = disk.geometry().inodes_per_group.get();
    if is_uninit(disk, &desc, BG_INODE_UNINIT) {
        let mut bitmap = vec![0; disk.block_len()];
        set_bits(&mut bitmap, bits, disk.block_len() as u32 * 8);
        return Ok(bitmap.into());
    }
    let stored = desc.inode_bitmap_csum;
    let block = desc.inode_bitmap;
    Ok(read_bitmap(disk, "inode bitmap", group, block, bits, Some(stored))?.data())
}

/// The flags count only where descriptors are summed.
pub(crate) fn is_uninit(disk: &Disk, desc: &GroupDesc, flag: u16) -> bool {
    disk.geometry().desc_checksum != DescChecksum::None && desc.flags & flag != 0
}

/// Brings bitmaps into the cache, those that follow one another in one request; what cannot be
/// read is left to any thread that needs it.
pub(crate) fn read_ahead(cache: &BufferCache, blocks: impl Iterator<Item = Pblk>) {
    let mut run = 0..0;
    for Pblk(block) in blocks {
        if block == run.end {
            run.end += 1;
            continue;
        }
        cache.readahead(Pblk(run.start), (run.end - run.start) as u32);
        run = block..block + 1;
    }
    cache.readahead(Pblk(run.start), (run.end - run.start) as u32);
}

/// Reads a bitmap of a group; its checksum, which is `stored` if that is still good, is over `bits`
/// bits.
pub(crate) fn read_bitmap(
    disk: &Disk,
    what: &'static str,
    group: GroupNr,
    block: Pblk,
    bits: u32,
    stored: Option<u32>,
) -> Result<Buffer> {
    let geometry = disk.geometry();
    if !geometry.may_place(group, block, 1) {
        return Err(Error::Corrupt(Damage::DescLocation { group, what, block }));
    }
    disk.bread(what, block, tag(Kind::Bitmap), |bytes| {
        let (Some(seed), Some(stored)) = (geometry.csum_seed, stored) else {
            return Ok(());
        };
        let summed = bytes.get(..(bits / 8) as usize).unwrap_or(bytes);
        let computed = bitmap_checksum(seed, summed, geometry.desc_size.into());
        if stored == computed {
            return Ok(());
        }
        Err(Damage::BitmapChecksum {
            group,
            what,
            stored,
            computed,
        })
    })
}

/// What the bitmap of a group without files would be: only the group's own metadata in use.
pub(crate) fn fresh_block_bitmap(disk: &Disk, group: GroupNr, desc: &GroupDesc) -> Vec<u8> {
    let geometry = disk.geometry();
    let mut bitmap = vec![0; disk.block_len()];
    let cluster_of = |offset: u32| offset >> geometry.cluster_bits;
    let base = geometry.group_base_blocks(group);
    if base > 0 {
        set_bits(&mut bitmap, 0, cluster_of(base - 1) + 1);
    }
    for (start, len) in [
        (desc.block_bitmap, 1),
        (desc.inode_bitmap, 1),
        (desc.inode_table, geometry.itable_blocks()),
    ] {
        if let Some((at, offset)) = geometry.group_of(start)
            && at == group
        {
            let last = offset.saturating_add(len - 1);
            set_bits(
                &mut bitmap,
                cluster_of(offset),
                cluster_of(last).saturating_add(1),
            );
        }
    }
    let clusters = geometry
        .blocks_in_group(group)
        .div_ceil(1 << geometry.cluster_bits);
    set_bits(&mut bitmap, clusters, disk.block_len() as u32 * 8);
    bitmap
}

/// Sets bits `from..to`; those past the bitmap do not matter.
fn set_bits(bitmap: &mut [u8], from: u32, to: u32) {
    for bit in from..to.min(bitmap.len() as u32 * 8) {
        if let Some(byte) = bitmap.get_mut(bit as usize / 8) {
            *byte |= 1 << (bit % 8);
        }
    }
}

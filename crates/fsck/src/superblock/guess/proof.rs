//! What a repair asks of a shape before it writes.
//!
//! To read files any guess is good enough. A repair by a wrong shape destroys what is left: with
//! too few groups it cuts the end off, with too long inode tables it writes over files, and what
//! looks like a file system may be the rest of one that was here before. So all of this must be
//! true:
//!
//! - The descriptors belong to the shape: they lead to the root directory, what they name lies on
//!   the device, their checksums are right, and behind the last there is none.
//! - The bitmaps say how many blocks and inodes a group has. With checksums, which cover as many
//!   bits, one group is proof. Without, the zeroes must be as many as the descriptors count in the
//!   first and the last group, and the padding must begin where it has to.
//! - The block bitmap of the first group marks its own metadata.
//! - The end is certain: no group fits behind it, the last bitmap has its padding behind it, and
//!   its last block is free; or the old superblock says the same number of blocks.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc, bitmap_checksum};
use uext4_ondisk::num::{index, lo32};
use uext4_ondisk::{Geometry, GroupNr, Pblk};

use super::groups::inodes_in;
use crate::superblock::fit::{Fit, read_block};

/// Most groups of which bitmaps are read.
const GROUPS_MAX: u32 = 16;

/// Whether a shape is certain. `blocks` is the number of blocks that the old superblock says.
pub fn is_certain(device: &dyn BlockDevice, geometry: &Geometry, blocks: u64) -> bool {
    let fit = Fit::of(device, geometry);
    let fits = match geometry.csum_seed {
        Some(_) => !fit.is_doubtful(),
        None => fit.is_perfect(),
    };
    fits && !goes_on(device, geometry)
        && marks_metadata(device, geometry)
        && has_right_groups(device, geometry)
        && has_right_end(device, geometry, blocks)
}

fn read(device: &dyn BlockDevice, geometry: &Geometry, block: Pblk) -> Option<Vec<u8>> {
    read_block(device, geometry.block_size, block)
}

/// The descriptor in the place of a group's, also behind the last one.
fn descriptor(device: &dyn BlockDevice, geometry: &Geometry, group: u32) -> Option<GroupDesc> {
    let per_block = geometry.descs_per_block();
    let block = read(device, geometry, geometry.gdt_block(group / per_block))?;
    let size = usize::from(geometry.desc_size);
    let bytes = block.get(index(group % per_block) * size..)?.get(..size)?;
    Some(GroupDesc::parse(bytes))
}

/// Whether another descriptor follows the last one.
fn goes_on(device: &dyn BlockDevice, geometry: &Geometry) -> bool {
    if geometry.features.incompat.contains(Incompat::META_BG) {
        return false;
    }
    let next = descriptor(device, geometry, geometry.groups_count.get());
    // They may lie behind the end of a device that is cut off. A bitmap is no descriptor.
    next.is_some_and(|desc| {
        let places = [desc.block_bitmap, desc.inode_bitmap, desc.inode_table];
        places
            .iter()
            .all(|place| place.0 != 0 && lo32(place.0) != u32::MAX)
    })
}

/// Whether the block bitmap of the first group marks superblock, descriptors, bitmaps and table.
fn marks_metadata(device: &dyn BlockDevice, geometry: &Geometry) -> bool {
    let desc = descriptor(device, geometry, 0).unwrap_or_default();
    let bits = read(device, geometry, desc.block_bitmap).unwrap_or_default();
    let is_marked = |block: Pblk| match geometry.group_of(block) {
        Some((GroupNr(0), at)) => {
            let bit = at >> geometry.cluster_bits;
            let byte = bits.get(index(bit / 8));
            byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
        }
        // Of a flexible group some lie in others.
        _ => true,
    };
    let table = desc.inode_table.0..desc.inode_table.0 + u64::from(geometry.itable_blocks());
    let described = (0..geometry.gdt_blocks()).map(|at| geometry.gdt_block(at));
    let bitmaps = [desc.block_bitmap, desc.inode_bitmap];
    table
        .map(Pblk)
        .chain(described)
        .chain(bitmaps)
        .chain([geometry.superblock_block()])
        .all(is_marked)
}

/// What the bitmaps of a group say of its descriptor.
struct Compared {
    /// Both have their checksums.
    is_summed: bool,
    /// Both have as many zeroes as are counted, and the inode bitmap its padding where it must.
    is_counted: bool,
}

/// Whether the bitmaps show how many blocks and inodes a group has.
fn has_right_groups(device: &dyn BlockDevice, geometry: &Geometry) -> bool {
    let last = geometry.groups_count.get() - 1;
    let step = (last / GROUPS_MAX).max(1);
    let groups = (0..last).step_by(index(step)).take(index(GROUPS_MAX));
    let mut groups = groups.chain([last]);
    if geometry.csum_seed.is_some() {
        return groups.any(|group| {
            let compared = compare(device, geometry, GroupNr(group));
            compared.is_some_and(|compared| compared.is_summed)
        });
    }
    [0, last].into_iter().all(|group| {
        let compared = compare(device, geometry, GroupNr(group));
        compared.is_some_and(|compared| compared.is_counted)
    })
}

/// `None` of a group that cannot be read, or whose bitmaps were never written.
fn compare(device: &dyn BlockDevice, geometry: &Geometry, group: GroupNr) -> Option<Compared> {
    let desc = descriptor(device, geometry, group.0)?;
    if desc.flags & (BG_BLOCK_UNINIT | BG_INODE_UNINIT) != 0 {
        return None;
    }
    let block_bits = read(device, geometry, desc.block_bitmap)?;
    let inode_bits = read(device, geometry, desc.inode_bitmap)?;
    let clusters = clusters_in(geometry, group);
    let summed = block_bits.get(..index(geometry.clusters_per_group.get() / 8))?;
    let inodes = inode_bits.get(..index(geometry.inodes_per_group.get() / 8))?;
    let size = usize::from(geometry.desc_size);
    let is_summed = geometry.csum_seed.is_some_and(|seed| {
        bitmap_checksum(seed, summed, size) == desc.block_bitmap_csum
            && bitmap_checksum(seed, inodes, size) == desc.inode_bitmap_csum
    });
    let unit = (geometry.block_size.bytes() / u32::from(geometry.inode_size)).max(8);
    let is_padded = match group {
        GroupNr(0) => inodes_in(&inode_bits, unit) == Some(geometry.inodes_per_group.get()),
        // Only the first group has reserved inodes.
        _ => inode_bits[inodes.len()..].iter().all(|&byte| byte == 0xFF),
    };
    let is_counted = zeroes(&block_bits, clusters) == desc.free_clusters
        && zeroes(inodes, geometry.inodes_per_group.get()) == desc.free_inodes;
    Some(Compared {
        is_summed,
        is_counted: is_counted && is_padded,
    })
}

fn clusters_in(geometry: &Geometry, group: GroupNr) -> u32 {
    let blocks = geometry.blocks_in_group(group);
    blocks.div_ceil(1 << geometry.cluster_bits)
}

/// How many of the first bits are zero.
fn zeroes(bits: &[u8], count: u32) -> u32 {
    let whole = bits.get(..index(count / 8)).unwrap_or(bits);
    let whole: u32 = whole.iter().map(|byte| byte.count_zeros()).sum();
    let rest = bits.get(index(count / 8)).copied().unwrap_or(0xFF);
    whole + (!rest & ((1 << (count % 8)) - 1) as u8).count_ones()
}

/// Whether the file system ends where the shape says it.
fn has_right_end(device: &dyn BlockDevice, geometry: &Geometry, blocks: u64) -> bool {
    if blocks == geometry.blocks_count {
        return true;
    }
    let last = GroupNr(geometry.groups_count.get() - 1);
    let behind = (device.len() >> geometry.block_size.log2()).checked_sub(geometry.blocks_count);
    let Some(desc) = descriptor(device, geometry, last.0) else {
        return false;
    };
    let Some(bits) = read(device, geometry, desc.block_bitmap) else {
        return false;
    };
    let is_written = desc.flags & BG_BLOCK_UNINIT == 0;
    let clusters = clusters_in(geometry, last);
    let all = u32::try_from(bits.len()).unwrap_or(0).saturating_mul(8);
    let is_padded = zeroes(&bits, all) == zeroes(&bits, clusters);
    let ends_free = zeroes(&bits, clusters) != zeroes(&bits, clusters.saturating_sub(1));
    behind.is_some_and(|behind| behind < geometry.blocks_per_group.get().into())
        && is_written
        && is_padded
        && ends_free
}

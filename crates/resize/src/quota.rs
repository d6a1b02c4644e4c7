//! What inodes own, as the inode and the quota files count it.

use uext4_ondisk::Geometry;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{InodeFlags, RawInode};
use uext4_ondisk::num::{hi32, join32, lo16, lo32};

use crate::batch::Batch;
use crate::{Error, Result};

/// Sectors of a block, as a shift; 0 where `i_blocks` counts blocks.
fn unit_bits(geometry: &Geometry, raw: &RawInode) -> u32 {
    let is_huge = geometry.features.ro_compat.contains(RoCompat::HUGE_FILE)
        && InodeFlags::from_bits_retain(raw.i_flags.get()).contains(InodeFlags::HUGE_FILE);
    match is_huge {
        true => 0,
        false => geometry.block_size.log2() - 9,
    }
}

fn counted(geometry: &Geometry, raw: &RawInode) -> u64 {
    match geometry.features.ro_compat.contains(RoCompat::HUGE_FILE) {
        true => join32(raw.i_blocks_lo, raw.i_blocks_high),
        false => raw.i_blocks_lo.get().into(),
    }
}

/// Blocks that an inode owns, at most those of the file system.
pub fn blocks_of(geometry: &Geometry, raw: &RawInode) -> u64 {
    let blocks = counted(geometry, raw) >> unit_bits(geometry, raw);
    blocks.min(geometry.blocks_count)
}

/// Counts further clusters, or fewer, as the inode's.
///
/// # Errors
/// [`Error::Unsupported`] where quota files would have to count them too.
pub fn charge_clusters(batch: &Batch<'_>, raw: &mut RawInode, clusters: i64) -> Result<()> {
    if clusters == 0 {
        return Ok(());
    }
    let geometry = batch.geometry();
    if geometry.features.ro_compat.contains(RoCompat::QUOTA) {
        let what = "quota files, where moving the blocks of a file changes how many it has; \
                    clear the feature quota with `uext4 tune` first, and set it again afterwards";
        return Err(Error::Unsupported { what });
    }
    add_clusters(geometry, raw, clusters);
    Ok(())
}

/// Counts further clusters, or fewer, as those of an inode that no quota counts.
pub fn add_clusters(geometry: &Geometry, raw: &mut RawInode, clusters: i64) {
    let blocks = clusters << geometry.cluster_bits;
    let delta = blocks << unit_bits(geometry, raw);
    let now = counted(geometry, raw).saturating_add_signed(delta);
    raw.i_blocks_lo = lo32(now).into();
    if geometry.features.ro_compat.contains(RoCompat::HUGE_FILE) {
        raw.i_blocks_high = lo16(hi32(now)).into();
    }
}

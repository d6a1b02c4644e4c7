//! The last transaction: groups that nothing uses any more go.

use std::sync::Arc;

use uext4_blockdev::Clock;
use uext4_ondisk::features::Compat;
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, DescChecksum};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr, Pblk};
use uext4_support::bits;

use crate::changes::Changes;
use crate::grow::put_backups;
use crate::metadata::Metadata;
use crate::state::State;
use crate::transaction::{self, Recovery};
use crate::{Error, Result, descriptors, resize_inode};

/// Makes `superblock`, whose counts are not right yet, that of the file system.
///
/// # Errors
/// [`Error::Unsound`] if something that is in use would go; those of the journal and the device.
pub fn fewer_groups(
    state: &State,
    clock: &Arc<dyn Clock>,
    mut superblock: SuperBlock,
) -> Result<()> {
    let old = &state.geometry;
    let new = &Geometry::new(&superblock)?;
    let all = Metadata::of(state, old, old.groups_count.get())?;
    must_be_unused(state, new, &all)?;
    let mut changes = Changes::new(state, new);
    free_descriptors(&mut changes)?;
    free_tables(&mut changes)?;
    cut_last_group(&mut changes)?;
    if old.features.compat.contains(Compat::RESIZE_INODE) {
        resize_inode::update(&mut changes)?;
    }
    changes.desc(GroupNr(new.groups_count.get() - 1))?;
    descriptors::put(&mut changes)?;
    let (mut clusters, mut inodes) = (0, 0);
    for group in (0..new.groups_count.get()).map(GroupNr) {
        let desc = *changes.desc(group)?;
        clusters += u64::from(desc.free_clusters);
        inodes += desc.free_inodes;
    }
    superblock.set_free_blocks_count(clusters << new.cluster_bits);
    superblock.s_free_inodes_count = inodes.into();
    // The next mount counts anew.
    superblock.s_overhead_clusters = 0.into();
    superblock.update_checksum();
    put_backups(&mut changes, &superblock)?;
    transaction::commit(
        state,
        clock,
        &changes.inside,
        &superblock,
        Recovery::NotByKernel,
    )
}

/// Fails if what goes holds anything but metadata of groups.
fn must_be_unused(state: &State, new: &Geometry, all: &Metadata) -> Result<()> {
    let old = &state.geometry;
    let bits = old.cluster_bits;
    let first = u64::from(old.first_data_block);
    let from = (new.blocks_count - first) >> bits;
    let mut used = 0;
    let last = new.groups_count.get() - 1;
    for group in (last..old.groups_count.get()).map(GroupNr) {
        let start = (old.group_start(group).0 - first) >> bits;
        let skip = from.saturating_sub(start).min(u32::MAX.into()) as u32;
        let bitmap = state.image.block_bitmap(group)?;
        let clusters = old.blocks_in_group(group).div_ceil(1 << bits);
        used += (skip..clusters)
            .filter(|&bit| bits::get(&bitmap, bit))
            .count() as u64;
    }
    let stays = Metadata::of(state, old, new.groups_count.get())?;
    if stays.count(from, u64::MAX) != 0 {
        let what = "bitmaps or tables of groups that stay lie past the new end";
        return Err(Error::Unsupported { what });
    }
    let what = "blocks past the new end are in use by no file";
    if used != all.count(from, u64::MAX) {
        return Err(Error::Unsound { what });
    }
    for group in going(old, new) {
        let desc = state.desc(group)?;
        let is_uninit =
            old.desc_checksum != DescChecksum::None && desc.flags & BG_INODE_UNINIT != 0;
        let per_group = old.inodes_per_group.get();
        let is_free = is_uninit || {
            let bitmap = state.image.inode_bitmap(group)?;
            bits::all_are(&bitmap, 0, per_group, false)
        };
        if !is_free || desc.free_inodes != per_group {
            let what = "inodes past the new end are in use";
            return Err(Error::Unsound { what });
        }
    }
    Ok(())
}

/// Blocks of descriptors that are not reserved for growing again are free.
fn free_descriptors(changes: &mut Changes<'_>) -> Result<()> {
    let (old, new) = (changes.state.geometry.clone(), changes.geometry);
    let ratio = 1 << old.cluster_bits;
    let per_group = u64::from(old.clusters_per_group.get());
    let stays = Metadata::of(changes.state, new, new.groups_count.get())?;
    for group in (0..new.groups_count.get()).map(GroupNr) {
        let (from, to) = (new.group_base_blocks(group), old.group_base_blocks(group));
        let end = old.blocks_in_group(group).div_ceil(ratio);
        for cluster in from / ratio..to.div_ceil(ratio) {
            // The first and the last may hold other metadata, too.
            if !stays.holds(u64::from(group.0) * per_group + u64::from(cluster)) {
                changes.free_clusters(group, cluster, cluster + 1, end)?;
            }
        }
    }
    Ok(())
}

/// Bitmaps and tables of groups that go, where they lie in what stays.
fn free_tables(changes: &mut Changes<'_>) -> Result<()> {
    let (state, old) = (changes.state, &changes.state.geometry);
    let new = changes.geometry;
    let stays = Metadata::of(state, new, new.groups_count.get())?;
    let limit = changes.geometry.blocks_count;
    let bits = old.cluster_bits;
    for group in going(old, changes.geometry) {
        let desc = state.desc(group)?;
        let table = u64::from(old.itable_blocks());
        for (start, len) in [
            (desc.block_bitmap, 1),
            (desc.inode_bitmap, 1),
            (desc.inode_table, table),
        ] {
            let mut block = start.0;
            let end = start.0.saturating_add(len).min(limit);
            while block < end {
                let Some((holder, offset)) = old.group_of(Pblk(block)) else {
                    break;
                };
                let cluster = (block - u64::from(old.first_data_block)) >> bits;
                let to = offset >> bits;
                if !stays.holds(cluster) {
                    let whole = old.blocks_in_group(holder).div_ceil(1 << bits);
                    changes.free_clusters(holder, to, to + 1, whole)?;
                }
                block = (block >> bits << bits) + (1 << bits);
            }
        }
    }
    Ok(())
}

/// The bitmap of the group that is the last one is written, and ends with it.
fn cut_last_group(changes: &mut Changes<'_>) -> Result<()> {
    let new = changes.geometry;
    let last = GroupNr(new.groups_count.get() - 1);
    let count = |geometry: &Geometry| {
        geometry
            .blocks_in_group(last)
            .div_ceil(1 << geometry.cluster_bits)
    };
    let end = count(new);
    let old = &changes.state.geometry;
    // That of the last group is there, even if nothing was ever written to it.
    let is_there = old.desc_checksum == DescChecksum::None
        || changes.state.desc(last)?.flags & BG_BLOCK_UNINIT == 0;
    if count(old) == end && is_there {
        return Ok(());
    }
    changes.free_clusters(last, 0, 0, end)?;
    let at = changes.desc(last)?.block_bitmap;
    let bitmap = changes.edit(at)?;
    let free = (0..end).filter(|&bit| !bits::get(bitmap, bit)).count();
    changes.desc(last)?.free_clusters = free as u32;
    Ok(())
}

/// Groups that go, of a file system of the shape `old`.
fn going(old: &Geometry, new: &Geometry) -> impl Iterator<Item = GroupNr> + use<> {
    (new.groups_count.get()..old.groups_count.get()).map(GroupNr)
}

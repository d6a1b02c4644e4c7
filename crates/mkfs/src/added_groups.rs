//! Groups that follow those of a file system that is there: what growing adds.
//!
//! They are laid out as [`layout`](crate::layout()) lays out all groups: in flex groups where the
//! file system has them, though none of their structures goes to a group that was there before.

use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr, Pblk};

use crate::bitmaps::{block_bitmap, inode_bitmap};
use crate::layout::summarize_group;
use crate::plan::Plan;
use crate::shape::LAST_GROUP_MIN_FREE;
use crate::space::Run;
use crate::{Error, groups};

/// Groups that were added, empty.
#[derive(Clone, Debug, Default)]
pub struct AddedGroups {
    /// Their descriptors, as they will be but for their own checksums.
    pub groups: Vec<GroupDesc>,
    /// The bitmaps that must be written.
    pub bitmaps: Vec<(Pblk, Vec<u8>)>,
    /// Clusters that their metadata takes.
    pub overhead: u64,
}

/// Lays out the groups from `first` (at least 1) on of a file system that has the shape `geometry`
/// with them. `tables_zeroed` says that their inode tables read as zeroes; else the caller writes
/// zeroes, where the descriptors have no flags to leave that to the kernel.
///
/// # Errors
/// [`Error::NoSpace`] for a structure that does not fit.
pub fn added_groups(
    superblock: &SuperBlock,
    geometry: &Geometry,
    first: u32,
    tables_zeroed: bool,
) -> Result<AddedGroups, Error> {
    let mut plan = Plan::new(geometry.clone(), *superblock, 0);
    let start = u64::from(geometry.first_data_block);
    let end = geometry.group_start(GroupNr(first)).0;
    plan.space.mark(Run {
        start,
        len: end.saturating_sub(start),
    });
    groups::place_further(&mut plan, first)?;
    let mut added = AddedGroups::default();
    for group in (first..geometry.groups_count.get()).map(GroupNr) {
        let index = group.0 as usize;
        summarize_group(&mut plan, index, tables_zeroed);
        let desc = plan.groups[index];
        if desc.flags & BG_BLOCK_UNINIT == 0 {
            let bits = block_bitmap(geometry, &plan.space, group);
            added.bitmaps.push((desc.block_bitmap, bits));
        }
        if desc.flags & BG_INODE_UNINIT == 0 {
            let bits = inode_bitmap(geometry, 0);
            added.bitmaps.push((desc.inode_bitmap, bits));
        }
        let clusters = geometry
            .blocks_in_group(group)
            .div_ceil(1 << geometry.cluster_bits);
        added.overhead += u64::from(clusters.saturating_sub(desc.free_clusters));
        added.groups.push(desc);
    }
    Ok(added)
}

/// `blocks`, or where the last group would not hold its metadata and a little more, the blocks
/// without it. `geometry` is any of the same file system; whole clusters are counted.
pub fn without_short_group(geometry: &Geometry, blocks: u64) -> u64 {
    let whole = blocks >> geometry.cluster_bits << geometry.cluster_bits;
    let first = u64::from(geometry.first_data_block);
    let per_group = u64::from(geometry.blocks_per_group.get());
    let in_last = whole.saturating_sub(first) % per_group;
    let last = GroupNr(u32::try_from(whole.saturating_sub(first) / per_group).unwrap_or(u32::MAX));
    let descriptors = geometry.gdt_blocks() + u32::from(geometry.reserved_gdt_blocks);
    let copies = match geometry.has_super(last) {
        true => 1 + u64::from(descriptors),
        false => 0,
    };
    let need = 2 + u64::from(geometry.itable_blocks()) + copies + LAST_GROUP_MIN_FREE;
    match in_last > 0 && in_last < need {
        true => whole - in_last,
        false => whole,
    }
}

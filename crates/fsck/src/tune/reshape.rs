//! Inodes and descriptors of another size: what grows gets another place, or the place of what
//! lies behind it.
//!
//! ```text
//! superblock, descriptors ─▶ │ bitmaps, tables    in the way: copied to free blocks
//!                            │ blocks of files    in the way: refused
//!
//! inodes of 128 bytes ─copied to free blocks─▶ inodes of 256 bytes
//! ```
//! Bitmaps and tables may lie anywhere with `flex_bg`, and elsewhere in their group. Everything is
//! changed in the overlay; the passes then work out the bitmaps, the counts and inode 7 anew.

use std::collections::BTreeSet;
use std::ops::Range;

use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::{BG_INODE_ZEROED, DescChecksum, GroupDesc};
use uext4_ondisk::inode::update_checksum;
use uext4_ondisk::num::index;
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};

use super::change::refused;
use crate::clusters::ClusterSet;
use crate::error::Result;
use crate::fixed_places::{MetadataOwner, for_each_metadata};
use crate::make::ASKED_FOR;
use crate::volume::{Volume, generation};

/// Moves in the overlay what must move for a file system of the shape `after`; `groups` gets the
/// new places. What is in use, and becomes so, is added to `used`.
///
/// # Errors
/// [`crate::Error::Refused`] if there is no place for it; of the device and of the overlay.
pub fn run(
    volume: &Volume,
    after: &Geometry,
    used: &ClusterSet,
    groups: &mut [GroupDesc],
) -> Result<()> {
    let before = volume.geometry();
    let is_other_inode = before.inode_size != after.inode_size;
    let is_other_desc = before.desc_size != after.desc_size;
    let mut moving = Vec::new();
    if is_other_desc {
        moving = in_the_way(before, after, used, groups)?;
    }
    if is_other_inode {
        moving.retain(|owner| owner.is_bitmap());
        moving
            .extend((0..after.groups_count.get()).map(|nr| MetadataOwner::InodeTable(GroupNr(nr))));
    }
    for owner in moving {
        relocate(volume, after, used, groups, owner)?;
    }
    if is_other_desc {
        let zeroes = vec![0; after.block_size.len()];
        for at in 0..after.gdt_blocks() {
            let block = after.gdt_block(at);
            volume.overlay().replace(block, ASKED_FOR, &zeroes)?;
        }
    }
    Ok(())
}

/// The blocks behind the descriptors of each group that the larger ones take.
fn grown(before: &Geometry, after: &Geometry) -> impl Iterator<Item = Range<u64>> {
    (0..after.groups_count.get()).map(GroupNr).map(|group| {
        let start = after.group_start(group).0;
        let end = |geometry: &Geometry| {
            let head = geometry.group_base_blocks(group);
            start.saturating_add(head.min(geometry.blocks_in_group(group)).into())
        };
        end(before)..end(after)
    })
}

/// The bitmaps and tables that lie where descriptors come to lie, whose blocks are added to `used`.
fn in_the_way(
    before: &Geometry,
    after: &Geometry,
    used: &ClusterSet,
    groups: &[GroupDesc],
) -> Result<Vec<MetadataOwner>> {
    let wanted: Vec<_> = grown(before, after)
        .filter(|blocks| !blocks.is_empty())
        .collect();
    let mut moving = Vec::new();
    if wanted.is_empty() {
        return Ok(moving);
    }
    let clusters_of = |blocks: &Range<u64>| {
        let len = blocks.end.saturating_sub(blocks.start);
        used.of_blocks(Pblk(blocks.start), len)
    };
    // With clusters, the rest of one that metadata has a block of is free, or other metadata's.
    let mut metadata = BTreeSet::new();
    for_each_metadata(before, groups, |owner, start, len| {
        let blocks = start.0..start.0.saturating_add(len);
        let clusters = clusters_of(&blocks);
        // They are in order.
        let at = wanted.partition_point(|wanted| clusters_of(wanted).end <= clusters.start);
        let near = wanted.iter().skip(at);
        let near = near.take_while(|wanted| clusters_of(wanted).start < clusters.end);
        let mut is_in_the_way = false;
        for wanted in near {
            metadata.extend(clusters_of(wanted).filter(|cluster| clusters.contains(cluster)));
            is_in_the_way |= wanted.start < blocks.end && blocks.start < wanted.end;
        }
        if is_in_the_way && !matches!(owner, MetadataOwner::Head(_)) {
            moving.push(owner);
        }
    });
    for block in wanted.iter().cloned().flatten() {
        let mut clusters = used.of_blocks(Pblk(block), 1);
        if used.contains_any(clusters.clone()) && !clusters.all(|at| metadata.contains(&at)) {
            return refused(format!(
                "the descriptors need block {block}, which is in use: `resize2fs -b IMAGE` moves \
                 files out of the way"
            ));
        }
    }
    for blocks in &wanted {
        used.add(clusters_of(blocks), |_| ());
    }
    Ok(moving)
}

/// Copies a bitmap or table to blocks that are free.
fn relocate(
    volume: &Volume,
    after: &Geometry,
    used: &ClusterSet,
    groups: &mut [GroupDesc],
    owner: MetadataOwner,
) -> Result<()> {
    let group = owner.group();
    let Some(desc) = groups.get_mut(index(group.0)) else {
        return Ok(());
    };
    let len = match owner.is_bitmap() {
        true => 1,
        false => after.itable_blocks().into(),
    };
    let to = free_run(after, used, group, len)?;
    let place = match owner {
        MetadataOwner::BlockBitmap(_) => &mut desc.block_bitmap,
        MetadataOwner::InodeBitmap(_) => &mut desc.inode_bitmap,
        MetadataOwner::InodeTable(_) => {
            copy_table(volume, after, group, to)?;
            if after.desc_checksum != DescChecksum::None {
                // What no inode was ever in is not written.
                desc.flags &= !BG_INODE_ZEROED;
            }
            &mut desc.inode_table
        }
        MetadataOwner::Head(_) => return Ok(()),
    };
    if owner.is_bitmap() {
        let mut bytes = vec![0; after.block_size.len()];
        volume.overlay().read_block(*place, &mut bytes)?;
        volume.overlay().replace(to, ASKED_FOR, &bytes)?;
    }
    *place = to;
    Ok(())
}

/// So many free blocks, in the group if they can be had there.
fn free_run(geometry: &Geometry, used: &ClusterSet, group: GroupNr, len: u64) -> Result<Pblk> {
    let blocks = geometry.blocks_in_group(group);
    let in_group = used.of_blocks(geometry.group_start(group), blocks.into());
    let clusters = len.div_ceil(1 << geometry.cluster_bits);
    let is_flexible = geometry.features.incompat.contains(Incompat::FLEX_BG);
    let found = used.take_run(in_group, clusters);
    let found = match is_flexible {
        true => found.or_else(|| used.take_run(0..used.clusters(), clusters)),
        false => found,
    };
    match found {
        Some(cluster) => Ok(used.first_block(cluster)),
        None if is_flexible => refused(format!(
            "{len} free blocks at one stretch are needed, and there are none: delete files, or \
             grow the file system by `uext4 grow IMAGE` first"
        )),
        None => refused(format!(
            "group {group} has no {len} free blocks at one stretch: with -O flex_bg besides, they \
             may lie in another group"
        )),
    }
}

/// Copies the inodes of a group to a table at `to`, whose inodes are as large or larger.
fn copy_table(volume: &Volume, after: &Geometry, group: GroupNr, to: Pblk) -> Result<()> {
    let before = volume.geometry();
    let per_block =
        |geometry: &Geometry| geometry.block_size.bytes() / u32::from(geometry.inode_size);
    let (from_per_block, to_per_block) = (per_block(before).max(1), per_block(after).max(1));
    let (old_len, len) = (
        usize::from(before.inode_size),
        usize::from(after.inode_size),
    );
    let used = volume.inodes_ever_used(group);
    let table = volume.group(group).inode_table;
    let first = group.0.saturating_mul(after.inodes_per_group.get());
    let blocks = match after.desc_checksum {
        DescChecksum::None => after.itable_blocks(),
        _ => used.div_ceil(to_per_block),
    };
    let (mut from, mut bytes) = (
        vec![0; after.block_size.len()],
        vec![0; after.block_size.len()],
    );
    let mut read = None;
    for at in 0..blocks {
        bytes.fill(0);
        let numbers = at.saturating_mul(to_per_block)..used;
        for (number, inode) in numbers.zip(bytes.chunks_exact_mut(len)) {
            let block = Pblk(table.0.saturating_add((number / from_per_block).into()));
            if read != Some(block) {
                volume.overlay().read_block(block, &mut from)?;
                read = Some(block);
            }
            let start = index(number % from_per_block).saturating_mul(old_len);
            let Some(old) = from.get(start..start.saturating_add(old_len)) else {
                continue;
            };
            inode[..old_len].copy_from_slice(old);
            let is_empty = old.iter().all(|&byte| byte == 0);
            if let (Some(seed), false) = (after.csum_seed, is_empty) {
                let ino = Ino(first.saturating_add(number).saturating_add(1));
                update_checksum(inode, seed, ino, generation(inode));
            }
        }
        let block = Pblk(to.0.saturating_add(at.into()));
        volume.overlay().replace(block, ASKED_FOR, &bytes)?;
    }
    Ok(())
}

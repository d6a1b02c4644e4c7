//! What lies in a place: whether it is the bitmap or the table that a descriptor should name.
//!
//! A place can be possible and wrong, in the middle of a file. Taken for a bitmap, the file's
//! block would be written over. So where a backup of the descriptors, or the order in which mke2fs
//! lays out a group, names another place, the contents of both decide: a bitmap has as many free
//! bits as its descriptor counts, and its checksum; of a table see `weight`. Of what was never
//! initialised contents say nothing: a backup with a right checksum decides, if the descriptor's
//! own is wrong or the usual order agrees. Nothing is read where all agree.

use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc, bitmap_checksum, desc_checksum,
};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Pblk};

use super::BadSum;
use super::places::{len_of, parts, place_of, usual};
use super::tables::{SEARCHED_MAX, holds_table, search};
use super::weight::weigh;
use crate::error::Result;
use crate::fixed_places::MetadataOwner;
use crate::volume::Volume;

/// The bitmaps and tables that lie elsewhere, by a backup or by the usual order.
pub(super) fn misplaced(
    volume: &Volume,
    groups: &[GroupDesc],
    bad_sums: &[BadSum],
) -> Result<Vec<MetadataOwner>> {
    let geometry = volume.geometry();
    let size = usize::from(geometry.desc_size);
    let mut bytes = vec![0; geometry.block_size.len()];
    let mut has_backup = false;
    let mut budget = SEARCHED_MAX;
    let mut wrong = Vec::new();
    for (group, desc) in (0..).map(GroupNr).zip(groups) {
        let at = group.0 % geometry.descs_per_block();
        if at == 0 {
            let mut copies = geometry.gdt_backups(group.0 / geometry.descs_per_block());
            let copy = copies.next().filter(|&copy| geometry.contains(copy, 1));
            has_backup = copy.is_some();
            if let Some(copy) = copy {
                volume.overlay().read_block(copy, &mut bytes)?;
            }
        }
        let copy = &bytes[index(at) * size..][..size];
        let mut other = GroupDesc::parse(copy);
        let is_right = other.checksum == desc_checksum(copy, group, geometry.desc_checksum);
        let sum = bad_sums.binary_search_by_key(&group, |bad| bad.group);
        let (by_backup, is_bad) = (has_backup && is_right, sum.is_ok());
        for part in parts(group) {
            let mut now = *desc;
            let Some(&mut now) = place_of(&mut now, part) else {
                continue;
            };
            let other = match has_backup {
                true if is_right => place_of(&mut other, part).copied(),
                true => None,
                false => usual(geometry, groups, part),
            };
            let is_possible = geometry.may_place(group, now, len_of(geometry, part));
            let is_first = part == MetadataOwner::InodeTable(GroupNr(0));
            let other = match other.filter(|&other| other != now) {
                // Without it there is no root.
                None if is_first && is_possible && !holds(volume, part, desc, now)? => {
                    search(volume, group, &mut budget, |_| true)?
                }
                other => other,
            };
            let Some(other) = other.filter(|&other| other != now) else {
                continue;
            };
            // Where contents say nothing, a right checksum or the usual order does.
            let is_usual = || usual(geometry, groups, part) == Some(other);
            let is_suspect = by_backup && !is_initialised(desc, part) && (is_bad || is_usual());
            if geometry.may_place(group, other, len_of(geometry, part))
                && is_possible
                && outweighs(volume, part, desc, [now, other], is_suspect)?
            {
                wrong.push(part);
            }
        }
    }
    Ok(wrong)
}

/// Whether more speaks for another place than for the present one, of `[now, other]`. One that
/// is suspect says nothing for itself.
fn outweighs(
    volume: &Volume,
    owner: MetadataOwner,
    desc: &GroupDesc,
    [now, other]: [Pblk; 2],
    is_suspect: bool,
) -> Result<bool> {
    if let MetadataOwner::InodeTable(group) = owner
        && !is_suspect
        && is_initialised(desc, owner)
    {
        return Ok(weigh(volume, group, other)?.outweighs(weigh(volume, group, now)?));
    }
    Ok((is_suspect || !holds(volume, owner, desc, now)?) && holds(volume, owner, desc, other)?)
}

/// Whether a place holds what it should, as its descriptor counts it. Of what was never
/// initialised nothing can be said: it counts as held.
fn holds(volume: &Volume, owner: MetadataOwner, desc: &GroupDesc, place: Pblk) -> Result<bool> {
    match owner {
        _ if !is_initialised(desc, owner) => Ok(true),
        MetadataOwner::Head(_) => Ok(true),
        MetadataOwner::InodeTable(group) => holds_table(volume, group, place),
        _ => holds_bitmap(volume, owner, desc, place),
    }
}

fn is_initialised(desc: &GroupDesc, owner: MetadataOwner) -> bool {
    let flag = match owner {
        MetadataOwner::Head(_) => 0,
        MetadataOwner::BlockBitmap(_) => BG_BLOCK_UNINIT,
        MetadataOwner::InodeBitmap(_) | MetadataOwner::InodeTable(_) => BG_INODE_UNINIT,
    };
    desc.flags & flag == 0
}

/// Whether a block holds a group's block bitmap or inode bitmap, as its descriptor counts it, even
/// if that says that it was never initialised.
pub fn holds_bitmap(
    volume: &Volume,
    owner: MetadataOwner,
    desc: &GroupDesc,
    place: Pblk,
) -> Result<bool> {
    let geometry = volume.geometry();
    let per_group = geometry.inodes_per_group.get();
    let (bits, summed, free, sum) = match owner {
        MetadataOwner::BlockBitmap(group) => (
            geometry
                .blocks_in_group(group)
                .div_ceil(1 << geometry.cluster_bits),
            geometry.clusters_per_group.get(),
            desc.free_clusters,
            desc.block_bitmap_csum,
        ),
        _ => (
            per_group,
            per_group,
            desc.free_inodes,
            desc.inode_bitmap_csum,
        ),
    };
    let mut bytes = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(place, &mut bytes)?;
    if let Some(seed) = geometry.csum_seed {
        let summed = bytes.get(..index(summed / 8)).unwrap_or(&bytes);
        return Ok(bitmap_checksum(seed, summed, geometry.desc_size.into()) == sum);
    }
    let is_free = |&bit: &u32| {
        let byte = bytes.get(index(bit / 8));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 0)
    };
    Ok((0..bits).filter(is_free).count() == index(free))
}

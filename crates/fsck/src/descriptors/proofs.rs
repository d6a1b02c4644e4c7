//! What lies in a place: whether it is the bitmap or the table that a descriptor should name.
//!
//! A place can be possible and wrong, in the middle of a file. Taken for a bitmap, the file's
//! block would be written over. So where a backup of the descriptors, or the order in which mke2fs
//! lays out a group, names another place, the contents of both decide: a bitmap has as many free
//! bits as its descriptor counts, and its checksum; a table begins with inodes. Nothing is read
//! where all agree.

use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc, bitmap_checksum, desc_checksum,
};
use uext4_ondisk::inode::{FileType, RawInode, inode_checksum, stored_checksum};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::can_be;
use super::places::{SEARCHED_MAX, len_of, parts, place_of, usual};
use crate::error::Result;
use crate::fixed_places::MetadataOwner;
use crate::volume::{Volume, generation};

/// Bytes that are read at a time in the search for a table.
const PIECE: u64 = 1 << 20;

/// The bitmaps and tables that lie elsewhere, by a backup or by the usual order.
pub(super) fn misplaced(volume: &Volume, groups: &[GroupDesc]) -> Result<Vec<MetadataOwner>> {
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
            let is_possible = can_be(geometry, group, now, len_of(geometry, part));
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
            if can_be(geometry, group, other, len_of(geometry, part))
                && is_possible
                && !holds(volume, part, desc, now)?
                && holds(volume, part, desc, other)?
            {
                wrong.push(part);
            }
        }
    }
    Ok(wrong)
}

/// Whether a place holds what it should, as its descriptor counts it. Of what was never
/// initialised nothing can be said: it counts as held.
fn holds(volume: &Volume, owner: MetadataOwner, desc: &GroupDesc, place: Pblk) -> Result<bool> {
    let geometry = volume.geometry();
    let (flag, bits, free, sum) = match owner {
        MetadataOwner::BlockBitmap(group) => (
            BG_BLOCK_UNINIT,
            geometry
                .blocks_in_group(group)
                .div_ceil(1 << geometry.cluster_bits),
            desc.free_clusters,
            desc.block_bitmap_csum,
        ),
        MetadataOwner::InodeBitmap(_) => (
            BG_INODE_UNINIT,
            geometry.inodes_per_group.get(),
            desc.free_inodes,
            desc.inode_bitmap_csum,
        ),
        MetadataOwner::InodeTable(group) if desc.flags & BG_INODE_UNINIT == 0 => {
            return looks_like_table(volume, group, place);
        }
        _ => return Ok(true),
    };
    if desc.flags & flag != 0 {
        return Ok(true);
    }
    let mut bytes = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(place, &mut bytes)?;
    if let Some(seed) = geometry.csum_seed {
        let summed = match owner {
            MetadataOwner::BlockBitmap(_) => geometry.clusters_per_group.get(),
            _ => bits,
        };
        let summed = bytes.get(..index(summed / 8)).unwrap_or(&bytes);
        return Ok(bitmap_checksum(seed, summed, geometry.desc_size.into()) == sum);
    }
    let is_free = |&bit: &u32| {
        let byte = bytes.get(index(bit / 8));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 0)
    };
    Ok((0..bits).filter(is_free).count() == index(free))
}

/// Whether the first inodes at a place are ones: known types or zeroes, and in group 0 the root.
pub(super) fn looks_like_table(volume: &Volume, group: GroupNr, at: Pblk) -> Result<bool> {
    let geometry = volume.geometry();
    let mut bytes = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(at, &mut bytes)?;
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let inodes = bytes.chunks_exact(geometry.inode_size.into());
    for (ino, inode) in (first.saturating_add(1)..).map(Ino).zip(inodes) {
        if inode.iter().all(|&byte| byte == 0) && ino != Ino::ROOT {
            continue;
        }
        let Ok(inode) = RawInode::parse(inode, ino) else {
            return Ok(false);
        };
        let file_type = FileType::from_mode(inode.i_mode.get());
        let right = match ino {
            Ino::ROOT => file_type == Some(FileType::Directory),
            _ => file_type.is_some() || ino.0 < geometry.first_ino,
        };
        if !right {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks for the table of a group that nothing names any more, in the blocks that its flexible
/// group may have. `None` if none is there for certain. `budget` is how many blocks may be read.
pub(super) fn search(
    volume: &Volume,
    group: GroupNr,
    budget: &mut u64,
    may_be: impl Fn(Pblk) -> bool,
) -> Result<Option<Pblk>> {
    let geometry = volume.geometry();
    let flex = geometry.log_groups_per_flex.min(31);
    let first = GroupNr(group.0 >> flex << flex);
    let start = geometry.group_start(first).0;
    let len = u64::from(geometry.blocks_per_group.get()) << flex;
    let end = start.saturating_add(len).min(geometry.blocks_count);
    let mut at = start;
    let mut bytes = vec![0; usize::try_from(PIECE).unwrap_or(0)];
    while at < end && *budget > 0 {
        let blocks = (PIECE >> geometry.block_size.log2())
            .min(end - at)
            .min(*budget);
        let piece = usize::try_from(blocks << geometry.block_size.log2()).unwrap_or(0);
        let piece = bytes.get_mut(..piece).unwrap_or_default();
        volume
            .overlay()
            .read_at(at << geometry.block_size.log2(), piece)?;
        for (block, bytes) in (at..)
            .map(Pblk)
            .zip(piece.chunks_exact(geometry.block_size.len()))
        {
            if begins_table(volume, group, bytes)? && may_be(block) {
                return Ok(Some(block));
            }
        }
        at += blocks;
        *budget -= blocks;
    }
    Ok(None)
}

/// Whether a block is the first one of a group's inode table for certain: its inodes have the
/// checksums of these numbers; without checksums, the root is there and leads to itself.
fn begins_table(volume: &Volume, group: GroupNr, bytes: &[u8]) -> Result<bool> {
    let geometry = volume.geometry();
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let inodes = bytes.chunks_exact(geometry.inode_size.into());
    let inodes = (first.saturating_add(1)..).map(Ino).zip(inodes);
    let Some(seed) = geometry.csum_seed else {
        return match group {
            GroupNr(0) => holds_root(volume, bytes),
            _ => Ok(false),
        };
    };
    let mut has_any = false;
    for (ino, inode) in inodes.filter(|(_, inode)| inode.iter().any(|&byte| byte != 0)) {
        if stored_checksum(inode) != inode_checksum(inode, seed, ino, generation(inode)) {
            return Ok(false);
        }
        has_any = true;
    }
    Ok(has_any)
}

fn holds_root(volume: &Volume, bytes: &[u8]) -> Result<bool> {
    let geometry = volume.geometry();
    let size = usize::from(geometry.inode_size);
    let root = bytes.get(size..size * 2);
    let root = root.and_then(|root| RawInode::parse(root, Ino::ROOT).ok());
    let is_root = |root: &RawInode| {
        FileType::from_mode(root.i_mode.get()) == Some(FileType::Directory)
            && root.i_links_count.get() > 1
    };
    let Some(map) = root
        .filter(is_root)
        .and_then(|root| crate::journal::Map::of(volume, &root))
    else {
        return Ok(false);
    };
    let Some(block) = map.blocks().next() else {
        return Ok(false);
    };
    let mut names = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(block, &mut names)?;
    // "." and its number.
    Ok(names.starts_with(&[2, 0, 0, 0, 12, 0, 1]) && names.get(8..9) == Some(b"."))
}

//! Inode 7, which owns the blocks that are reserved for descriptors.

use uext4_mkfs::resize_map;
use uext4_ondisk::indirect::number_at;
use uext4_ondisk::inode::{NDIR_BLOCKS, RawInode, update_checksum};
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};

use crate::changes::Changes;
use crate::{Error, Result};

/// Lets inode 7 own what the new shape reserves.
pub fn update(changes: &mut Changes<'_>) -> Result<()> {
    let geometry = changes.geometry;
    let map = resize_map(geometry, double(changes)?);
    for (block, bytes) in map.blocks {
        changes.put(block, bytes);
    }
    let sectors = map.owned << (geometry.block_size.log2() - 9);
    edit(changes, |bytes, seed| {
        let mut raw = RawInode::parse(bytes, Ino::RESIZE)?;
        raw.i_blocks_lo = (sectors as u32).into();
        raw.store(bytes);
        if let Some(seed) = seed {
            update_checksum(bytes, seed, Ino::RESIZE, raw.i_generation.get());
        }
        Ok(())
    })
}

/// Frees all that inode 7 owns, and clears it.
pub fn remove(changes: &mut Changes<'_>) -> Result<()> {
    let old = changes.state.geometry.clone();
    let double = double(changes)?;
    let ratio = 1 << old.cluster_bits;
    let free = |changes: &mut Changes<'_>, group: GroupNr, from: u32, to: u32| {
        // Clusters with blocks of others stay.
        let (from, to) = (from.div_ceil(ratio), to / ratio);
        let end = changes.geometry.blocks_in_group(group).div_ceil(ratio);
        changes.free_clusters(group, from, to, end)
    };
    if let Some((group, offset)) = old.group_of(double) {
        let first = offset / ratio * ratio;
        free(changes, group, first, first + ratio)?;
    }
    let groups: Vec<GroupNr> = old.backup_groups().collect();
    for group in [GroupNr(0)].into_iter().chain(groups) {
        let end = old.group_base_blocks(group);
        let reserved = u32::from(old.reserved_gdt_blocks);
        free(changes, group, end.saturating_sub(reserved), end)?;
    }
    edit(changes, |bytes, _| {
        bytes.fill(0);
        Ok(())
    })
}

/// The double indirect block, which is all that the inode maps.
fn double(changes: &Changes<'_>) -> Result<Pblk> {
    let bytes = changes.state.image.inode_bytes(Ino::RESIZE)?;
    let raw = RawInode::parse(&bytes, Ino::RESIZE)?;
    let double = number_at(&raw.i_block, NDIR_BLOCKS + 1);
    let old: &Geometry = &changes.state.geometry;
    let double = Pblk(double.into());
    // It is overwritten: another block than that of this inode must not be.
    let is_right = old.contains(double, 1) && {
        let right = resize_map(old, double).blocks.swap_remove(0);
        changes.state.block(double)? == right.1
    };
    let what = "the resize inode is damaged";
    is_right.then_some(double).ok_or(Error::Unsound { what })
}

/// Changes the bytes of the inode.
fn edit(
    changes: &mut Changes<'_>,
    f: impl FnOnce(&mut [u8], Option<uext4_ondisk::checksum::CsumSeed>) -> Result<()>,
) -> Result<()> {
    let geometry = changes.geometry;
    let (group, index) = geometry.inode_group(Ino::RESIZE).unwrap_or((GroupNr(0), 0));
    let table = changes.desc(group)?.inode_table;
    let len = usize::from(geometry.inode_size);
    let at = index as usize * len;
    let block = Pblk(table.0 + (at >> geometry.block_size.log2()) as u64);
    let at = at & (geometry.block_size.len() - 1);
    let bytes = changes.edit(block)?;
    f(&mut bytes[at..at + len], geometry.csum_seed)
}

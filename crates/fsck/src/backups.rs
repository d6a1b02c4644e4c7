//! The backups of the superblock and of the descriptors.
//!
//! No program reads them until they are needed, and by then it is too late to mend them. What
//! changes in daily use (counts, times, features that the kernel sets on its own) is not kept in
//! them, and differs; what a rescue would need does not: the shape, the UUID, the other features,
//! and the places of bitmaps and tables.

use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::num::{index, lo16};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::overlay::Overlay;
use crate::problem::{GroupProblem, SuperblockProblem};
use crate::report::{Cause, Findings};
use crate::volume::Volume;

/// Most copies of each block of descriptors that are read: without `sparse_super` every group has
/// one, and the pages read would be the square of the groups.
pub const COPIES_MAX: usize = 32;

/// Compares all backups with what the primary ones have become, and writes anew those that differ.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    superblocks(volume, findings)?;
    descriptors(volume, findings)
}

fn superblocks(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let geometry = volume.geometry();
    let primary = volume.superblock();
    let mut bytes = [0; 1024];
    for group in geometry.backup_groups() {
        let block = geometry.group_start(group);
        if !geometry.contains(block, 1) {
            continue;
        }
        let offset = geometry.block_size.byte_offset(block).unwrap_or(u64::MAX);
        volume.overlay().read_at(offset, &mut bytes)?;
        if is_backup(&primary, &bytes) {
            continue;
        }
        let place = Place::group(group).block(block);
        let cause = findings.report(Finding::new(SuperblockProblem::BackupDiffers, place));
        let copy = copy_for(&primary, group);
        volume.overlay().update(block, cause, |bytes| {
            bytes[..copy.as_bytes().len()].copy_from_slice(copy.as_bytes());
        })?;
    }
    Ok(())
}

/// Writes all backups of the superblock, and at most so many of each block of descriptors, as the
/// primary ones are.
///
/// # Errors
/// Of the device and of the overlay.
pub fn write_all(volume: &Volume, copies_max: usize, cause: Cause) -> Result<()> {
    let geometry = volume.geometry();
    write_superblocks(volume.overlay(), geometry, &volume.superblock(), cause)?;
    for at in 0..geometry.gdt_blocks() {
        let copies = geometry.gdt_backups(at).take(copies_max);
        for block in copies.filter(|&block| geometry.contains(block, 1)) {
            copy(volume, geometry.gdt_block(at), block, cause)?;
        }
    }
    Ok(())
}

/// Writes all backups of the superblock as `primary` is.
///
/// # Errors
/// Of the device and of the overlay.
pub fn write_superblocks(
    overlay: &Overlay,
    geometry: &Geometry,
    primary: &SuperBlock,
    cause: Cause,
) -> Result<()> {
    let blocks = geometry
        .backup_groups()
        .map(|group| (group, geometry.group_start(group)));
    for (group, block) in blocks.filter(|&(_, block)| geometry.contains(block, 1)) {
        let copy = copy_for(primary, group);
        overlay.update(block, cause, |bytes| {
            bytes[..copy.as_bytes().len()].copy_from_slice(copy.as_bytes());
        })?;
    }
    Ok(())
}

/// Whether the bytes can stand in for the primary superblock.
fn is_backup(primary: &SuperBlock, bytes: &[u8]) -> bool {
    let Ok((backup, _)) = SuperBlock::read_from_prefix(bytes) else {
        return false;
    };
    let sums = !primary.features().metadata_csum() || SuperBlock::parse(bytes).is_ok();
    sums && essence(primary) == essence(&backup)
}

/// What must be the same.
fn essence(superblock: &SuperBlock) -> ([u32; 12], u64, Features, [u8; 16]) {
    let fields = [
        superblock.s_magic.get().into(),
        superblock.s_inodes_count.get(),
        superblock.s_first_data_block.get(),
        superblock.s_log_block_size.get(),
        superblock.s_log_cluster_size.get(),
        superblock.s_blocks_per_group.get(),
        superblock.s_inodes_per_group.get(),
        superblock.s_rev_level.get(),
        superblock.s_inode_size.get().into(),
        superblock.s_desc_size.get().into(),
        superblock.s_first_meta_bg.get(),
        superblock.s_log_groups_per_flex.into(),
    ];
    let mut features = superblock.features();
    features.compat.remove(Compat::EXT_ATTR);
    features
        .incompat
        .remove(Incompat::RECOVER | Incompat::EXTENTS);
    features.ro_compat.remove(
        RoCompat::LARGE_FILE
            | RoCompat::HUGE_FILE
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE
            | RoCompat::ORPHAN_PRESENT,
    );
    (
        fields,
        superblock.blocks_count(),
        features,
        superblock.s_uuid,
    )
}

/// The primary superblock as the backup in a group.
fn copy_for(primary: &SuperBlock, group: GroupNr) -> SuperBlock {
    let mut copy = *primary;
    copy.s_block_group_nr = lo16(group.0).into();
    let mut features = copy.features();
    features.incompat.remove(Incompat::RECOVER);
    features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
    copy.set_features(features);
    copy.s_last_orphan = 0.into();
    copy.update_checksum();
    copy
}

fn descriptors(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let geometry = volume.geometry();
    let groups = volume.groups();
    let mut bytes = vec![0; geometry.block_size.len()];
    for (at, groups) in (0..).zip(groups.chunks(index(geometry.descs_per_block().max(1)))) {
        for block in geometry.gdt_backups(at).take(COPIES_MAX) {
            if !geometry.contains(block, 1) {
                continue;
            }
            volume.overlay().read_block(block, &mut bytes)?;
            if is_copy(geometry, groups, &bytes) {
                continue;
            }
            let finding = Finding::new(GroupProblem::BackupDiffers, Place::whole().block(block));
            let cause = findings.report(finding.found(block.0));
            let from = geometry.gdt_block(at);
            copy(volume, from, block, cause)?;
        }
    }
    Ok(())
}

/// Whether all descriptors name the same places. Those that were never written there read as
/// zeroes.
pub fn is_copy(geometry: &Geometry, groups: &[GroupDesc], bytes: &[u8]) -> bool {
    let copies = bytes.chunks_exact(geometry.desc_size.into());
    copies.zip(groups).all(|(bytes, desc)| {
        let copy = GroupDesc::parse(bytes);
        copy.block_bitmap == desc.block_bitmap
            && copy.inode_bitmap == desc.inode_bitmap
            && copy.inode_table == desc.inode_table
    })
}

fn copy(volume: &Volume, from: Pblk, to: Pblk, cause: Cause) -> Result<()> {
    let mut bytes = vec![0; volume.geometry().block_size.len()];
    volume.overlay().read_block(from, &mut bytes)?;
    volume.overlay().replace(to, cause, &bytes)
}

//! Descriptor blocks that are reserved where the first inode table lies.
//!
//! A number that is too large makes the heads of the groups overlap the bitmaps and tables behind
//! them. Heads are where they are by the superblock's word alone, so that all of those would seem
//! to be out of place, and be made anew elsewhere: empty. But the root directory's inode is not
//! in a head; where it is found there, the number is wrong. So it is where a backup of the
//! superblock says less, and nothing would lie in a head then.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{GroupNr, Pblk};

use crate::descriptors;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::SuperblockProblem;
use crate::report::Findings;
use crate::volume::Volume;

/// Most backups of the superblock that are asked.
const BACKUPS_MAX: usize = 8;

/// Stores the number of a backup, if what lies in the heads fits behind it; else as many as there
/// is room for. Returns whether it did, so that the shape is another.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(volume: &Volume, findings: &Findings<'_>) -> Result<bool> {
    let geometry = volume.geometry();
    let found = geometry.reserved_gdt_blocks;
    let start = geometry.group_start(GroupNr(0)).0;
    let end = start + u64::from(geometry.group_base_blocks(GroupNr(0)));
    let fixed = end.saturating_sub(found.into());
    if found == 0 {
        return Ok(false);
    }
    let is_inside = |place: &Pblk| (fixed..end).contains(&place.0);
    let groups = volume.groups();
    let places = groups
        .iter()
        .flat_map(|desc| [desc.block_bitmap, desc.inode_bitmap, desc.inode_table]);
    let Some(Pblk(first)) = places.filter(is_inside).min() else {
        return Ok(false);
    };
    let room = u16::try_from(first.saturating_sub(fixed)).unwrap_or(u16::MAX);
    let table = volume.group(GroupNr(0)).inode_table;
    let right = match backup(volume, room)? {
        Some(right) => right,
        None if is_inside(&table)
            && geometry.contains(table, 1)
            && descriptors::holds_table(volume, GroupNr(0), table)? =>
        {
            room
        }
        None => return Ok(false),
    };
    let finding = Finding::new(
        SuperblockProblem::ReservedDescriptorsTooMany,
        Place::whole(),
    );
    let cause = findings.report(finding.found(found).right(right));
    volume.update_superblock(cause, |superblock| {
        superblock.s_reserved_gdt_blocks = right.into();
    })?;
    Ok(true)
}

/// The number that a backup says, if it is at most `room`.
fn backup(volume: &Volume, room: u16) -> Result<Option<u16>> {
    let geometry = volume.geometry();
    let mut bytes = [0; 1024];
    for group in geometry.backup_groups().take(BACKUPS_MAX) {
        let Pblk(start) = geometry.group_start(group);
        let offset = start << geometry.block_size.log2();
        if offset >= volume.overlay().len() {
            continue;
        }
        volume.overlay().read_at(offset, &mut bytes)?;
        let Ok(superblock) = SuperBlock::parse(&bytes) else {
            continue;
        };
        let reserved = superblock.s_reserved_gdt_blocks.get();
        if superblock.s_uuid == volume.superblock().s_uuid && reserved <= room {
            return Ok(Some(reserved));
        }
    }
    Ok(None)
}

//! Another UUID for a file system that is there.
//!
//! The UUID stands in the superblock and its copies, and checksums depend on it. With
//! `metadata_csum` they begin with a seed, which is that of the UUID unless `metadata_csum_seed`
//! says another: it is stored before the UUID changes, so that no other block does. The crc16 of
//! descriptors (`uninit_bg`) is computed again, in all copies. The journal of the file system has a
//! UUID of its own, which stays.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::features::{Features, Incompat};
use uext4_ondisk::group_desc::{DescChecksum, GroupDesc, desc_checksum};
use uext4_ondisk::repair_log::RepairPointer;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock, UuidInUse};
use uext4_ondisk::{Geometry, GroupNr, Pblk};
use zerocopy::IntoBytes;

use crate::Error;

/// What [`change_uuid`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewUuid {
    /// The UUID before.
    pub old: [u8; 16],
    /// The feature `metadata_csum_seed` was added.
    pub adds_seed: bool,
}

/// Gives the file system on a device, which no other program uses, another UUID. It is not durable
/// before a flush, and what is left after an interruption is not consistent.
///
/// Copies of the superblock and descriptors that are damaged are left as they are.
///
/// # Errors
/// [`Error::CutRepair`], [`Error::Feature`] if the UUID must not change, [`Error::Damaged`] if the
/// superblock is, [`Error::DeviceTooSmall`], [`Error::Device`].
pub fn change_uuid(device: &dyn BlockDevice, uuid: [u8; 16]) -> Result<NewUuid, Error> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    if RepairPointer::find(&bytes).is_some_and(|pointer| pointer.is_of(&bytes)) {
        return Err(Error::CutRepair);
    }
    let mut superblock = SuperBlock::parse(&bytes).map_err(Error::Damaged)?;
    let geometry = Geometry::new(&superblock).map_err(Error::Damaged)?;
    let (need, have) = (geometry.len_bytes(), device.len());
    if need > have {
        return Err(Error::DeviceTooSmall { need, have });
    }
    let old = superblock.s_uuid;
    let features = superblock.features();
    may_change(features)?;
    let adds_seed = features.metadata_csum() && !features.incompat.contains(Incompat::CSUM_SEED);
    let change = |superblock: &mut SuperBlock| {
        if adds_seed {
            superblock.store_seed();
        }
        superblock
            .set_uuid(uuid)
            .map_err(|UuidInUse { feature, why }| Error::Feature { feature, why })?;
        superblock.update_checksum();
        Ok::<_, Error>(())
    };
    // Refused before anything is written.
    change(&mut superblock)?;
    for group in geometry.backup_groups() {
        let offset = geometry.group_start(group).0 << geometry.block_size.log2();
        if offset <= SUPERBLOCK_OFFSET || device.read_at(offset, &mut bytes).is_err() {
            continue;
        }
        if let Ok(mut backup) = SuperBlock::parse(&bytes)
            && backup.s_uuid == old
        {
            change(&mut backup)?;
            device.write_at(offset, backup.as_bytes())?;
        }
    }
    if superblock.depends_on_uuid() {
        change_descriptors(device, &geometry, DescChecksum::Crc16(uuid))?;
    }
    device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
    Ok(NewUuid { old, adds_seed })
}

/// Fails with the feature for which the UUID must stay here: what depends on it is not changed.
fn may_change(features: Features) -> Result<(), Error> {
    let refused = |feature, why| Err(Error::Feature { feature, why });
    if features.incompat.contains(Incompat::RECOVER) {
        return refused(
            "needs_recovery",
            "the journal holds the old UUID: replay it first",
        );
    }
    let hashes = features.incompat.contains(Incompat::EA_INODE);
    if hashes && !features.metadata_csum() && !features.incompat.contains(Incompat::CSUM_SEED) {
        return refused(
            "ea_inode",
            "without metadata_csum, hashes depend on the UUID",
        );
    }
    Ok(())
}

/// Computes the checksums of all descriptors again, in all copies; those that are wrong stay so.
fn change_descriptors(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    how: DescChecksum,
) -> Result<(), Error> {
    let log = geometry.block_size.log2();
    let mut block = vec![0; 1 << log];
    for index in 0..geometry.gdt_blocks() {
        let first = index.saturating_mul(geometry.descs_per_block());
        let change = |block: &mut [u8]| {
            let size = usize::from(geometry.desc_size);
            let groups = (first..geometry.groups_count.get()).map(GroupNr);
            for (bytes, group) in block.chunks_exact_mut(size).zip(groups) {
                let desc = GroupDesc::parse(bytes);
                if desc.checksum == desc_checksum(bytes, group, geometry.desc_checksum) {
                    desc.store(bytes, group, how);
                }
            }
        };
        let at = |block: Pblk| block.0 << log;
        let primary = geometry.gdt_block(index);
        device.read_at(at(primary), &mut block)?;
        change(&mut block);
        device.write_at(at(primary), &block)?;
        for backup in geometry.gdt_backups(index) {
            if device.read_at(at(backup), &mut block).is_ok() {
                change(&mut block);
                device.write_at(at(backup), &block)?;
            }
        }
    }
    Ok(())
}

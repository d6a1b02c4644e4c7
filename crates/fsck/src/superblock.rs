//! From a device to a file system whose shape is known.

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Geometry, GroupNr};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::overlay::Overlay;
use crate::report::Findings;
use crate::volume::Volume;

/// The unit in which the changes of this device will be counted: the block size by the superblock
/// that can be used.
///
/// # Errors
/// [`Error::NotExt4`] if no superblock can be used; of the device.
pub fn block_size(device: &Arc<dyn BlockDevice>, _options: &Options) -> Result<BlockSize> {
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let not_ext4 = |damage: uext4_ondisk::Damage| Error::NotExt4 {
        why: damage.to_string(),
    };
    let superblock = SuperBlock::parse(&bytes).map_err(not_ext4)?;
    let geometry = Geometry::new(&superblock).map_err(not_ext4)?;
    Ok(geometry.block_size)
}

/// Examines superblock, descriptors, journal and orphans, and returns the file system.
///
/// # Errors
/// [`Error::NotExt4`], [`Error::Features`], [`Error::CutOff`]; of the device.
pub fn open(overlay: Overlay, _options: &Options, _findings: &Findings<'_>) -> Result<Volume> {
    let not_ext4 = |damage: uext4_ondisk::Damage| Error::NotExt4 {
        why: damage.to_string(),
    };
    let mut bytes = [0; 1024];
    overlay.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let superblock = SuperBlock::parse(&bytes).map_err(not_ext4)?;
    let geometry = Geometry::new(&superblock).map_err(not_ext4)?;
    if geometry.len_bytes() > overlay.len() {
        return Err(Error::CutOff {
            need: geometry.len_bytes(),
            have: overlay.len(),
        });
    }
    let groups = read_groups(&overlay, &geometry)?;
    Ok(Volume::new(overlay, geometry, superblock, groups))
}

fn read_groups(overlay: &Overlay, geometry: &Geometry) -> Result<Vec<GroupDesc>> {
    let mut block = vec![0; geometry.block_size.len()];
    let mut groups = Vec::new();
    for nr in (0..geometry.groups_count.get()).map(GroupNr) {
        let at = nr.0 % geometry.descs_per_block();
        if at == 0 {
            overlay.read_block(
                geometry.gdt_block(nr.0 / geometry.descs_per_block()),
                &mut block,
            )?;
        }
        let size = usize::from(geometry.desc_size);
        groups.push(GroupDesc::parse(&block[index(at) * size..][..size]));
    }
    Ok(groups)
}

//! Changes that nothing follows from, of a file system that was left clean: the superblock and its
//! backups alone are read and written, however large the file system is.
//!
//! The redo log still makes them one change: a superblock with a checksum consists of two sectors,
//! either of which may be written alone. Free blocks for it are found in the bitmap of a group.

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, GroupDesc, bitmap_checksum};
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::repair_log::log_blocks;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr};
use uext4_redo::LogRun;

use super::{Change, Tuned};
use crate::error::{Error, Result};
use crate::make::ASKED_FOR;
use crate::options::Options;
use crate::overlay::Overlay;
use crate::redo::Writes;
use crate::{backups, superblock};

/// Most groups that are searched for free blocks.
const GROUPS_MAX: u32 = 1 << 14;

/// Works out what the changes write.
///
/// # Errors
/// [`Error::Refused`] if a value cannot be; [`Error::CutOff`]; of the device.
pub(super) fn tune(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    changes: &[Change],
    found: SuperBlock,
) -> Result<Tuned> {
    let geometry = Geometry::new(&found).map_err(|damage| Error::NotExt4 {
        why: damage.to_string(),
    })?;
    let (need, have) = (geometry.len_bytes(), device.len());
    if need > have {
        return Err(Error::CutOff { need, have });
    }
    let mut wanted = found;
    for change in changes {
        change.apply_alone(&mut wanted)?;
    }
    let overlay = Overlay::new(Arc::clone(device), geometry.block_size, options.memory / 4);
    let mut numbers = Vec::new();
    let mut log = None;
    if zerocopy::IntoBytes::as_bytes(&wanted) != zerocopy::IntoBytes::as_bytes(&found) {
        superblock::put(&overlay, ASKED_FOR, &wanted)?;
        backups::write_superblocks(&overlay, &geometry, &wanted, ASKED_FOR)?;
        overlay.for_each_change(|change| {
            numbers.push(change.block.0);
            Ok(())
        })?;
        let blocks = log_blocks(geometry.block_size.bytes(), len64(numbers.len()));
        log = free_run(&**device, &geometry, blocks)?.map(|run| vec![run]);
    }
    let writes = Writes::of_plan(geometry.block_size, numbers, log, have);
    let writes = writes.ok_or_else(|| Error::NotExt4 {
        why: "its backups or its bitmaps lie past its end".to_owned(),
    })?;
    Ok(Tuned {
        overlay,
        writes,
        findings: Vec::new(),
    })
}

/// The first run of so many blocks that the bitmap of a group says are free.
fn free_run(device: &dyn BlockDevice, geometry: &Geometry, blocks: u64) -> Result<Option<LogRun>> {
    let mut descriptors = vec![0; geometry.block_size.len()];
    let mut bits = descriptors.clone();
    let size = usize::from(geometry.desc_size);
    let ratio = 1_u64 << geometry.cluster_bits;
    let wanted = blocks.div_ceil(ratio);
    let per_block = geometry.descs_per_block().max(1);
    for group in (0..geometry.groups_count.get().min(GROUPS_MAX)).map(GroupNr) {
        let at = group.0 % per_block;
        if at == 0 {
            let from = geometry.gdt_block(group.0 / per_block);
            let offset = geometry.block_size.byte_offset(from).unwrap_or(u64::MAX);
            device.read_at(offset, &mut descriptors)?;
        }
        let desc = GroupDesc::parse(&descriptors[index(at) * size..][..size]);
        let place = geometry.block_size.byte_offset(desc.block_bitmap);
        let (Some(place), true) = (place, geometry.contains(desc.block_bitmap, 1)) else {
            continue;
        };
        if desc.flags & BG_BLOCK_UNINIT != 0 || u64::from(desc.free_clusters) < wanted {
            continue;
        }
        device.read_at(place, &mut bits)?;
        let summed = bits.get(..index(geometry.clusters_per_group.get() / 8));
        let is_right = geometry.csum_seed.is_none_or(|seed| {
            let sum = summed.map(|bits| bitmap_checksum(seed, bits, size));
            sum == Some(desc.block_bitmap_csum)
        });
        let clusters = u64::from(geometry.blocks_in_group(group)) / ratio;
        if let (true, Some(first)) = (is_right, first_zeroes(&bits, clusters, wanted)) {
            let start = geometry.group_start(group).0 + first * ratio;
            return Ok(Some(LogRun { blocks, start }));
        }
    }
    Ok(None)
}

/// Where so many bits that are zero begin.
fn first_zeroes(bits: &[u8], len: u64, wanted: u64) -> Option<u64> {
    let mut run = 0;
    for at in 0..len.min(len64(bits.len()) * 8) {
        let is_set = bits[index((at / 8) as u32)] & 1 << (at % 8) != 0;
        run = if is_set { 0 } else { run + 1 };
        if run == wanted {
            return Some(at + 1 - wanted);
        }
    }
    None
}

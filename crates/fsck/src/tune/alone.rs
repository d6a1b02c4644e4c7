//! Changes that nothing follows from, of a file system that was left clean: the superblock and its
//! backups alone are read and written, however large the file system is.
//!
//! The redo log still makes them one change: a superblock with a checksum consists of two sectors,
//! either of which may be written alone. Free blocks for it are found in the bitmap of a group: one
//! whose checksum is right, and that marks the metadata which the descriptors next to its own place
//! there. Where there is none, or the descriptors of a flexible group fill more than a block, the
//! whole file system is examined.

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
use crate::fixed_places::for_metadata_of;
use crate::make::ASKED_FOR;
use crate::options::Options;
use crate::overlay::Overlay;
use crate::redo::Writes;
use crate::{backups, superblock};

/// Most groups that are searched for free blocks.
const GROUPS_MAX: u32 = 1 << 14;

/// Works out what the changes write; `None` if only an examination can say which blocks are free.
///
/// # Errors
/// [`Error::Refused`] if a value cannot be; [`Error::CutOff`]; of the device.
pub(super) fn tune(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    changes: &[Change],
    found: SuperBlock,
) -> Result<Option<Tuned>> {
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
        let Some(run) = free_run(&**device, &geometry, blocks)? else {
            return Ok(None);
        };
        log = Some(vec![run]);
    }
    let writes = Writes::of_plan(geometry.block_size, numbers, log, have);
    let writes = writes.ok_or_else(|| Error::NotExt4 {
        why: "its backups or its bitmaps lie past its end".to_owned(),
    })?;
    Ok(Some(Tuned {
        overlay,
        writes,
        findings: Vec::new(),
    }))
}

/// The descriptors of one block.
struct Neighbours<'a> {
    geometry: &'a Geometry,
    /// The group of the first one.
    first: GroupNr,
    bytes: Vec<u8>,
}

impl Neighbours<'_> {
    fn desc(&self, group: GroupNr) -> Option<GroupDesc> {
        let size = usize::from(self.geometry.desc_size);
        let start = index(group.0.checked_sub(self.first.0)?).checked_mul(size)?;
        self.bytes.get(start..)?.get(..size).map(GroupDesc::parse)
    }

    /// Whether the bitmap of a group has the right checksum, and marks what these descriptors place
    /// in the group. With `flex_bg` a group holds the tables of others, all of them described here.
    /// No more blocks are looked at than the group has: more cannot be placed there.
    fn agree_with(&self, bits: &[u8], group: GroupNr, desc: &GroupDesc) -> bool {
        let geometry = self.geometry;
        let summed = bits.get(..index(geometry.clusters_per_group.get() / 8));
        let is_summed = geometry.csum_seed.is_none_or(|seed| {
            let size = usize::from(geometry.desc_size);
            summed.map(|bits| bitmap_checksum(seed, bits, size)) == Some(desc.block_bitmap_csum)
        });
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.blocks_in_group(group));
        let mut marks_all = is_summed;
        let mut budget = u64::from(geometry.blocks_in_group(group));
        let others = (self.first.0..geometry.groups_count.get()).map(GroupNr);
        for (nr, desc) in others.map_while(|nr| Some((nr, self.desc(nr)?))) {
            for_metadata_of(geometry, nr, &desc, |_, block, len| {
                let inside = block.0.max(start)..block.0.saturating_add(len).min(end);
                let len = inside.end.saturating_sub(inside.start);
                marks_all = marks_all && len <= budget;
                budget = budget.saturating_sub(len);
                let mut clusters = inside.map(|block| (block - start) >> geometry.cluster_bits);
                marks_all = marks_all && clusters.all(|cluster| is_marked(bits, cluster));
            });
            if !marks_all {
                return false;
            }
        }
        marks_all
    }
}

/// The first run of so many blocks that a bitmap says are free.
fn free_run(device: &dyn BlockDevice, geometry: &Geometry, blocks: u64) -> Result<Option<LogRun>> {
    let mut neighbours = Neighbours {
        geometry,
        first: GroupNr(0),
        bytes: vec![0; geometry.block_size.len()],
    };
    let mut bits = neighbours.bytes.clone();
    let ratio = 1_u64 << geometry.cluster_bits;
    let wanted = blocks.div_ceil(ratio);
    let per_block = geometry.descs_per_block().max(1);
    let flex = 1_u32.checked_shl(geometry.log_groups_per_flex.into());
    if flex.is_none_or(|flex| flex > per_block) {
        return Ok(None);
    }
    for group in (0..geometry.groups_count.get().min(GROUPS_MAX)).map(GroupNr) {
        if group.0 % per_block == 0 {
            let from = geometry.gdt_block(group.0 / per_block);
            let offset = geometry.block_size.byte_offset(from).unwrap_or(u64::MAX);
            neighbours.first = group;
            device.read_at(offset, &mut neighbours.bytes)?;
        }
        let Some(desc) = neighbours.desc(group) else {
            continue;
        };
        let place = geometry.block_size.byte_offset(desc.block_bitmap);
        let (Some(place), true) = (place, geometry.may_place(group, desc.block_bitmap, 1)) else {
            continue;
        };
        if desc.flags & BG_BLOCK_UNINIT != 0 || u64::from(desc.free_clusters) < wanted {
            continue;
        }
        device.read_at(place, &mut bits)?;
        let clusters = u64::from(geometry.blocks_in_group(group)) / ratio;
        if let Some(first) = first_zeroes(&bits, clusters, wanted)
            && neighbours.agree_with(&bits, group, &desc)
        {
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
        run = if is_marked(bits, at) { 0 } else { run + 1 };
        if run == wanted {
            return Some(at + 1 - wanted);
        }
    }
    None
}

/// Whether a bit is set; one behind the end is not.
fn is_marked(bits: &[u8], at: u64) -> bool {
    let byte = usize::try_from(at / 8).ok().and_then(|byte| bits.get(byte));
    byte.is_some_and(|byte| byte & 1 << (at % 8) != 0)
}

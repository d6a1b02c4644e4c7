//! The three ways to write a plan: in place through the redo log, in place after an undo file,
//! and to a copy that is not yet in use.

use std::path::Path;

use uext4_blockdev::BlockDevice;
use uext4_redo::UnfinishedRepair;

use crate::error::Result;
pub use crate::mmp::{Pause, abandoned_number, clear_mark};
use crate::mmp::{refuse_hash_tree, while_claimed};
use crate::overlay::Overlay;
use crate::redo::Writes;
use crate::undo;

/// Writes a plan to the device that it was made from, and returns how many blocks change. With
/// `undo`, the old contents of all blocks that are overwritten are durable in a new file at that
/// path before the first of them changes. A power cut at any write leaves the device as it was, or
/// so that [`finish`] or the undo file completes the one or the other.
///
/// With multiple mount protection its block is claimed meanwhile; `pause` waits for other hosts.
///
/// # Errors
/// [`crate::Error::NoLogRoom`] if the file system has no room for the redo log, and there is no
/// undo file; [`crate::Error::Refused`] if the undo file cannot be made. Nothing was written then.
/// Of the device.
pub fn in_place(
    device: &dyn BlockDevice,
    plan: &Overlay,
    writes: &Writes,
    undo: Option<&Path>,
    pause: &Pause<'_>,
) -> Result<u64> {
    if writes.count() == 0 {
        return Ok(0);
    }
    if let Some(path) = undo {
        let blocks = writes.overwritten();
        let becoming = writes.becoming(plan)?;
        let mut becomes = |block, content: &mut [u8]| becoming.read(block, content);
        undo::keep(device, plan.block_size(), &blocks, &mut becomes, path)?;
    }
    while_claimed(device, plan, pause, || match undo {
        Some(_) if !writes.has_log() => writes.write_without_log(device, plan),
        _ => writes.write(device, plan),
    })?;
    Ok(writes.count())
}

/// Completes a repair that was cut off.
///
/// # Errors
/// [`crate::Error::Refused`] if another host has the file system; of the device.
pub fn finish(
    device: &dyn BlockDevice,
    repair: &UnfinishedRepair,
    pause: &Pause<'_>,
) -> Result<()> {
    refuse_hash_tree(device)?;
    Ok(repair.finish_claimed(device, pause)?)
}

/// Writes a plan to a copy of the device that it was made from, and returns how many blocks
/// change.
///
/// # Errors
/// Of the device: the copy is of no use then.
pub fn to_copy(copy: &dyn BlockDevice, plan: &Overlay, writes: &Writes) -> Result<u64> {
    refuse_hash_tree(copy)?;
    refuse_hash_tree(plan)?;
    writes.write_without_log(copy, plan)?;
    Ok(writes.count())
}

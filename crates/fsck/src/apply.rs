//! The three ways to write a plan.

use std::path::Path;

use uext4_blockdev::BlockDevice;

use crate::error::Result;
use crate::redo::Writes;
use crate::run::Outcome;
use crate::undo;

/// Writes the changes of a plan to the device that it was made from, and returns how many blocks
/// that are. With `undo`, their old contents are durable in a new file at that path before the
/// first of them changes. A power cut at any write leaves the device as it was, or so that
/// [`finish`](crate::UnfinishedRepair::finish) or the undo file completes the one or the other.
///
/// # Errors
/// [`crate::Error::NoSpace`] if the file system has no room for the redo log, and there is no undo
/// file; [`crate::Error::Refused`] if the undo file cannot be made. Nothing was written then. Of
/// the device.
pub fn in_place(device: &dyn BlockDevice, plan: &Outcome, undo: Option<&Path>) -> Result<u64> {
    let writes = Writes::new(&plan.overlay, &plan.used)?;
    if writes.count() == 0 {
        return Ok(0);
    }
    if let Some(path) = undo {
        let blocks = writes.overwritten();
        undo::keep(device, plan.overlay.block_size(), blocks.into_iter(), path)?;
        if !writes.has_log() {
            writes.write_without_log(device, &plan.overlay)?;
            return Ok(writes.count());
        }
    }
    writes.write(device, &plan.overlay)?;
    Ok(writes.count())
}

/// Writes the changes of a plan to a copy of the device that it was made from, which nobody uses
/// before this has returned, and returns how many blocks that are.
///
/// # Errors
/// Of the device: the copy is of no use then.
pub fn to_copy(copy: &dyn BlockDevice, plan: &Outcome) -> Result<u64> {
    let writes = Writes::new(&plan.overlay, &plan.used)?;
    writes.write_without_log(copy, &plan.overlay)?;
    Ok(writes.count())
}

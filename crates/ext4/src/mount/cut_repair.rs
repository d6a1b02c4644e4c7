//! A repair that was cut off while it was written: some of its blocks are old and some are new, so
//! that nothing may be believed, not even the superblock, before its log was read through or
//! finished. `uext4_redo` has the log; this is done before anything else is read.

use std::sync::Arc;

use uext4_blockdev::{BlockDevice, Clock};
use uext4_ondisk::Damage;
use uext4_redo::{FoundLog, primary};

use crate::base::error::{Error, Result};
use crate::base::rescue::CutRepair;

/// The device as the finished repair leaves it, for reading.
pub(crate) fn read_through(
    device: Arc<dyn BlockDevice>,
) -> Result<(Arc<dyn BlockDevice>, Option<CutRepair>)> {
    let log = match FoundLog::find(&*device) {
        // A superblock that cannot be read names no log: a copy may stand in for it.
        Err(_) if primary::read(&*device).is_err() => None,
        Err(uext4_redo::Error::Device(_)) => Some(FoundLog::Damaged),
        log => log.map_err(refused)?,
    };
    Ok(match log {
        None | Some(FoundLog::OutOfDate) => (device, None),
        Some(FoundLog::Damaged) => (device, Some(CutRepair::LogDamaged)),
        Some(FoundLog::Unfinished(repair)) => {
            let blocks = repair.blocks();
            let redone = repair.redone(device).map_err(refused)?;
            (Arc::new(redone), Some(CutRepair::Finished(blocks)))
        }
    })
}

/// Finishes the repair on a device that is going to be written. Cut off itself, the next opening
/// does it again: the log stays until all is durable.
pub(crate) fn finish(device: &dyn BlockDevice, clock: &dyn Clock) -> Result<Option<CutRepair>> {
    match FoundLog::find(device).map_err(refused)? {
        // Nothing refers to its blocks any more, and the pointer goes with the next superblock.
        None | Some(FoundLog::OutOfDate) => Ok(None),
        Some(FoundLog::Damaged) => Err(Error::Corrupt(Damage::RepairLog)),
        Some(FoundLog::Unfinished(repair)) => {
            let finished = repair.finish_claimed(device, &|time| clock.sleep(time));
            finished.map_err(refused)?;
            Ok(Some(CutRepair::Finished(repair.blocks())))
        }
    }
}

fn refused(error: uext4_redo::Error) -> Error {
    match error {
        uext4_redo::Error::Device(error) => error.into(),
        uext4_redo::Error::InUse { state, node } => Error::InUse {
            by: format!("host \"{node}\", as {state}"),
        },
        other => Error::Unsupported {
            what: other.to_string(),
        },
    }
}

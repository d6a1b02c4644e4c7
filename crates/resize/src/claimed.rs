//! Work on a file system that several hosts may reach, under the block that says which of them has
//! it.

use uext4_blockdev::{BlockDevice, Clock};
use uext4_redo::{MmpClaim, abandoned_number};

use crate::{Error, Result};

/// Fails if another host has the file system: what it changes meanwhile would look like damage.
///
/// # Errors
/// [`Error::Shared`]; those of the device.
pub fn must_not_be_in_use(device: &dyn BlockDevice, clock: &dyn Clock) -> Result<()> {
    abandoned_number(device, &|time| clock.sleep(time))?;
    Ok(())
}

/// Does `work` while no other host may take the file system. Before, everything that waits for a
/// mount is settled, for a mount claims the block by itself.
///
/// If the power goes meanwhile, the mark stays: to the next command of this host it is no obstacle,
/// and other hosts need `uext4 tune -f -E clear_mmp`, or e2fsck.
///
/// # Errors
/// [`Error::Shared`]; those of `work` and of the device.
pub fn claimed<T>(
    device: &dyn BlockDevice,
    clock: &dyn Clock,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let claim = MmpClaim::begin(device, device, &|time| clock.sleep(time))?;
    let done = work();
    let has_failed = matches!(done, Err(Error::Device(_)));
    if let Some(claim) = claim.filter(|_| !has_failed) {
        claim.release(device)?;
    }
    done
}

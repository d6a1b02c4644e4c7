//! The space of an inode, in units of 512 bytes.

use uext4_ondisk::Geometry;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::RawInode;

use crate::base::error::{Error, Result};

/// Maximum number of 512-byte units that `i_blocks` can count with `huge_file`.
const SECTORS_MAX: u64 = (1 << 48) - 1;

/// Space of an inode without `HUGE_FILE`, in 512-byte units.
pub(super) fn sectors(raw: &RawInode) -> u64 {
    u64::from(raw.i_blocks_high.get()) << 32 | u64::from(raw.i_blocks_lo.get())
}

/// Adds 512-byte units to the space of an inode, in the form that the file system uses.
pub(super) fn add_sectors(raw: &mut RawInode, geometry: &Geometry, more: u64) -> Result<()> {
    let huge = geometry.features.ro_compat.contains(RoCompat::HUGE_FILE);
    // The largest possible file needs slightly more than 2^39 units: no need to count in blocks.
    let max = if huge { SECTORS_MAX } else { u32::MAX.into() };
    let total = sectors(raw).checked_add(more).filter(|&total| total <= max);
    let total = total.ok_or(Error::FileTooBig)?;
    raw.i_blocks_lo = (total as u32).into();
    raw.i_blocks_high = ((total >> 32) as u16).into();
    Ok(())
}

//! The block that shows other hosts whether a thread has the file system open.

use uext4_ondisk::mmp::{EXT4_MMP_MAGIC, EXT4_MMP_SEQ_CLEAN, MMP_LEN, MmpBlock};
use zerocopy::{FromZeros, IntoBytes};

use crate::Error;
use crate::options::Options;
use crate::plan::Plan;

/// Seconds between updates when nothing was said.
const DEFAULT_INTERVAL: u16 = 5;
/// Seconds a host waits at least before it believes that no thread updates the block.
const MIN_CHECK_INTERVAL: u16 = 5;

/// Makes the block: no process has the file system open, and no host is named.
pub(crate) fn create(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    let interval = match options.extended.mmp_update_interval {
        0 => DEFAULT_INTERVAL,
        said => said,
    };
    let block = plan.take_block(0, "MMP block")?;
    let mut mmp = MmpBlock::new_zeroed();
    mmp.mmp_magic = EXT4_MMP_MAGIC.into();
    mmp.mmp_seq = EXT4_MMP_SEQ_CLEAN.into();
    mmp.mmp_time = u64::from(plan.time).into();
    mmp.mmp_check_interval = interval.max(MIN_CHECK_INTERVAL).into();
    if let Some(seed) = plan.geometry.csum_seed {
        mmp.mmp_checksum = mmp.checksum(seed).into();
    }
    let mut bytes = vec![0; plan.block_len()];
    bytes[..MMP_LEN].copy_from_slice(mmp.as_bytes());
    plan.put(block, bytes);
    plan.superblock.s_mmp_block = block.into();
    plan.superblock.s_mmp_interval = interval.into();
    Ok(())
}

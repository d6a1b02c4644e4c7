//! Multiple mount protection: the block that says whether a host has the file system in use.
//!
//! A file system that is in use is refused, for what is read of it changes meanwhile. Whether
//! another host has it can only be seen by waiting; that, and marking the block while changes are
//! applied, is the business of applying them.

use uext4_ondisk::features::Incompat;
use uext4_ondisk::mmp::{EXT4_MMP_MAGIC, EXT4_MMP_SEQ_CLEAN, MmpBlock, MmpState};
use uext4_ondisk::{Damage, Pblk};
use zerocopy::{FromBytes, FromZeros};

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::problem::SuperblockProblem;
use crate::report::{Cause, Findings};
use crate::volume::Volume;

/// Seconds between two looks at the block, if the superblock does not say.
const INTERVAL: u16 = 5;

/// The block, if the file system has one. It is metadata without an owner.
pub fn block(volume: &Volume) -> Option<Pblk> {
    let superblock = volume.superblock();
    let has = superblock.features().incompat.contains(Incompat::MMP);
    let block = Pblk(superblock.s_mmp_block.get());
    let geometry = volume.geometry();
    let usable = geometry.contains(block, 1) && block > geometry.superblock_block();
    (has && usable).then_some(block)
}

fn read(volume: &Volume, block: Pblk) -> Result<Vec<u8>> {
    let mut bytes = vec![0; volume.geometry().block_size.len()];
    volume.overlay().read_block(block, &mut bytes)?;
    Ok(bytes)
}

/// Refuses a file system that says that it is in use.
///
/// # Errors
/// [`Error::Refused`]; of the device and of the overlay.
pub fn refuse_if_in_use(volume: &Volume) -> Result<()> {
    let Some(block) = block(volume) else {
        return Ok(());
    };
    let bytes = read(volume, block)?;
    let Ok(mmp) = MmpBlock::parse(&bytes, block, volume.geometry().csum_seed) else {
        return Ok(());
    };
    let by = match mmp.state() {
        Some(MmpState::Mounted) => "mounted",
        Some(MmpState::Fsck) => "being examined",
        Some(MmpState::Clean) | None => return Ok(()),
    };
    let name = mmp.mmp_nodename.split(|&byte| byte == 0).next();
    let node = name.unwrap_or_default().escape_ascii();
    Err(Error::Refused {
        what: format!(
            "the file system is marked as {by} by \"{node}\"; if no host has it, clear the mark \
             by `tune2fs -f -E clear_mmp`"
        ),
    })
}

/// Checks the number of the block and its contents.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let superblock = volume.superblock();
    if !superblock.features().incompat.contains(Incompat::MMP) {
        return Ok(());
    }
    let Some(block) = block(volume) else {
        let finding = Finding::new(SuperblockProblem::MmpBlock, Place::whole());
        let cause = findings.report(finding.found(superblock.s_mmp_block.get()));
        return volume.update_superblock(cause, |superblock| {
            let mut features = superblock.features();
            features.incompat.remove(Incompat::MMP);
            superblock.set_features(features);
            superblock.s_mmp_block = 0.into();
        });
    };
    let bytes = read(volume, block)?;
    let place = || Place::whole().block(block);
    match MmpBlock::parse(&bytes, block, volume.geometry().csum_seed) {
        Ok(_) => Ok(()),
        Err(Damage::BlockChecksum { .. }) => {
            let finding = Finding::new(SuperblockProblem::MmpChecksum, place());
            put(volume, block, findings.report(finding), |_| ())
        }
        Err(_) => {
            let finding = Finding::new(SuperblockProblem::MmpMagic, place());
            let interval = superblock.s_mmp_interval.get();
            put(volume, block, findings.report(finding), |mmp| {
                *mmp = MmpBlock::new_zeroed();
                mmp.mmp_magic = EXT4_MMP_MAGIC.into();
                mmp.mmp_seq = EXT4_MMP_SEQ_CLEAN.into();
                mmp.mmp_check_interval = match interval {
                    0 => INTERVAL,
                    interval => interval,
                }
                .into();
            })
        }
    }
}

fn put(
    volume: &Volume,
    block: Pblk,
    cause: Cause,
    change: impl FnOnce(&mut MmpBlock),
) -> Result<()> {
    let seed = volume.geometry().csum_seed;
    volume.overlay().update(block, cause, |bytes| {
        if let Ok((mmp, _)) = MmpBlock::mut_from_prefix(bytes) {
            change(mmp);
            mmp.mmp_checksum = seed.map_or(0, |seed| mmp.checksum(seed)).into();
        }
    })
}

//! Multiple mount protection: the block that says whether a host has the file system in use.
//!
//! A file system that is in use is refused, for what is read of it changes meanwhile. Whether
//! another host has it can only be seen by waiting: who means to write waits first, and says which
//! number was found abandoned. While changes are written the block is claimed.
//!
//! A block without the magic is not overwritten: the number of the block may be what is wrong, and
//! the block a file's or an inode table's.

use uext4_blockdev::BlockDevice;
use uext4_blockdev::verity::refuse_behind;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::mmp::{EXT4_MMP_MAGIC, EXT4_MMP_SEQ_CLEAN, MmpBlock, MmpState};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Damage, Geometry, Pblk};
use uext4_redo::{MmpClaim, is_leftover};
use zerocopy::FromBytes;

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::options::Options;
use crate::problem::SuperblockProblem;
use crate::report::{Cause, Findings};
use crate::volume::Volume;
pub use uext4_redo::Pause;

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
pub fn refuse_if_in_use(volume: &Volume, options: &Options) -> Result<()> {
    let Some(block) = block(volume) else {
        return Ok(());
    };
    let bytes = read(volume, block)?;
    let Ok(mmp) = MmpBlock::parse(&bytes, block, volume.geometry().csum_seed) else {
        return Ok(());
    };
    let is_abandoned = options.abandoned_mmp == Some(mmp.mmp_seq.get());
    match mmp.state() {
        Some(MmpState::Fsck) if is_leftover(&mmp) => Ok(()),
        Some(MmpState::Mounted) if is_abandoned => Ok(()),
        Some(MmpState::Mounted | MmpState::Fsck) => Err(uext4_redo::Error::in_use(&mmp).into()),
        Some(MmpState::Clean) | None => Ok(()),
    }
}

/// Does `work`, which writes `device`, while the block says that the file system is being
/// examined; see [`MmpClaim::begin`] for where it lies. Without one, `work` is simply done.
///
/// # Errors
/// [`Error::Refused`] if another host has the file system: `work` is not done then. Of `work`, and
/// of the device.
pub fn while_claimed<T>(
    device: &dyn BlockDevice,
    view: &dyn BlockDevice,
    pause: &Pause<'_>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    refuse_hash_tree(device)?;
    // A superblock that was damaged does not say where the tree would be.
    refuse_hash_tree(view)?;
    let claim = MmpClaim::begin(device, view, pause)?;
    let done = work();
    // With a part of it written, no other host may have the file system.
    if let Some(claim) = claim
        && matches!(
            done,
            Ok(_) | Err(Error::Refused { .. } | Error::NoLogRoom { .. })
        )
    {
        claim.release(device)?;
    }
    done
}

/// Fails if a dm-verity hash tree or a footer of Android Verified Boot covers the file system,
/// which no repair may change without giving that up.
pub fn refuse_hash_tree(device: &dyn BlockDevice) -> Result<()> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    if device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_err() {
        return Ok(());
    }
    let superblock = SuperBlock::parse(&bytes);
    match superblock.and_then(|found| Geometry::new(&found)) {
        Ok(geometry) => Ok(refuse_behind(device, geometry.len_bytes())?),
        // Where it would be is not known.
        Err(_) => Ok(()),
    }
}

/// Waits for a host that has the file system by the block; see [`uext4_redo::abandoned_number`].
///
/// # Errors
/// [`Error::Refused`] if it is at work; of the device.
pub fn abandoned_number(device: &dyn BlockDevice, pause: &Pause<'_>) -> Result<Option<u32>> {
    Ok(uext4_redo::abandoned_number(device, pause)?)
}

/// Marks the block as clean, whatever it says; see [`uext4_redo::clear_mark`].
///
/// # Errors
/// [`Error::Refused`] if the block is damaged; of the device.
pub fn clear_mark(device: &dyn BlockDevice) -> Result<bool> {
    Ok(uext4_redo::clear_mark(device)?)
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
        return forget(
            volume,
            findings.report(finding.found(superblock.s_mmp_block.get())),
        );
    };
    let bytes = read(volume, block)?;
    let finding = |problem| Finding::new(problem, Place::whole().block(block));
    let clean = |mmp: &mut MmpBlock| mmp.mmp_seq = EXT4_MMP_SEQ_CLEAN.into();
    let has_magic = MmpBlock::read_from_prefix(&bytes)
        .is_ok_and(|(mmp, _)| mmp.mmp_magic.get() == EXT4_MMP_MAGIC);
    match MmpBlock::parse(&bytes, block, volume.geometry().csum_seed) {
        Ok(mmp) if is_leftover(&mmp) => {
            let cause = findings.report(finding(SuperblockProblem::MmpMark));
            put(volume, block, cause, clean)
        }
        Ok(_) => Ok(()),
        Err(Damage::BlockChecksum { .. }) => {
            let cause = findings.report(finding(SuperblockProblem::MmpChecksum));
            put(volume, block, cause, |_| ())
        }
        Err(_) if has_magic => {
            let cause = findings.report(finding(SuperblockProblem::MmpSequence));
            put(volume, block, cause, clean)
        }
        Err(_) => forget(
            volume,
            findings.report(finding(SuperblockProblem::MmpMagic)),
        ),
    }
}

/// Clears the number of the block, and the feature.
fn forget(volume: &Volume, cause: Cause) -> Result<()> {
    volume.update_superblock(cause, |superblock| {
        let mut features = superblock.features();
        features.incompat.remove(Incompat::MMP);
        superblock.set_features(features);
        superblock.s_mmp_block = 0.into();
    })
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use uext4_blockdev::MemoryDevice;
    use uext4_ondisk::mmp::EXT4_MMP_SEQ_FSCK;

    use super::*;
    use crate::tests::TestImage;

    #[test]
    fn a_block_that_is_not_one_is_not_written() {
        let image = TestImage::new("-t ext4 -b 1024 -O mmp,^metadata_csum", "8M");
        let contents: Vec<u8> = (0..4096_u32).map(|i| (i / 7) as u8).collect();
        image.file("data", &contents);
        let bytes = std::fs::read(image.path()).unwrap();
        let found = bytes
            .chunks(1024)
            .position(|block| *block == contents[1024..2048]);
        let block = found.unwrap() as u32;
        image.change(|bytes| bytes[1024 + 0x168..][..4].copy_from_slice(&block.to_le_bytes()));
        assert!(image.repair().contains(&"mmp-magic"));
        let after = std::fs::read(image.path()).unwrap();
        assert!(
            after
                .chunks(1024)
                .any(|block| *block == contents[1024..2048])
        );
        assert_eq!(after[1024 + 0x168..][..4], [0; 4]);
    }

    #[test]
    fn a_sequence_number_without_a_meaning_becomes_clean() {
        let image = TestImage::new("-t ext4 -b 1024 -O mmp,^metadata_csum", "8M");
        image.change(|bytes| {
            let at = u32::from_le_bytes(bytes[1024 + 0x168..][..4].try_into().unwrap());
            bytes[at as usize * 1024 + 4..][..4].fill(0xFE);
        });
        assert_eq!(image.repair(), ["mmp-sequence"]);
    }

    fn image() -> (MemoryDevice, usize) {
        image_with("mmp")
    }

    fn image_with(features: &str) -> (MemoryDevice, usize) {
        let image = TestImage::new(&format!("-t ext4 -b 1024 -O {features}"), "8M");
        let bytes = std::fs::read(image.path()).unwrap();
        let number = bytes[1024 + 0x168..][..4].try_into().unwrap();
        let at = u32::from_le_bytes(number) as usize * 1024;
        (MemoryDevice::from_bytes(bytes), at)
    }

    fn number(device: &MemoryDevice, at: usize) -> u32 {
        u32::from_le_bytes(device.to_bytes()[at + 4..][..4].try_into().unwrap())
    }

    #[test]
    fn the_mark_is_there_while_the_work_is_done_and_then_what_was() {
        let (device, at) = image();
        let before = device.to_bytes();
        let waited = Cell::new(Duration::ZERO);
        let pause = |time| waited.set(waited.get() + time);
        let work = || Ok(number(&device, at));
        let during = while_claimed(&device, &device, &pause, work).unwrap();
        assert_eq!(during, EXT4_MMP_SEQ_FSCK);
        assert!(device.to_bytes() == before);
        assert_eq!(waited.get(), Duration::from_secs(11));
    }

    #[test]
    fn another_host_that_takes_the_file_system_is_respected() {
        let (device, at) = image();
        let pause = |_| device.write_at(at as u64 + 4, &[7, 0, 0, 0]).unwrap();
        let work = || -> Result<()> { panic!("the work of a host that does not have it") };
        let result = while_claimed(&device, &device, &pause, work);
        assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
    }

    #[test]
    fn a_number_that_a_host_left_is_waited_for_once() {
        let (device, at) = image_with("mmp,^metadata_csum");
        device.write_at(at as u64 + 4, &[7, 0, 0, 0]).unwrap();
        let shared: std::sync::Arc<dyn BlockDevice> = std::sync::Arc::new(device.snapshot());
        let mut options = Options::default();
        assert!(crate::plan(&shared, &options, &()).is_err());
        options.abandoned_mmp = abandoned_number(&device, &|_| ()).unwrap();
        assert_eq!(options.abandoned_mmp, Some(7));
        assert!(crate::plan(&shared, &options, &()).unwrap().is_clean);
        let pause = |_| device.write_at(at as u64 + 4, &[8, 0, 0, 0]).unwrap();
        assert!(abandoned_number(&device, &pause).is_err());
    }

    #[test]
    fn a_mark_that_a_cut_left_is_found_and_taken_away() {
        let (device, at) = image();
        let cut = || -> Result<()> { Err(Error::Cancelled) };
        assert!(while_claimed(&device, &device, &|_| (), cut).is_err());
        assert_eq!(number(&device, at), EXT4_MMP_SEQ_FSCK);
        let found = crate::findings(&(std::sync::Arc::new(device.snapshot()) as _)).unwrap();
        let names: Vec<_> = found.iter().map(|f| f.problem.info().name).collect();
        assert_eq!(names, ["mmp-mark"]);
        while_claimed(&device, &device, &|_| (), || Ok(())).unwrap();
        assert_eq!(number(&device, at), EXT4_MMP_SEQ_CLEAN);
    }
}

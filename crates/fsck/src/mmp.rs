//! Multiple mount protection: the block that says whether a host has the file system in use.
//!
//! A file system that is in use is refused, for what is read of it changes meanwhile. Whether
//! another host has it can only be seen by waiting: who means to write waits first, and says which
//! number was found abandoned. While changes are written the block is claimed.
//!
//! A block without the magic is not overwritten: the number of the block may be what is wrong, and
//! the block a file's or an inode table's.

mod claim;

use uext4_ondisk::features::Incompat;
use uext4_ondisk::mmp::{EXT4_MMP_MAGIC, EXT4_MMP_SEQ_CLEAN, MmpBlock, MmpState};
use uext4_ondisk::{Damage, Pblk};
use zerocopy::FromBytes;

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::options::Options;
use crate::problem::SuperblockProblem;
use crate::report::{Cause, Findings};
use crate::volume::Volume;
pub use claim::{Pause, abandoned_number, clear_mark, refuse_hash_tree, while_claimed};
use claim::{in_use, is_leftover};

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
        Some(MmpState::Mounted | MmpState::Fsck) => Err(in_use(&mmp)),
        Some(MmpState::Clean) | None => Ok(()),
    }
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
}

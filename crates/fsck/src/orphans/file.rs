//! The orphan file.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::{Compat, RoCompat};
use uext4_ondisk::inode::{FileType, RawInode};
use uext4_ondisk::orphan::{ORPHAN_TAIL_LEN, OrphanBlock, update_tail};
use uext4_ondisk::{Ino, Pblk};

use super::{Released, Replay, clusters_of, read, release};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::options::Options;
use crate::problem::JournalProblem;
use crate::report::{Cause, Findings};
use crate::strict_map::Map;
use crate::volume::Volume;

/// The longest orphan file that is read, in bytes: far more than mke2fs makes.
const BYTES_MAX: u64 = 64 << 20;

/// Releases the orphans in the file and empties it; clears it if it is not one.
pub(super) fn run(
    volume: &Volume,
    options: &Options,
    findings: &Findings<'_>,
    released: &mut Released,
) -> Result<()> {
    let superblock = volume.superblock();
    let features = superblock.features();
    let is_present = features.ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let ino = Ino(superblock.s_orphan_file_inum.get());
    if !features.compat.contains(Compat::ORPHAN_FILE) {
        return match is_present {
            true => absent(volume, findings),
            false => Ok(()),
        };
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        let finding = Finding::new(JournalProblem::OrphanFileWithoutJournal, Place::inode(ino));
        return clear(volume, ino, findings.report(finding));
    }
    let Some((map, seed)) = file(volume, ino)? else {
        let finding = Finding::new(JournalProblem::OrphanFileInode, Place::inode(ino));
        return clear(volume, ino, findings.report(finding));
    };
    let mut found_any = false;
    let mut bytes = vec![0; volume.geometry().block_size.len()];
    for block in map.blocks() {
        volume.overlay().read_block(block, &mut bytes)?;
        found_any |= one_block(
            volume,
            options,
            findings,
            &bytes,
            FileBlock { ino, block, seed },
            released,
        )?;
    }
    match is_present && !found_any {
        true => absent(volume, findings),
        false => Ok(()),
    }
}

/// A block of the orphan file.
#[derive(Clone, Copy)]
struct FileBlock {
    ino: Ino,
    block: Pblk,
    seed: Option<CsumSeed>,
}

/// The blocks of the file, and the seed of their checksums.
fn file(volume: &Volume, ino: Ino) -> Result<Option<(Map, Option<CsumSeed>)>> {
    if ino.0 < volume.geometry().first_ino {
        return Ok(None);
    }
    let bytes = volume.read_inode(ino)?;
    let Some(inode) = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok()) else {
        return Ok(None);
    };
    let is_file = FileType::from_mode(inode.i_mode.get()) == Some(FileType::Regular);
    let size = u64::from(inode.i_size_high.get()) << 32 | u64::from(inode.i_size_lo.get());
    let geometry = volume.geometry();
    let is_whole = size.is_multiple_of(geometry.block_size.bytes().into());
    if !is_file || !is_whole || size == 0 || size > BYTES_MAX {
        return Ok(None);
    }
    let seed = geometry.csum_seed;
    let seed = seed.map(|seed| seed.inode(ino, inode.i_generation.get()));
    let blocks = size >> geometry.block_size.log2();
    let map = Map::of(volume, &inode)?.filter(|map| u64::from(map.len) == blocks);
    Ok(map.map(|map| (map, seed)))
}

/// Releases what one block names, and empties it. Returns whether it named anything, or was
/// damaged.
fn one_block(
    volume: &Volume,
    options: &Options,
    findings: &Findings<'_>,
    bytes: &[u8],
    at: FileBlock,
    released: &mut Released,
) -> Result<bool> {
    let FileBlock { ino, block, seed } = at;
    let mut cause = None;
    match OrphanBlock::parse(bytes, block, seed) {
        Ok(slots) => {
            for orphan in slots.inodes() {
                let exists = orphan.0 <= volume.geometry().inodes_count;
                let is_first = exists && released.visited.insert(orphan);
                let inode = match is_first {
                    true => read(volume, orphan)?,
                    false => None,
                };
                cause = Some(match inode {
                    Some(inode) => {
                        let place = Place::inode(orphan);
                        let problem = match released.replay {
                            Replay::Done => JournalProblem::Orphan,
                            Replay::NotNeeded => JournalProblem::OrphanFileEntry,
                        };
                        let finding = Finding::new(problem, place);
                        let cause = findings.report(finding.found(clusters_of(volume, &inode)));
                        let held = &mut released.held;
                        release(volume, orphan, &inode, options, cause, findings, held)?;
                        cause
                    }
                    None => {
                        let place = Place::inode(ino).block(block);
                        let finding = Finding::new(JournalProblem::OrphanNext, place);
                        findings.report(finding.found(orphan.0))
                    }
                });
            }
        }
        Err(_) => {
            let place = Place::inode(ino).block(block);
            cause = Some(findings.report(Finding::new(JournalProblem::OrphanFileBlock, place)));
        }
    }
    // Without checksums the field of this one is zero.
    let sum = bytes.last_chunk::<4>().is_some_and(|sum| *sum != [0; 4]);
    if cause.is_none() && seed.is_none() && sum {
        let place = Place::inode(ino).block(block);
        cause = Some(findings.report(Finding::new(JournalProblem::OrphanFileBlock, place)));
    }
    let Some(cause) = cause else {
        return Ok(false);
    };
    volume.overlay().update(block, cause, |bytes| {
        let slots = bytes.len().saturating_sub(ORPHAN_TAIL_LEN);
        bytes[..slots].fill(0);
        update_tail(bytes, block, seed);
    })?;
    volume.update_superblock(cause, |superblock| {
        let mut features = superblock.features();
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        superblock.set_features(features);
    })?;
    Ok(true)
}

fn absent(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let finding = Finding::new(JournalProblem::OrphanFilePresent, Place::whole());
    volume.update_superblock(findings.report(finding), |superblock| {
        let mut features = superblock.features();
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        superblock.set_features(features);
    })
}

/// Clears the feature, and the inode if it certainly is that of the orphan file: else the number
/// may be wrong, and the inode a user's.
fn clear(volume: &Volume, ino: Ino, cause: Cause) -> Result<()> {
    let is_orphan_file = match file(volume, ino)? {
        Some((map, seed)) => begins_with_magic(volume, &map, seed)?,
        None => false,
    };
    volume.update_superblock(cause, |superblock| {
        let mut features = superblock.features();
        features.compat.remove(Compat::ORPHAN_FILE);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        superblock.set_features(features);
        superblock.s_orphan_file_inum = 0.into();
    })?;
    match is_orphan_file {
        true => volume.update_inode(ino, cause, |bytes| bytes.fill(0)),
        false => Ok(()),
    }
}

fn begins_with_magic(volume: &Volume, map: &Map, seed: Option<CsumSeed>) -> Result<bool> {
    let Some(block) = map.blocks().next() else {
        return Ok(false);
    };
    let mut bytes = vec![0; volume.geometry().block_size.len()];
    volume.overlay().read_block(block, &mut bytes)?;
    Ok(OrphanBlock::parse(&bytes, block, seed).is_ok())
}

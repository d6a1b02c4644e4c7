//! The number of the orphan file without the feature.
//!
//! What is left of an orphan file is cleared with its inode by a later pass. But the number may be
//! damage, and the inode a user's or a reserved one: only a file that begins as an orphan file does
//! is one.

use uext4_ondisk::Ino;
use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::orphan::OrphanBlock;

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::SuperblockProblem;
use crate::report::Findings;
use crate::strict_map::Map;
use crate::volume::Volume;

/// Stores 0 where the number leads to another file.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let superblock = volume.superblock();
    let ino = Ino(superblock.s_orphan_file_inum.get());
    let is_used = superblock.features().compat.contains(Compat::ORPHAN_FILE);
    if is_used || ino.0 == 0 {
        return Ok(());
    }
    let is_reserved = ino.0 < volume.geometry().first_ino;
    let bytes = volume.read_inode(ino)?;
    let Some(raw) = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok()) else {
        return Ok(());
    };
    let is_free = raw.i_links_count.get() == 0;
    if !is_reserved && (is_free || is_orphan_file(volume, ino, &raw)?) {
        return Ok(());
    }
    let finding = Finding::new(SuperblockProblem::OrphanFileNumber, Place::whole());
    let cause = findings.report(finding.found(ino.0));
    volume.update_superblock(cause, |superblock| superblock.s_orphan_file_inum = 0.into())
}

/// Whether the first block of an inode is one of an orphan file.
fn is_orphan_file(volume: &Volume, ino: Ino, raw: &RawInode) -> Result<bool> {
    let map = Map::of(volume, raw)?;
    let Some(first) = map.and_then(|map| map.blocks().next()) else {
        return Ok(false);
    };
    let geometry = volume.geometry();
    let mut block = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(first, &mut block)?;
    let seed = geometry.csum_seed;
    let seed = seed.map(|seed| seed.inode(ino, raw.i_generation.get()));
    Ok(OrphanBlock::parse(&block, first, seed).is_ok())
}

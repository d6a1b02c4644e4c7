//! The blocks of an empty journal: in use, and nothing is in them.

use std::ops::Range;

use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::journal::JournalSuperblock;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};

use super::{Judged, Source, find, is_external, judge};
use crate::error::Result;
use crate::volume::Volume;

/// The blocks of the journal behind its first one, if its log is empty, with the changes so far and
/// on the device as it is. Who writes there loses nothing but copies that were checkpointed.
///
/// # Errors
/// Of the device and of the overlay.
pub fn spare(volume: &Volume) -> Result<Vec<Range<u64>>> {
    let superblock = volume.superblock();
    let has_journal = superblock.features().compat.contains(Compat::HAS_JOURNAL);
    if !has_journal || is_external(&superblock) {
        return Ok(Vec::new());
    }
    let found = find(volume)?.filter(|found| found.source == Source::Inode);
    let Some(found) = found else {
        return Ok(Vec::new());
    };
    let is_empty = match judge(volume, &found)? {
        Judged::Right(recovery) => recovery.superblock.s_start.get() == 0,
        _ => false,
    };
    let runs = found.map.runs.iter();
    let mut blocks: Vec<Range<u64>> = runs
        .map(|run| run.start.0..run.start.0.saturating_add(run.len.into()))
        .collect();
    let Some(first) = blocks.first_mut() else {
        return Ok(Vec::new());
    };
    let head = first.start;
    first.start += 1;
    match is_empty && was_empty(volume, head)? {
        true => Ok(blocks),
        false => Ok(Vec::new()),
    }
}

/// Whether the device, without the changes, has an empty log in the journal that begins here.
fn was_empty(volume: &Volume, head: u64) -> Result<bool> {
    let base = volume.overlay().base();
    let mut superblock = [0; 1024];
    base.read_at(SUPERBLOCK_OFFSET, &mut superblock)?;
    let has_waited = SuperBlock::parse(&superblock)
        .is_ok_and(|superblock| superblock.features().incompat.contains(Incompat::RECOVER));
    let mut block = vec![0; volume.geometry().block_size.len()];
    base.read_at(head << volume.geometry().block_size.log2(), &mut block)?;
    let log = JournalSuperblock::parse(&block);
    Ok(!has_waited && log.is_ok_and(|log| log.s_start.get() == 0))
}

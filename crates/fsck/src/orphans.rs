//! Inodes that were deleted or cut while a process had them open: the list that begins in the
//! superblock, and the orphan file.
//!
//! ```text
//! s_last_orphan ─▶ inode ─ i_dtime ─▶ inode ─ i_dtime ─▶ … ─▶ 0
//! orphan file: blocks of slots, each the number of an inode or 0
//! ```
//! An orphan without links is deleted: `i_dtime` becomes a time, and nothing else changes, so that
//! the pass over inodes does not count what it holds. One with links was to be cut at its size:
//! what its map holds past that is taken away, by `cut`. Neither is damage; an entry
//! that cannot be an orphan is, and ends the list.

mod cut;
mod file;
mod held;
mod owners;

use std::collections::HashSet;

use uext4_ondisk::Ino;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::held::Held;
use crate::memory;
use crate::options::Options;
use crate::problem::JournalProblem;
use crate::report::{Cause, Findings};
use crate::volume::Volume;

pub use owners::others;

/// Handles both kinds of lists. Returns what the orphans held.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(
    volume: &Volume,
    options: &Options,
    findings: &Findings<'_>,
    replay: Replay,
) -> Result<Held> {
    let mut released = Released::new(replay, Held::new(memory::of_orphans(options)));
    list(volume, options, findings, &mut released)?;
    file::run(volume, options, findings, &mut released)?;
    Ok(released.held)
}

/// Whether the journal had to be replayed: the file system was in use when the power went, so that
/// inodes in the orphan file are what the next mount deletes. A file system that was unmounted has
/// none there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    Done,
    NotNeeded,
}

/// What was done with orphans in this run. No inode is released twice, and no node that one of them
/// held is read for another: otherwise inodes times nodes is what hostile lists cost.
#[derive(Debug)]
struct Released {
    replay: Replay,
    visited: HashSet<Ino>,
    held: Held,
}

impl Released {
    fn new(replay: Replay, held: Held) -> Self {
        Self {
            replay,
            visited: HashSet::new(),
            held,
        }
    }
}

/// Walks the list. Each inode is visited once at most, so the walk ends.
fn list(
    volume: &Volume,
    options: &Options,
    findings: &Findings<'_>,
    released: &mut Released,
) -> Result<()> {
    let first = volume.superblock().s_last_orphan.get();
    if first == 0 {
        return Ok(());
    }
    let mut at = Ino(first);
    let mut before = None;
    let mut cause = None;
    while at.0 != 0 {
        let orphan = read(volume, at)?.filter(|_| released.visited.insert(at));
        let Some(orphan) = orphan else {
            let finding = match before {
                None => Finding::new(JournalProblem::OrphanHead, Place::whole()),
                Some(ino) => Finding::new(JournalProblem::OrphanNext, Place::inode(ino)),
            };
            cause = Some(findings.report(finding.found(at.0)));
            break;
        };
        let finding = Finding::new(JournalProblem::Orphan, Place::inode(at));
        cause = Some(findings.report(finding.found(clusters_of(volume, &orphan))));
        if let Some(cause) = cause {
            release(
                volume,
                at,
                &orphan,
                options,
                cause,
                findings,
                &mut released.held,
            )?;
        }
        before = Some(at);
        at = Ino(orphan.i_dtime.get());
    }
    match cause {
        Some(cause) => volume.update_superblock(cause, |superblock| {
            superblock.s_last_orphan = 0.into();
        }),
        None => Ok(()),
    }
}

/// An inode that can be an orphan: one for files, of a known type.
///
/// # Errors
/// Of the device and of the overlay.
pub fn read(volume: &Volume, ino: Ino) -> Result<Option<RawInode>> {
    if ino.0 < volume.geometry().first_ino {
        return Ok(None);
    }
    let bytes = volume.read_inode(ino)?;
    let inode = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
    Ok(inode.filter(|inode| FileType::from_mode(inode.i_mode.get()).is_some()))
}

/// Clusters that an inode says it has.
pub fn clusters_of(volume: &Volume, inode: &RawInode) -> u64 {
    let geometry = volume.geometry();
    let found = u64::from(inode.i_blocks_high.get()) << 32 | u64::from(inode.i_blocks_lo.get());
    let is_huge = inode.i_flags.get() & InodeFlags::HUGE_FILE.bits() != 0;
    let sectors = if is_huge {
        0
    } else {
        geometry.block_size.log2() - 9
    };
    found >> sectors >> geometry.cluster_bits
}

/// Deletes an orphan, or takes it from the list if it has links.
fn release(
    volume: &Volume,
    ino: Ino,
    orphan: &RawInode,
    options: &Options,
    cause: Cause,
    findings: &Findings<'_>,
    held: &mut Held,
) -> Result<()> {
    let links = orphan.i_links_count.get();
    volume.update_raw_inode(ino, cause, |inode| {
        inode.i_dtime = match links {
            0 => deletion_time(options),
            _ => 0,
        }
        .into();
    })?;
    match links {
        0 => held.delete(volume, ino, orphan, cause, findings),
        _ => held.cut(volume, ino, orphan, cause, findings),
    }
}

/// Any time but zero: the mark of a deleted inode. A small one could be taken for the number of an
/// inode.
pub fn deletion_time(options: &Options) -> u32 {
    options.now.max(FIRST_TIME)
}

/// A time that no inode number in `i_dtime` can be taken for, unless there are so many inodes.
const FIRST_TIME: u32 = 1_500_000_000;

#[cfg(test)]
mod tests;

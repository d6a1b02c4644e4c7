//! From a device to a file system whose shape is known: the first pass.
//!
//! ```text
//! find ─▶ restore ─▶ mmp ─▶ replay ─▶ find again ─▶ fields ─▶ descriptors ─▶ lost features
//!                                      backups ◀─ resize inode ◀─ orphans ◀─ journal
//! ```
//! Each step may rely on those before it. The journal comes as early as it can, because what it
//! holds is newer than everything else; its own damage is mended when descriptors are right. The
//! backups come last, because they are copies of what the other steps make. Where an image is only
//! read, older copies in the journal mend inodes and directories before the descriptors. Where
//! there is nothing to find, `guess` makes a superblock.
//!
//! Refused before anything is examined: features that this version does not know, a device that
//! is too short, a file system that another host has in use, and a journal that may not or cannot
//! be replayed.

mod checks;
mod find;
mod fit;
mod guess;
mod lost;
mod orphan_file;
mod quota_files;
mod reserved;
mod shape;

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, GroupDesc};
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Geometry, GroupNr, Pblk};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::held::Held;
use crate::journal::FastCommits;
use crate::options::Options;
use crate::orphans::Replay;
use crate::overlay::Overlay;
use crate::report::{Cause, Findings};
use crate::volume::Volume;
use crate::{backups, descriptors, journal, mmp, orphans, resize_inode};
use find::{Found, find};

pub use guess::{Guess, guess, remake};

/// The unit in which the changes of this device will be counted: the block size by the superblock
/// that can be used.
///
/// # Errors
/// [`Error::NotExt4`] if no superblock can be used; [`Error::Features`]; of the device.
pub fn block_size(device: &Arc<dyn BlockDevice>, options: &Options) -> Result<BlockSize> {
    Ok(find(device.as_ref(), options)?.geometry.block_size)
}

/// A file system whose shape is known.
#[derive(Debug)]
pub struct Opened {
    /// The file system as the log of its journal makes it.
    pub volume: Volume,
    /// What is to be replayed besides.
    pub fast_commits: Option<FastCommits>,
    /// What orphans held that are deleted now.
    pub held: Held,
}

/// Examines superblock, descriptors, journal and orphans, and returns the file system.
///
/// # Errors
/// [`Error::NotExt4`], [`Error::Features`], [`Error::CutOff`], [`Error::Refused`]; of the device
/// and of the overlay.
pub fn open(overlay: Overlay, options: &Options, findings: &Findings<'_>) -> Result<Opened> {
    let (opened, replay) = replayed(overlay, options, findings)?;
    let Opened {
        volume,
        mut fast_commits,
        ..
    } = opened;
    let superblock = volume.superblock();
    let overlay = volume.into_overlay();
    let mut mender = checks::Mender::new(superblock, &overlay, findings);
    let geometry = shape_of(&superblock)?;
    checks::run(&mut mender, &geometry, options)?;
    let superblock = mender.superblock;
    let mut volume = self::volume(overlay, shape_of(&superblock)?, superblock, options)?;
    if reserved::run(&volume, findings)? {
        let superblock = volume.superblock();
        let geometry = shape_of(&superblock)?;
        volume = self::volume(volume.into_overlay(), geometry, superblock, options)?;
    }
    if options.older_copies {
        journal::restore(&volume, findings)?;
    }
    descriptors::run(&volume, findings)?;
    if lost::run(&volume, options, findings)? {
        let superblock = volume.superblock();
        let geometry = shape_of(&superblock)?;
        volume = self::volume(volume.into_overlay(), geometry, superblock, options)?;
    }
    quota_files::run(&volume, findings)?;
    orphan_file::run(&volume, findings)?;
    mmp::run(&volume, findings)?;
    journal::mend(&volume, findings)?;
    if let Some(fast_commits) = &mut fast_commits {
        fast_commits.keep_orphans(&volume)?;
    }
    let held = orphans::run(&volume, options, findings, replay)?;
    resize_inode::run(&volume, findings)?;
    backups::run(&volume, findings)?;
    Ok(Opened {
        volume,
        fast_commits,
        held,
    })
}

/// Finds the superblock to use, and replays the log of the journal. No descriptor is checked.
///
/// # Errors
/// As [`open`].
pub fn replayed(
    overlay: Overlay,
    options: &Options,
    findings: &Findings<'_>,
) -> Result<(Opened, Replay)> {
    let found = usable(&overlay, options, findings)?;
    let mut volume = volume(overlay, found.geometry, found.superblock, options)?;
    mmp::refuse_if_in_use(&volume, options)?;
    let incompat = volume.superblock().features().incompat;
    if incompat.contains(Incompat::RECOVER) {
        findings.was_in_use();
    }
    let mut replay = Replay::NotNeeded;
    let mut fast_commits = None;
    if let Some(replayed) = journal::replay(&volume, options, findings)? {
        replay = Replay::Done;
        fast_commits = replayed.fast_commits;
        let overlay = volume.into_overlay();
        let found = usable(&overlay, options, findings)?;
        volume = self::volume(overlay, found.geometry, found.superblock, options)?;
        distrust(&volume, &replayed.left_out)?;
    }
    let opened = Opened {
        volume,
        fast_commits,
        held: Held::default(),
    };
    Ok((opened, replay))
}

/// Reads all that old descriptors call unused: where the newest copy of their block was left out,
/// inodes and blocks may have come into use since.
fn distrust(volume: &Volume, left_out: &[(Pblk, Cause)]) -> Result<()> {
    let geometry = volume.geometry();
    for at in 0..geometry.gdt_blocks() {
        let block = geometry.gdt_block(at);
        let Some(&(_, cause)) = left_out.iter().find(|(home, _)| *home == block) else {
            continue;
        };
        let first = at.saturating_mul(geometry.descs_per_block());
        let end = first.saturating_add(geometry.descs_per_block());
        for group in (first..end.min(geometry.groups_count.get())).map(GroupNr) {
            volume.update_group(group, cause, |desc| {
                desc.itable_unused = 0;
                desc.flags &= !(BG_INODE_UNINIT | BG_BLOCK_UNINIT);
            })?;
        }
    }
    Ok(())
}

fn shape_of(superblock: &SuperBlock) -> Result<Geometry> {
    Geometry::new(superblock).map_err(|damage| Error::NotExt4 {
        why: damage.to_string(),
    })
}

/// The superblock to use; the primary one is restored in the overlay if it is another.
fn usable(overlay: &Overlay, options: &Options, findings: &Findings<'_>) -> Result<Found> {
    let found = find(overlay, options)?;
    let (need, have) = (found.geometry.len_bytes(), overlay.len());
    if need > have {
        return Err(Error::CutOff { need, have });
    }
    for finding in &found.findings {
        let cause = findings.report(finding.clone());
        put(overlay, cause, &found.superblock)?;
    }
    Ok(found)
}

/// Writes the primary superblock into the overlay.
pub(crate) fn put(overlay: &Overlay, cause: Cause, superblock: &SuperBlock) -> Result<()> {
    let mut superblock = *superblock;
    superblock.update_checksum();
    let block_size = overlay.block_size();
    let block = Pblk(SUPERBLOCK_OFFSET >> block_size.log2());
    let at = usize::try_from(SUPERBLOCK_OFFSET % u64::from(block_size.bytes())).unwrap_or(0);
    let new = superblock.as_bytes();
    overlay.update(block, cause, |bytes| {
        bytes[at..at + new.len()].copy_from_slice(new);
    })
}

/// Reads the descriptors, unchecked as they are. The changes so far are counted in blocks of the
/// overlay's size: no superblock that came later, from a log or a backup, may have another one.
pub(crate) fn volume(
    overlay: Overlay,
    geometry: Geometry,
    superblock: SuperBlock,
    options: &Options,
) -> Result<Volume> {
    let (blocks, found) = (overlay.block_size().bytes(), geometry.block_size.bytes());
    if blocks != found {
        return Err(Error::Refused {
            what: format!(
                "the superblock that a log or a backup holds has blocks of {found} bytes, the log \
                 or the superblock in place has blocks of {blocks} bytes: name the right \
                 superblock by -b and -B, or read the files by `uext4 salvage`"
            ),
        });
    }
    // Checked before any table is made.
    crate::memory::check(&geometry, options)?;
    let size = usize::from(geometry.desc_size);
    let mut block = vec![0; geometry.block_size.len()];
    let mut groups = Vec::new();
    for nr in (0..geometry.groups_count.get()).map(GroupNr) {
        let at = nr.0 % geometry.descs_per_block();
        if at == 0 {
            let from = geometry.gdt_block(nr.0 / geometry.descs_per_block());
            overlay.read_block(from, &mut block)?;
        }
        groups.push(GroupDesc::parse(&block[index(at) * size..][..size]));
    }
    Ok(Volume::new(overlay, geometry, superblock, groups))
}

#[cfg(test)]
mod tests;

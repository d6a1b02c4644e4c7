//! Changes of a file system that is sound: its name, its features, its settings.
//!
//! A change of a few bytes of the superblock may have to be followed by much else: checksums of
//! all metadata, quota files, indexes of directories, a journal. The passes of the repair know all
//! of that already. So a change is made in the superblock of the overlay, and the passes make the
//! rest follow, until a round finds nothing more:
//!
//! ```text
//! device ─examine─▶ clean? ─▶ superblock, backups, descriptors ─▶ rounds of passes ─▶ writes
//!                   no: refused                    a loss, or no end: refused
//! ```
//! What follows from nothing that is there (the inode of an orphan file, the block for multiple
//! mount protection) is made by `make`, once all owners of blocks are known.
//!
//! Changes that nothing follows from, such as a label, need neither the examination nor the passes
//! where the file system was left clean: see `alone`.
//!
//! All of it is written through the redo log, as a repair is: after a power cut whatever opens the
//! file system next finishes it.

mod alone;
mod change;
mod features;
mod reshape;

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::superblock::{STATE_ERROR, SuperBlock};
use uext4_ondisk::{Geometry, Ino};
use uext4_redo::{FoundLog, primary};

pub use crate::options::Make;
pub use change::{Amount, Change, Reserved};

use crate::clusters::ClusterSet;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::make::ASKED_FOR;
use crate::options::Options;
use crate::overlay::Overlay;
use crate::redo::Writes;
use crate::report::{Cause, Findings, Observer};
use crate::volume::Volume;
use crate::{backups, journal, run, superblock};
use features::Target;

/// What a change of a file system writes.
#[derive(Debug)]
pub struct Tuned {
    /// The device with all changes.
    pub overlay: Overlay,
    /// How they are written.
    pub writes: Writes,
    /// What the passes made follow, with the numbers that the changes name as their causes.
    pub findings: Vec<(Cause, Finding)>,
}

/// Works out what `changes` of the file system on `device` write; the device is not changed.
///
/// # Errors
/// [`Error::Refused`] if the file system is not clean, or a change cannot be made; as
/// [`crate::plan`] besides.
pub fn tune(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    changes: &[Change],
    observer: &dyn Observer,
) -> Result<Tuned> {
    if FoundLog::find(&**device)?.is_none()
        && let Some(superblock) = left_clean(&**device)?
        && changes.iter().all(|change| change.is_alone(&superblock))
        && let Some(tuned) = alone::tune(device, options, changes, superblock)?
    {
        return Ok(tuned);
    }
    with_passes(device, options, changes, observer)
}

/// The superblock of a file system that was left clean, with nothing to replay.
fn left_clean(device: &dyn BlockDevice) -> Result<Option<SuperBlock>> {
    let Some(bytes) = primary::read(device)? else {
        return Ok(None);
    };
    let superblock = SuperBlock::parse(&bytes).ok();
    Ok(superblock.filter(|superblock| {
        use uext4_ondisk::features::{Incompat, RoCompat};
        let features = superblock.features();
        let has_more = features.incompat.contains(Incompat::RECOVER)
            || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
            || superblock.s_last_orphan.get() != 0;
        superblock.was_left_clean() && !has_more && features.unreadable().is_empty()
    }))
}

fn with_passes(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    changes: &[Change],
    observer: &dyn Observer,
) -> Result<Tuned> {
    let before = run::plan(device, options, observer)?;
    if !before.was_clean {
        let count = before.summary.findings;
        return Err(Error::Refused {
            what: format!(
                "the file system is not clean ({count} findings): `uext4 repair IMAGE` first, then \
                 change it"
            ),
        });
    }
    let volume = opened(before.overlay, options)?;
    let mut target = Target::new(&volume);
    for change in changes {
        target.apply(change)?;
    }
    target.settle(&volume)?;
    if !target.is_change() {
        // A journal that was replayed is written nevertheless.
        let overlay = volume.into_overlay();
        return Ok(Tuned {
            writes: Writes::new(&overlay, &before.used)?,
            overlay,
            findings: before.findings,
        });
    }
    follow(volume, before.used, &target, options, observer)
}

/// Has the passes make everything else follow.
fn follow(
    volume: Volume,
    used: ClusterSet,
    target: &Target,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Tuned> {
    let overlay = store(volume, &used, target)?;
    let mut options = options.clone();
    options.make = target.make.clone();
    options.rebuild_directories = target.rebuilds_directories;
    let findings = Findings::new(observer, options.findings_max);
    let (overlay, used, is_clean) =
        run::until_clean(overlay, used, &options, &findings, run::ROUNDS_MAX)?;
    overlay.settle()?;
    let why = match (is_clean, findings.may_lose()) {
        (true, false) => None,
        (true, true) => Some("the change would lose files or data"),
        (false, _) => Some("the change does not lead to a consistent file system"),
    };
    if let Some(why) = why {
        return Err(Error::Refused {
            what: format!("{why}: nothing was written"),
        });
    }
    let volume = opened(overlay, &options)?;
    features::verify(target, &volume.superblock())?;
    if target.forces_check {
        // The passes have found it clean, and say so.
        volume.update_superblock(ASKED_FOR, |superblock| {
            superblock.s_state = (superblock.s_state.get() | STATE_ERROR).into();
        })?;
    }
    let overlay = volume.into_overlay();
    Ok(Tuned {
        writes: Writes::new(&overlay, &used)?,
        overlay,
        findings: findings.into_kept(),
    })
}

/// The file system in an overlay that is known to be sound.
fn opened(overlay: Overlay, options: &Options) -> Result<Volume> {
    let mut bytes = [0; primary::LEN];
    overlay.read_at(uext4_ondisk::superblock::SUPERBLOCK_OFFSET, &mut bytes)?;
    let unusable = |damage: uext4_ondisk::Damage| Error::NotExt4 {
        why: damage.to_string(),
    };
    let superblock = SuperBlock::parse(&bytes).map_err(unusable)?;
    let geometry = Geometry::new(&superblock).map_err(unusable)?;
    superblock::volume(overlay, geometry, superblock, options)
}

/// Stores the superblock that is wanted with its backups, moves what must move for that, sums the
/// descriptors anew, and clears the inodes that are no longer used.
fn store(volume: Volume, used: &ClusterSet, target: &Target) -> Result<Overlay> {
    let geometry = target.geometry()?;
    let mut groups = volume.groups();
    let is_other_size = geometry.desc_size != volume.geometry().desc_size;
    reshape::run(&volume, &geometry, used, &mut groups)?;
    let volume = Volume::new(volume.into_overlay(), geometry, target.superblock, groups);
    volume.update_superblock(ASKED_FOR, |_| ())?;
    for group in (0..volume.geometry().groups_count.get()).map(uext4_ondisk::GroupNr) {
        volume.update_group(group, ASKED_FOR, |_| ())?;
    }
    for &ino in &target.cleared {
        clear(&volume, ino)?;
    }
    if let Some(blocks) = target.fast_commit_area {
        journal::set_fast_commit_blocks(&volume, blocks, ASKED_FOR)?;
    }
    let copies = match is_other_size {
        true => usize::MAX,
        false => backups::COPIES_MAX,
    };
    backups::write_all(&volume, copies, ASKED_FOR)?;
    Ok(volume.into_overlay())
}

fn clear(volume: &Volume, ino: Ino) -> Result<()> {
    volume.update_inode(ino, ASKED_FOR, |bytes| bytes.fill(0))
}

#[cfg(test)]
mod tests;

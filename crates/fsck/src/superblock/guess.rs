//! The shape of a file system whose superblock is lost with all backups in the usual places.
//!
//! # What is left
//!
//! The image itself says what its superblock said. One pass over all of it looks at every 1024
//! bytes for two things:
//!
//! - a superblock, wherever it lies: a backup of groups of an unusual size, or a copy of the
//!   primary one in the journal;
//! - an inode table that begins with the root directory: its second inode is a directory whose
//!   first block names inode 2 as "." and "..". The size of an inode is where in the table that
//!   inode lies, the size of a block is the one with which its map leads to that block.
//!
//! ```text
//!  1024-aligned ▼               block N of what size?
//!  ┌────────┬────────┬──        ┌─────────────────────────────
//!  │ ino 1  │ ino 2  │ …        │ 2 "." 12 │ 2 ".." │ …
//!  └────────┴───┬────┴──        └─────────────────────────────
//!               └── i_block ────────▲  N × 1024? × 2048? … × 65536?
//! ```
//!
//! A superblock that agrees with the root directory is used as it is; of several, one with which
//! the group descriptors lead to the root directory comes first. Then the primary one counts, as
//! far as it says what is true (`remains`). Where nothing is left of it either, one is made: the
//! other fields follow from bitmaps and descriptors (`groups`), the seed of the checksums
//! from a checksum itself (`seed`), and the rest is what mke2fs does without options.
//!
//! # What is made
//!
//! The superblock has no backups (`sparse_super2` with none named) and no blocks reserved for more
//! descriptors, so that it claims no block that may be a file's. Where the descriptors are lost
//! too, they are made from the order in which mke2fs lays out a flexible group. Both go into an
//! overlay. Nothing here judges more than that: the passes examine the result like any other.
//!
//! # Where it is used
//!
//! To read what is left (`uext4 salvage`) any guess will do. A repair writes, and a device that now
//! holds something else may still hold an old root directory; so it asks for more (`proof`).
//!
//! # Limits
//!
//! Not guessed: `bigalloc`, `meta_bg`, inodes of 1024 bytes and more, a root directory that lies in
//! its inode, and without checksums groups that are not as large as a bitmap allows. Memory and the
//! number of reads out of the pass have bounds that do not depend on the image.

mod groups;
mod proof;
mod remains;
mod root;
mod seed;

use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr};

use super::find::{Backup, PIECE, UNIT, backup_in, best, pieces, usable};
use super::fit::names_root;
use super::put;
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::options::Options;
use crate::overlay::Overlay;
use crate::problem::SuperblockProblem;
use crate::report::{Cause, Findings, Observer, Pass, Progress};
use groups::Groups;
use root::Root;

/// Bytes that are read at a time where a piece fails.
const SMALL: usize = 1 << 16;
/// Most superblocks that are compared.
const SUPERBLOCKS_MAX: usize = 256;
/// Most inodes that are tried as root directories.
const ROOTS_MAX: u32 = 1 << 16;

/// An image with a superblock that was found or made.
#[derive(Debug)]
pub struct Guess {
    /// The image with it.
    pub device: Overlay,
    /// What was found, for a message: "blocks of 4096 bytes, …".
    pub what: String,
}

/// Looks through the whole device for the shape of the file system on it, and returns the device
/// with a superblock for it. For an image on which [`crate::plan`] finds none; `None` if there is
/// too little left. The device is not changed.
///
/// # Errors
/// [`Error::Cancelled`]; of the overlay.
pub fn guess(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Option<Guess>> {
    let shapes = Shapes::find(&**device, observer)?;
    let Some(shape) = shapes.found.into_iter().next() else {
        return Ok(None);
    };
    Ok(Some(Guess {
        what: shape.what(),
        device: shape.into_overlay(device, options, Cause(0))?,
    }))
}

/// The same for a repair: the first shape that is certain (`proof`). Reports what is made.
///
/// # Errors
/// As [`guess`].
pub fn remake(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    findings: &Findings<'_>,
) -> Result<Option<Overlay>> {
    let Shapes {
        found,
        root,
        seed,
        blocks,
        is_cut,
    } = Shapes::find(&**device, findings.observer())?;
    let Some(root) = root.filter(|_| !is_cut) else {
        return Ok(None);
    };
    let certain = found.into_iter().find(|shape| {
        !matches!(shape.source, Source::Root(Groups::Made(_)))
            && shape.geometry.len_bytes() <= device.len()
            && agree(&root, seed, &shape.geometry)
            && proof::is_certain(&**device, &shape.geometry, blocks)
    });
    let Some(shape) = certain else {
        return Ok(None);
    };
    let problem = match shape.source {
        Source::Root(_) => SuperblockProblem::Remade,
        Source::Remains => SuperblockProblem::Completed,
        Source::Copy => SuperblockProblem::CopiedFromElsewhere,
    };
    let cause = findings.report(Finding::new(problem, Place::whole()));
    shape.into_overlay(device, options, cause).map(Some)
}

/// Where a superblock comes from.
enum Source {
    /// Another superblock, somewhere on the device.
    Copy,
    /// The primary one, as far as it can be used.
    Remains,
    /// The root directory.
    Root(Groups),
}

/// A superblock for the file system on a device.
struct Shape {
    superblock: SuperBlock,
    geometry: Geometry,
    source: Source,
}

impl Shape {
    /// `None` if the superblock has no shape.
    fn new(superblock: SuperBlock, source: Source) -> Option<Self> {
        let geometry = Geometry::new(&superblock).ok()?;
        Some(Self {
            superblock,
            geometry,
            source,
        })
    }

    fn what(&self) -> String {
        let Self { geometry, .. } = self;
        format!(
            "blocks of {} bytes, inodes of {} bytes, {} groups with {} inodes each; {}",
            geometry.block_size.bytes(),
            geometry.inode_size,
            geometry.groups_count,
            geometry.inodes_per_group,
            match &self.source {
                Source::Copy => "from a copy of the superblock",
                Source::Remains => "from what is left of the superblock and the root directory",
                Source::Root(Groups::Described) =>
                    "from the root directory and the group descriptors",
                Source::Root(Groups::Made(_)) => "from the root directory and the usual layout",
            }
        )
    }

    /// The device with the superblock, and with the descriptors if they are made too.
    fn into_overlay(
        self,
        device: &Arc<dyn BlockDevice>,
        options: &Options,
        cause: Cause,
    ) -> Result<Overlay> {
        let block_size = self.geometry.block_size;
        let overlay = Overlay::new(Arc::clone(device), block_size, options.memory / 4);
        put(&overlay, cause, &self.superblock)?;
        if let Source::Root(Groups::Made(groups)) = self.source {
            describe(&overlay, &self.geometry, &groups, cause)?;
        }
        Ok(overlay)
    }
}

/// What the device shows.
struct Shapes {
    /// Superblocks for it, the most likely first.
    found: Vec<Shape>,
    root: Option<Root>,
    /// The seed of its checksums.
    seed: Option<CsumSeed>,
    /// The number of blocks that the primary superblock says, damaged as it is.
    blocks: u64,
    /// Whether there is a superblock of a longer device: the end is cut off.
    is_cut: bool,
}

impl Shapes {
    /// Looks through the device.
    fn find(device: &dyn BlockDevice, observer: &dyn Observer) -> Result<Self> {
        let Seen {
            backups,
            copies,
            longer,
            root,
        } = pass(device, observer)?;
        let seed = root.as_ref().and_then(|root| seed::of(device, root));
        let agrees = |geometry: &Geometry| {
            let root = root.as_ref();
            root.is_some_and(|root| agree(root, seed, geometry))
        };
        // A superblock may belong to an image in a file: the one counts that the descriptors fit.
        let fits = |geometry: &Geometry| names_root(device, geometry);
        let (right, others): (Vec<_>, Vec<_>) = backups
            .into_iter()
            .partition(|backup| agrees(&backup.geometry));
        let (fitting, right): (Vec<_>, Vec<_>) =
            right.into_iter().partition(|backup| fits(&backup.geometry));
        let (likely, others): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|backup| fits(&backup.geometry));
        let ranked = [fitting, right, likely, others];
        let mut primary = [0; 1024];
        // One that cannot be read has nothing left.
        _ = device.read_at(SUPERBLOCK_OFFSET, &mut primary);
        let backup = ranked.into_iter().find_map(|kind| best(kind, &primary));
        let backup = backup.map(|backup| super::shape::restored(&backup.superblock, &primary));
        let unnamed = remains::unnamed(device, &primary).filter(|(_, shape)| agrees(shape));
        let (mut copies, others): (Vec<_>, Vec<_>) = copies
            .into_iter()
            .filter(|(_, geometry)| agrees(geometry))
            .partition(|(_, geometry)| fits(geometry));
        copies.extend(others);
        let made = root
            .as_ref()
            .and_then(|root| groups::of(device, root, seed));
        let completed = made.as_ref().and_then(|(superblock, groups)| match groups {
            Groups::Described => remains::completed(device, &primary, superblock, seed),
            Groups::Made(_) => None,
        });
        let found = backup
            .map(|superblock| (superblock, Source::Copy))
            .into_iter();
        let found = found
            .chain(unnamed.map(|(superblock, _)| (superblock, Source::Remains)))
            .chain(
                copies
                    .iter()
                    .map(|(superblock, _)| (*superblock, Source::Copy)),
            )
            .chain(completed.map(|superblock| (superblock, Source::Remains)))
            .chain(made.map(|(superblock, groups)| (superblock, Source::Root(groups))));
        Ok(Self {
            found: found
                .filter_map(|(superblock, source)| Shape::new(superblock, source))
                .collect(),
            is_cut: longer.iter().any(agrees),
            blocks: remains::blocks(&primary),
            root,
            seed,
        })
    }
}

/// Whether a superblock of this shape can be the one of a root directory, whose checksums have this
/// seed.
fn agree(root: &Root, seed: Option<CsumSeed>, geometry: &Geometry) -> bool {
    geometry.block_size == root.block_size
        && geometry.inode_size == root.inode_size
        && geometry.contains(root.table, geometry.itable_blocks().into())
        && geometry.csum_seed == seed
}

/// Writes group descriptors.
fn describe(
    overlay: &Overlay,
    geometry: &Geometry,
    groups: &[GroupDesc],
    cause: Cause,
) -> Result<()> {
    let size = usize::from(geometry.desc_size);
    for (group, desc) in (0..).map(GroupNr).zip(groups) {
        let block = geometry.gdt_block(group.0 / geometry.descs_per_block());
        let at = index(group.0 % geometry.descs_per_block()) * size;
        overlay.update(block, cause, |bytes| {
            let bytes = &mut bytes[at..at + size];
            bytes.fill(0);
            desc.store(bytes, group, geometry.desc_checksum);
        })?;
    }
    Ok(())
}

/// What the pass finds.
#[derive(Default)]
struct Seen {
    backups: Vec<Backup>,
    /// Superblocks elsewhere.
    copies: Vec<(SuperBlock, Geometry)>,
    /// Shapes of those of longer devices.
    longer: Vec<Geometry>,
    root: Option<Root>,
}

/// Reads the device once. What cannot be read is left out.
fn pass(device: &dyn BlockDevice, observer: &dyn Observer) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut tries = ROOTS_MAX;
    let mut buf = vec![0; PIECE];
    let total = device.len();
    for Range { start, end } in pieces(device, total) {
        observer.progress(Progress {
            pass: Pass::Super,
            done: start,
            total,
        });
        if observer.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let len = usize::try_from(end - start).unwrap_or(PIECE);
        let piece = &mut buf[..len];
        if device.read_at(start, piece).is_ok() {
            units(device, start, piece, &mut seen, &mut tries);
        } else {
            for (small, start) in piece.chunks_mut(SMALL).zip((start..).step_by(SMALL)) {
                if device.read_at(start, small).is_ok() {
                    units(device, start, small, &mut seen, &mut tries);
                }
            }
        }
    }
    Ok(seen)
}

fn units(device: &dyn BlockDevice, start: u64, piece: &[u8], seen: &mut Seen, tries: &mut u32) {
    for (unit, offset) in piece.chunks_exact(UNIT).zip((start..).step_by(UNIT)) {
        if unit[0x38..0x3A] == EXT4_SUPER_MAGIC.to_le_bytes() {
            superblock(device, unit, offset, seen);
        }
        if seen.root.is_none() && *tries > 0 {
            seen.root = root::in_unit(device, unit, offset, tries);
        }
    }
}

fn superblock(device: &dyn BlockDevice, unit: &[u8], offset: u64, seen: &mut Seen) {
    if offset == SUPERBLOCK_OFFSET {
        return;
    }
    if let Some(backup) = backup_in(unit, offset, device.len()) {
        if seen.backups.len() < SUPERBLOCKS_MAX {
            seen.backups.push(backup);
        }
    } else if let Ok((superblock, geometry)) = usable(unit) {
        if geometry.len_bytes() > device.len() {
            seen.longer.truncate(SUPERBLOCKS_MAX);
            seen.longer.push(geometry);
        } else if seen.copies.len() < SUPERBLOCKS_MAX {
            seen.copies.push((superblock, geometry));
        }
    }
}

#[cfg(test)]
mod tests;

//! The pass over inodes: fields, block maps and attributes, and which clusters they own.
//!
//! ```text
//! metadata ──▶ groups, in parallel ─────────────▶ maps to be packed anew, root, features
//! claims       table ─▶ inode ─▶ fields, map      once the owner of every cluster is known
//! ```
//!
//! Threads take groups in order and read each inode table in large pieces, as far as it was ever
//! used. An inode is examined in one go; its remedies are applied at once, but for a damaged block
//! map: that is packed anew when all clusters are claimed, so that neither the choice of blocks
//! nor what is kept depends on the order in which threads work.
//!
//! A clean inode costs its checksum, its map and a few atomic operations: nothing is allocated
//! for it.

mod blocks;
mod fields;
mod metadata;
mod special;
mod subject;
mod symlink;
#[cfg(test)]
mod tests;
mod torn;
mod types;
#[cfg(test)]
mod unusual;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};

use uext4_ondisk::extent::Extent;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{FileType, RawInode};
use uext4_ondisk::num::{lo16, lo32};
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::mapping::{self, Buffers};
use crate::problem::InodeProblem;
use crate::report::Cause;
use crate::state::State;
use crate::threads;

use worker::Worker;

pub use metadata::claim as claim_metadata;
pub use symlink::{inline_contents, inline_value};

/// What all threads of the pass have in common.
#[derive(Debug, Default)]
struct Common {
    /// A file of 2 GiB or more was seen.
    has_large_file: AtomicBool,
    /// The inodes that the superblock names.
    system: special::System,
    /// Progress and limits.
    counters: worker::Counters,
}

/// A map that is to be packed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Repack {
    ino: Ino,
    cause: Cause,
    /// The first logical block that goes.
    end: u64,
}

impl Repack {
    /// Of all that can be used.
    fn all(ino: Ino, cause: Cause) -> Self {
        Self {
            ino,
            cause,
            end: u64::MAX,
        }
    }
}

/// Examines all inodes, groups in parallel. Afterwards `used` and `shared` hold the clusters of
/// the metadata and of all inodes, `inodes` and `directories` all that are in use, and
/// `xattr_blocks`, `ea_inodes` and `usage` what they refer to and use.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(state: &mut State<'_>) -> Result<()> {
    metadata::claim(state);
    let common = Common {
        system: special::System::new(&state.volume.superblock(), state.options.now),
        ..Common::default()
    };
    let groups = u64::from(state.geometry().groups_count.get());
    let threads = state.options.threads;
    // Long enough that tables are read in sequence, short enough that no thread waits long.
    let flex = 1 << u32::from(state.geometry().log_groups_per_flex).min(20);
    let step = flex.min(groups / (8 * threads.get() as u64)).max(1);
    let shared = &*state;
    let workers = threads::for_each(
        threads,
        groups,
        step,
        || Worker::new(shared, &common),
        |worker, group| worker.group(GroupNr(u32::try_from(group).unwrap_or(u32::MAX))),
    )?;
    let found: Vec<_> = workers.into_iter().map(Worker::into_found).collect();
    let mut repacks = Vec::new();
    let mut released = Vec::new();
    let mut directories = std::mem::take(&mut state.directories);
    for found in found {
        repacks.extend(found.repacks);
        released.extend(found.released);
        directories.append(found.directories);
        state.usage.get_mut().append(found.usage);
    }
    for (ino, raw) in &released {
        release(state, *ino, raw)?;
    }
    directories.sort();
    state.directories = directories;
    repacks.sort_unstable();
    for repack in repacks {
        pack_anew(state, repack)?;
    }
    special::root(state)?;
    special::note_reserved(state);
    large_file_feature(state, &common)
}

/// Gives back what an inode claimed that is not to be used any more. Only once all have claimed.
fn release(state: &State<'_>, ino: Ino, raw: &RawInode) -> Result<()> {
    mapping::for_each_owned(state, ino, raw, &mut Buffers::default(), |owned| {
        state.free(state.used.of_blocks(owned.start, owned.len));
    })
}

/// Packs what can be used of a damaged map.
fn pack_anew(state: &State<'_>, repack: Repack) -> Result<()> {
    let Repack { ino, cause, end } = repack;
    let Some(bytes) = state.volume.read_inode(ino)? else {
        return Ok(());
    };
    let Ok(raw) = RawInode::parse(&bytes, ino) else {
        return Ok(());
    };
    let map = mapping::read(state, ino, &raw)?;
    let mut extents = torn::join(state, &map.extents, cause)?;
    cut(state, &mut extents, end);
    if FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory) {
        // Neither holes nor blocks that were never written.
        let mut next = 0_u32;
        for extent in &mut extents {
            extent.unwritten = false;
            extent.lblk = Lblk(next);
            next = next.saturating_add(extent.len.into());
        }
    }
    if ino == Ino::BAD_BLOCKS {
        extents.retain(|extent| !state.touches_metadata(extent));
    }
    mapping::store(state, ino, &map, &extents, cause)
}

/// Cuts what lies behind a logical block, and gives it back.
fn cut(state: &State<'_>, extents: &mut Vec<Extent>, end: u64) {
    for extent in extents.iter_mut() {
        let left = end
            .saturating_sub(extent.lblk.0.into())
            .min(extent.len.into());
        let gone = u64::from(extent.len) - left;
        let start = Pblk(extent.pblk.0.saturating_add(left));
        if gone != 0 {
            state.free(state.used.of_blocks(start, gone));
            extent.len = lo16(lo32(left));
        }
    }
    extents.retain(|extent| extent.len != 0);
}

fn large_file_feature(state: &State<'_>, common: &Common) -> Result<()> {
    let large_file = RoCompat::LARGE_FILE;
    let has_feature = state.geometry().features.ro_compat.contains(large_file);
    if has_feature || !common.has_large_file.load(Ordering::Relaxed) {
        return Ok(());
    }
    let cause = state.report(Finding::new(InodeProblem::LargeFile, Place::whole()));
    state.volume.update_superblock(cause, |superblock| {
        let features = superblock.s_feature_ro_compat.get() | large_file.bits();
        superblock.s_feature_ro_compat = features.into();
    })
}

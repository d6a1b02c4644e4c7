//! The memory of an examination, known from the shape of the file system before it begins.
//!
//! Tables that grow with what is in use are made for the groups in use only. What a group costs
//! that nothing is in is what this counts: a sparse image of a few blocks can say that it has
//! hundreds of millions of groups. [`expected`] adds the tables of the groups in use, for users to
//! see: past [`of_tables`] they lie in a temporary file.

use uext4_ondisk::Geometry;
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, GroupDesc};

use crate::clusters::Group;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::volume::Volume;

/// Sets of clusters that exist at the same time, with those of what was taken out of them.
const SETS: usize = 2 * 6;
/// Bytes for each group: its descriptor, twice while it is copied, and its places in the tables.
const GROUP: usize =
    2 * size_of::<GroupDesc>() + (SETS + 1) * size_of::<Group>() + size_of::<u64>();

/// Sets of clusters that hold something in a group in use: all, and those of the file system.
const IN_USE: u64 = 2;
/// Bytes for each directory: what is known of it, its blocks, and where it hangs.
const DIRECTORY: u64 = 80;
/// Most bytes that a thread reads at a time, in one pass after the other: tables, names, bitmaps.
pub const READ_MAX: usize = 1 << 16;

/// Bytes that are needed at least.
fn needed(geometry: &Geometry) -> u64 {
    u64::from(geometry.groups_count.get()).saturating_mul(GROUP as u64)
}

/// Bytes that the tables of clusters and inodes may take; the rest is in a temporary file.
pub fn of_tables(options: &Options) -> u64 {
    options.memory / 2
}

/// Bytes that the clusters of orphans may take besides.
pub fn of_orphans(options: &Options) -> u64 {
    options.memory / 16
}

/// Bytes that will be needed, about: with the tables for the groups in use, as the descriptors
/// count them, and what each thread reads into. What is damaged may need more.
pub fn expected(volume: &Volume, options: &Options) -> u64 {
    let geometry = volume.geometry();
    let per_group = geometry.inodes_per_group.get();
    let (mut tables, mut directories) = (0, 0);
    for desc in volume.groups() {
        if desc.flags & BG_BLOCK_UNINIT == 0 {
            tables += u64::from(geometry.clusters_per_group.get()) / 8 * IN_USE;
        }
        if desc.free_inodes < per_group {
            tables += u64::from(per_group);
        }
        directories += u64::from(desc.used_dirs.min(per_group)) * DIRECTORY;
    }
    let threads = options.threads.get() as u64;
    needed(geometry)
        .saturating_add(tables.min(of_tables(options)))
        .saturating_add(directories)
        .saturating_add(threads.saturating_mul(READ_MAX as u64))
}

/// Refuses what needs more than is allowed.
///
/// # Errors
/// [`Error::Memory`].
pub fn check(geometry: &Geometry, options: &Options) -> Result<()> {
    let (need, limit) = (needed(geometry), options.memory);
    match need > limit {
        true => Err(Error::Memory { need, limit }),
        false => Ok(()),
    }
}

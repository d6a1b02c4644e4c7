//! What an image holds, read by the engine: the extents of its files, and the free space between.

use std::path::Path;
use std::sync::Arc;

use uext4::data::MapState;
use uext4::format::{GroupNr, Lblk};
use uext4::{Image, Ino, OpenOptions};
use uext4_blockdev::{Access, FileDevice};

use crate::experiment::Failure;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(error.to_string())
}

/// Opens an image that nothing is written to now. Its journal is replayed in memory.
///
/// # Errors
/// [`Failure::Run`] for one that is no file system, or damaged.
pub fn open(image: &Path) -> Result<Image, Failure> {
    let device = FileDevice::open(image, Access::ReadOnly).map_err(failed)?;
    Image::open(Arc::new(device), &OpenOptions::default()).map_err(failed)
}

/// How many extents a file has.
///
/// # Errors
/// [`Failure::Run`] for damage.
pub fn extents_of(fs: &Image, inode: &uext4::Inode) -> Result<u64, Failure> {
    let block = u64::from(fs.geometry().block_size.bytes());
    let end = u32::try_from(inode.size.div_ceil(block)).map_err(failed)?;
    let (mut at, mut count) = (0, 0);
    while at < end {
        let mapping = fs.map(inode, Lblk(at), end - at).map_err(failed)?;
        count += u64::from(mapping.state != MapState::Hole);
        at = mapping.end();
    }
    Ok(count)
}

/// The same of several files by their inodes.
///
/// # Errors
/// [`Failure::Run`] for damage, and for an inode that is not in use.
pub fn extents_of_all(fs: &Image, inos: &[u64]) -> Result<Vec<u64>, Failure> {
    let of = |&ino: &u64| {
        let ino = u32::try_from(ino).map_err(failed)?;
        extents_of(fs, &fs.inode(Ino(ino)).map_err(failed)?)
    };
    inos.iter().map(of).collect()
}

/// The free runs, across the bounds of groups: first block and length.
///
/// # Errors
/// [`Failure::Run`] for damage.
pub fn free_runs(fs: &Image) -> Result<Vec<(u64, u64)>, Failure> {
    let geometry = fs.geometry();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for group in (0..geometry.groups_count.get()).map(GroupNr) {
        let bitmap = fs.block_bitmap(group).map_err(failed)?;
        let start = geometry.group_start(group).0;
        let blocks = geometry.blocks_in_group(group);
        for bit in (0..blocks).filter(|bit| bitmap[(bit / 8) as usize] >> (bit % 8) & 1 == 0) {
            let block = start + u64::from(bit);
            match runs.last_mut() {
                Some((before, len)) if *before + *len == block => *len += 1,
                _ => runs.push((block, 1)),
            }
        }
    }
    Ok(runs)
}

/// The runs that are not free.
///
/// # Errors
/// As for [`free_runs`].
pub fn used_runs(fs: &Image) -> Result<Vec<(u64, u64)>, Failure> {
    let (mut used, mut at) = (Vec::new(), 0);
    for (start, len) in free_runs(fs)? {
        if start > at {
            used.push((at, start - at));
        }
        at = start + len;
    }
    let end = fs.geometry().blocks_count;
    if end > at {
        used.push((at, end - at));
    }
    Ok(used)
}

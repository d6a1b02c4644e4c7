//! `salvage --deleted`: files whose inodes are deleted and whose blocks are still free.
//!
//! An inode keeps its size when it is deleted, and, depending on what deleted it, its map. Linux
//! empties the map of a file on ext4 first, so that nothing is found of it; e2fsck, debugfs and
//! interrupted deletions leave it. Nothing says whether the blocks were used in between, and freed
//! again: the record calls the contents unverified.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use uext4::{Image, Inode};
use uext4_fsck::ClusterSet;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Ino, Pblk};

use super::record::{self, Known, Origin, unused};
use crate::extents::{Run, Runs};
use crate::failure::Failure;
use crate::messages;

/// The directory for them.
const DIRECTORY: &str = "deleted";
/// Bytes that are copied at a time.
const COPY: usize = 1 << 20;

/// Copies them to `to/deleted/#INODE` (another directory where the image has a file `deleted`),
/// the ones deleted last first, and returns a line of the record for each. A block goes to one file
/// only, so that all of them together are no larger than the free space.
///
/// # Errors
/// Of the directory that is written. What cannot be read is left out.
pub fn copy(known: &Known<'_>, used: &ClusterSet, to: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let fs = known.fs;
    let to = unused(to, DIRECTORY);
    let failed = |error| Failure::io(to.display(), &error);
    fs::create_dir(&to).map_err(failed)?;
    let mut lines = Vec::new();
    for ino in candidates(fs) {
        let Ok(inode) = fs.inode(ino) else {
            continue;
        };
        let Some(runs) = free_runs(fs, used, &inode) else {
            continue;
        };
        let path = to.join(format!("#{ino}"));
        let file = File::create_new(&path).map_err(failed)?;
        // The size is whatever the inode says: no file of this machine may be so large.
        if let Err(error) = file.set_len(inode.size) {
            let size = inode.size;
            messages::warning(format_args!(
                "#{ino}: deleted, with a size of {size} bytes: left out: {error}"
            ));
            fs::remove_file(&path).map_err(failed)?;
            continue;
        }
        if copy_data(fs, &inode, &runs, &file).map_err(failed)? {
            lines.push(line(known, &inode, &path));
        } else {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(lines)
}

/// Deleted regular files that are not empty, the ones deleted last first.
fn candidates(fs: &Image) -> impl Iterator<Item = Ino> {
    let geometry = fs.geometry();
    let inodes = geometry.first_ino..=geometry.inodes_count;
    let mut found: Vec<_> = inodes
        .filter_map(|number| {
            let inode = fs.inode(Ino(number)).ok()?;
            let is_deleted = inode.links == 0 && inode.dtime != 0 && inode.size > 0;
            let is_file = inode.file_type == FileType::Regular;
            (is_deleted && is_file).then_some((Reverse(inode.dtime), number))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, number)| Ino(number))
}

/// The runs of a file if all of them are free, and claims them. `None` if one is not, or there is
/// none.
fn free_runs(fs: &Image, used: &ClusterSet, inode: &Inode) -> Option<Vec<Run>> {
    let runs: Vec<Run> = Runs::new(fs, inode).collect::<Result<_, _>>().ok()?;
    let clusters = |run: &Run| used.of_blocks(Pblk(run.pblk), run.len);
    if runs.is_empty() || runs.iter().any(|run| used.contains_any(clusters(run))) {
        return None;
    }
    for run in &runs {
        used.add(clusters(run), |_| ());
    }
    Some(runs)
}

/// Copies the data of the runs. Returns whether all of it could be read.
fn copy_data(fs: &Image, inode: &Inode, runs: &[Run], to: &File) -> std::io::Result<bool> {
    let block = u64::from(fs.geometry().block_size.bytes());
    let mut buf = vec![0; COPY];
    for run in runs.iter().filter(|run| !run.unwritten) {
        let end = (run.lblk + run.len).saturating_mul(block).min(inode.size);
        let mut at = run.lblk * block;
        while at < end {
            let len = (end - at).min(COPY as u64) as usize;
            let Ok(read) = fs.read_at(inode, at, &mut buf[..len]) else {
                return Ok(false);
            };
            if read == 0 {
                break;
            }
            to.write_all_at(&buf[..read], at)?;
            at += read as u64;
        }
    }
    Ok(true)
}

fn line(known: &Known<'_>, inode: &Inode, path: &Path) -> Vec<u8> {
    let names: Vec<_> = path.iter().rev().take(2).collect();
    let path: PathBuf = names.into_iter().rev().collect();
    let origin = Origin {
        name_from: "none: the file was deleted",
        size_from: "deleted inode",
        blocks_from: "deleted inode",
        checksum: record::checksum(known.fs, known.found, inode.ino),
        contents: "unverified",
        missing: &[],
        deleted_at: Some(inode.dtime),
        problems: Vec::new(),
    };
    record::line(path.as_os_str().as_bytes(), inode, &origin)
}

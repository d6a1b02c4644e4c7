//! `salvage --deleted`: deleted files whose blocks are still free.
//!
//! Nothing says whether the blocks were used in between, and freed again: the record calls the
//! contents unverified.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use uext4::{FileType, Image};
use uext4_fsck::ClusterSet;

use super::record::{self, Known, Origin, unused};
use crate::deleted::{Deleted, copy_data, find};
use crate::failure::Failure;
use crate::messages;

/// The directory for them.
const DIRECTORY: &str = "deleted";

/// Copies them to `to/deleted/#INODE` (another directory where the image has a file `deleted`),
/// the ones deleted last first, and returns a line of the record for each. A block goes to one file
/// only, so that all of them together are no larger than the free space.
///
/// # Errors
/// Of the directory that is written. What cannot be read is left out.
pub fn copy(known: &Known<'_>, used: &ClusterSet, to: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let to = unused(to, DIRECTORY);
    let failed = |error| Failure::io(to.display(), &error);
    fs::create_dir(&to).map_err(failed)?;
    let found = find(known.fs, &mut |start, len| {
        let blocks = used.of_blocks(start, len);
        match used.contains_any(blocks) {
            true => 0,
            false => len,
        }
    })?;
    let is_file = |file: &&Deleted| file.inode.file_type == FileType::Regular;
    let mut lines = Vec::new();
    for file in found.files.iter().filter(is_file) {
        let ino = file.inode.ino;
        let has_data = file.inode.size > 0 && file.is_whole();
        if !has_data || !claim(used, &found.view, file) {
            continue;
        }
        let path = to.join(format!("#{ino}"));
        let copy = File::create_new(&path).map_err(failed)?;
        // The size is whatever the inode says: no file of this machine may be so large.
        if let Err(error) = copy.set_len(file.inode.size) {
            let size = file.inode.size;
            messages::warning(format_args!(
                "#{ino}: deleted, with a size of {size} bytes: left out: {error}"
            ));
            fs::remove_file(&path).map_err(failed)?;
            continue;
        }
        if copy_data(&found.view, &file.inode, &copy).map_err(failed)? {
            lines.push(line(known, file, &path));
        } else {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(lines)
}

/// Claims all clusters of a file; false if one is in use or claimed.
fn claim(used: &ClusterSet, view: &Image, file: &Deleted) -> bool {
    let clusters = || {
        let runs = file.all_runs(view);
        runs.map(|(start, len)| used.of_blocks(start, len))
    };
    if clusters().any(|run| used.contains_any(run)) {
        return false;
    }
    clusters().for_each(|run| used.add(run, |_| ()));
    true
}

fn line(known: &Known<'_>, file: &Deleted, path: &Path) -> Vec<u8> {
    let names: Vec<_> = path.iter().rev().take(2).collect();
    let path: PathBuf = names.into_iter().rev().collect();
    let from = match file.from_journal {
        true => "journal",
        false => "deleted inode",
    };
    let origin = Origin {
        name_from: "none: the file was deleted",
        size_from: from,
        blocks_from: from,
        checksum: record::checksum(known.fs, known.found, file.inode.ino),
        contents: "unverified",
        missing: &[],
        deleted_at: Some(file.deleted_at),
        problems: Vec::new(),
    };
    record::line(path.as_os_str().as_bytes(), &file.inode, &origin)
}

//! What `lsattr` and `getfacl` share: paths, and everything below them, shown one by one.

use std::path::PathBuf;

use uext4::{Image, Inode};
use uext4_image::walk::{Entry, Order, Step, Walk, joined};

use super::{Output, bytes};
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::show::escaped;

/// Where a list goes.
pub struct Target<'a> {
    /// The file system.
    pub fs: &'a Image,
    /// Lines of text.
    pub out: &'a mut Output,
    /// Objects of an array, each of which is printed when it is complete.
    pub json: Json,
    /// What could not be shown.
    pub complaints: Complaints,
}

/// A command that lists files.
pub trait Listing<'a> {
    /// Where the list goes.
    fn target(&mut self) -> &mut Target<'a>;

    /// Shows what an operand stands for.
    ///
    /// # Errors
    /// Of this operand alone, or a broken pipe.
    fn operand(&mut self, path: &[u8]) -> Result<(), Failure>;

    /// Shows an entry of a walk whose inode could be read.
    ///
    /// # Errors
    /// As [`Listing::operand`].
    fn entry(&mut self, entry: &Entry, inode: &Inode, path: &[u8]) -> Result<(), Failure>;

    /// Whether what is below an entry is left out.
    fn skips(&self, _: &Entry) -> bool {
        false
    }

    /// The entries that follow are in this directory, at this depth.
    ///
    /// # Errors
    /// As [`Listing::operand`].
    fn enter(&mut self, _dir: &Inode, _path: &[u8], _depth: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// The last directory entered is complete.
    ///
    /// # Errors
    /// As [`Listing::operand`].
    fn leave(&mut self, _depth: usize) -> Result<(), Failure> {
        Ok(())
    }
}

/// Shows all operands; `as_json` as one array.
///
/// # Errors
/// A broken pipe.
pub fn list<'a>(
    listing: &mut impl Listing<'a>,
    paths: &[PathBuf],
    as_json: bool,
) -> Result<Exit, Failure> {
    listing.target().json.open_array();
    for path in paths {
        if let Err(failure) = listing.operand(bytes(path.as_os_str())) {
            listing.target().complaints.failure(failure)?;
        }
    }
    let target = listing.target();
    if as_json {
        target.json.print_array(target.out)?;
    }
    Ok(target.complaints.exit())
}

/// Shows everything below an inode, and the inode itself. What is wrong with an entry is reported.
///
/// # Errors
/// A broken pipe.
pub fn walk<'a>(listing: &mut impl Listing<'a>, top: Inode, path: &[u8]) -> Result<(), Failure> {
    let mut walk = Walk::new(listing.target().fs, top, Order::Nested);
    while let Some(step) = walk.step() {
        let path = joined(path, walk.path());
        let entry = match step {
            Step::Entry(entry) => entry,
            Step::Enter(dir) => {
                listing.enter(&dir, &path, walk.depth())?;
                continue;
            }
            Step::Leave => {
                listing.leave(walk.depth())?;
                continue;
            }
        };
        let complaints = &mut listing.target().complaints;
        if let Some(problem) = &entry.problem {
            let what = format_args!("{}: {problem}", escaped(&path));
            complaints.report(Exit::Damaged, what);
        }
        if let Err(error) = &entry.inode {
            complaints.engine(escaped(&path), error);
        }
        if listing.skips(&entry) {
            walk.skip_contents(entry.ino);
        }
        if let Ok(inode) = &entry.inode
            && let Err(failure) = listing.entry(&entry, inode, &path)
        {
            listing.target().complaints.failure(failure)?;
        }
    }
    Ok(())
}

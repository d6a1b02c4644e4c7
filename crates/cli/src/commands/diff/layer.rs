//! The difference as a layer of a container image, as layer.md of the OCI image-spec describes it.
//!
//! Directories above anything in the layer are in it, too, because their times have changed with
//! their contents. A hard link may name a file of the layers below: it is unchanged there.

use std::collections::HashSet;

use uext4::{Error, FileType, Inode};
use uext4_image::pairs::is_in;
use uext4_image::walk::{InodeSet, joined};

use super::change::{Change, Kind, What};
use super::side::Side;
use crate::commands::Output;
use crate::commands::tar::Archive;
use crate::failure::{Complaints, Exit, Failure};
use crate::missing::Missing;
use crate::show::escaped;

/// Names of an old directory up to which it can be found to be replaced; the old names of a larger
/// one are hidden one by one.
const NAMES_MAX: usize = 4096;
/// Begins the name of a whiteout.
const WHITEOUT: &[u8] = b".wh.";
/// The whiteout of all that a directory held.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A layer under way.
pub struct Layer<'a> {
    old: &'a Side,
    new: &'a Side,
    archive: Archive<'a>,
    /// Files of the new image that are in the layer.
    written: InodeSet,
    /// The directories above the last entry, and the path of the innermost.
    parents: Vec<Parent>,
    dir: Vec<u8>,
    /// The old contents of this directory are hidden.
    hidden: Option<Vec<u8>>,
}

/// A directory of the new image.
struct Parent {
    /// Bytes of its path.
    len: usize,
    inode: Inode,
    /// It is in the layer.
    is_written: bool,
}

impl<'a> Layer<'a> {
    /// Nothing is written yet.
    pub fn new(
        old: &'a Side,
        new: &'a Side,
        out: &'a mut Output,
        missing: &'a mut Missing,
    ) -> Self {
        let complaints = Complaints::about(&new.image);
        Self {
            old,
            new,
            archive: Archive::new(&new.fs, out, missing, complaints),
            written: InodeSet::default(),
            parents: Vec::new(),
            dir: Vec::new(),
            hidden: None,
        }
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// Those of writing.
    pub fn end(self) -> Result<Exit, Failure> {
        self.archive.end()
    }

    /// Writes what an entry takes to become the new one; entries come in order.
    ///
    /// # Errors
    /// Those of writing.
    pub fn take(&mut self, change: &Change<'_>) -> Result<(), Failure> {
        let path = change.path;
        let is_above = |dir: &Parent| is_in(path, &self.dir[..dir.len]);
        while self.parents.pop_if(|dir| !is_above(dir)).is_some() {}
        if change.kind == Kind::Removed {
            return self.hide(path, change.old);
        }
        let Some(inode) = change.new else {
            return Ok(());
        };
        if inode.file_type == FileType::Directory {
            return self.directory(inode, change);
        }
        if change.kind == Kind::Type {
            if inode.file_type == FileType::Socket {
                self.hide(path, change.old)?;
            }
            self.note_hidden(path, change.old);
        }
        let is_held = !is_marker(path);
        // Other names must not be links to one that is not there.
        let first = match is_held {
            true => self.archive.links.first(inode, &member(path)),
            false => None,
        };
        let is_relinked = first.is_some() && self.written.contains(inode.ino);
        if (is_needed(change) || is_relinked) && self.can_hold(path) {
            self.parents()?;
            self.written.insert(inode.ino);
            self.archive.member(inode, member(path), first.as_deref())?;
        }
        Ok(())
    }

    fn directory(&mut self, inode: &Inode, change: &Change<'_>) -> Result<(), Failure> {
        self.dir = change.path.to_vec();
        self.parents.push(Parent {
            len: change.path.len(),
            inode: inode.clone(),
            is_written: false,
        });
        if is_needed(change) {
            self.parents()?;
        }
        if change.is_whole
            && matches!(change.kind, Kind::Same | Kind::Changed)
            && let Some(old) = change.old
            // An error was reported by the walk.
            && self.is_replaced(old, inode).unwrap_or(false)
        {
            self.parents()?;
            let marker = joined(&member(change.path), OPAQUE);
            self.archive.marker(&marker)?;
            self.note_hidden(change.path, change.old);
        }
        Ok(())
    }

    /// Writes a whiteout, unless one above it hides the entry.
    fn hide(&mut self, path: &[u8], old: Option<&Inode>) -> Result<(), Failure> {
        let is_hidden = self.hidden.as_ref().is_some_and(|dir| is_in(path, dir));
        if is_hidden || !self.can_hold(path) {
            return Ok(());
        }
        self.parents()?;
        let mut whiteout = member(path);
        let at = whiteout.len() - name(path).len();
        whiteout.splice(at..at, WHITEOUT.iter().copied());
        self.archive.marker(&whiteout)?;
        self.note_hidden(path, old);
        Ok(())
    }

    /// Notes that what an old directory held is hidden.
    fn note_hidden(&mut self, path: &[u8], old: Option<&Inode>) {
        let is_inner = self.hidden.as_ref().is_some_and(|dir| is_in(path, dir));
        if !is_inner && old.is_some_and(|old| old.file_type == FileType::Directory) {
            self.hidden = Some(path.to_vec());
        }
    }

    /// Writes the directories above the entry that comes next, as far as they are missing.
    fn parents(&mut self) -> Result<(), Failure> {
        for at in 0..self.parents.len() {
            let parent = &mut self.parents[at];
            if !std::mem::replace(&mut parent.is_written, true) {
                let (path, inode) = (self.dir[..parent.len].to_vec(), parent.inode.clone());
                if self.can_hold(&path) {
                    self.archive.member(&inode, member(&path), None)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a layer can hold this path; if not, that is reported.
    fn can_hold(&mut self, path: &[u8]) -> bool {
        let is_marker = is_marker(path);
        if is_marker {
            let what = "a layer cannot hold or hide names that begin with .wh.";
            let what = format_args!("{}: {what}", escaped(&member(path)));
            self.archive.complaints.report(Exit::Incomplete, what);
        }
        !is_marker
    }

    /// Whether a directory has held several names, and holds none of them any more.
    fn is_replaced(&self, old: &Inode, new: &Inode) -> Result<bool, Error> {
        let mut names = HashSet::new();
        for entry in self.old.fs.read_dir(old)? {
            if names.len() == NAMES_MAX {
                return Ok(false);
            }
            names.insert(self.old.fs.entry_name(old, &entry?));
        }
        for entry in self.new.fs.read_dir(new)? {
            if names.contains(&self.new.fs.entry_name(new, &entry?)) {
                return Ok(false);
            }
        }
        Ok(names.len() > 1)
    }
}

/// Whether a name of a path is what a layer calls a whiteout.
fn is_marker(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/')
        .any(|name| name.starts_with(WHITEOUT))
}

/// Whether the two entries differ in an archive, which has neither flags nor projects.
fn is_needed(change: &Change<'_>) -> bool {
    let is_held = |what| !matches!(what, What::Flags | What::Project);
    match change.kind {
        Kind::Added | Kind::Type => true,
        Kind::Changed => change.differences.iter().any(|found| is_held(found.what)),
        Kind::Same | Kind::Removed => false,
    }
}

/// The path of an entry in the archive.
fn member(path: &[u8]) -> Vec<u8> {
    match path.is_empty() {
        true => b".".to_vec(),
        false => [b"./", path].concat(),
    }
}

/// The last name of a path.
fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

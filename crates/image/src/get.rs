//! Files and directories of a file system copied to a directory of this machine, with all that may
//! be restored.
//!
//! Names come from an image that may be hostile. Every name is made relative to an open directory,
//! with no symbolic link followed ([`place`]), so nothing lands outside the destination, whatever
//! links the image plants there first.
//!
//! A file gets its name when its contents and attributes are complete ([`aside`]). A run that was
//! interrupted is therefore completed by a second one, which accepts what is complete already.

mod aside;
mod attributes;
mod place;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType as HostType, Mode};
use rustix::io::Errno;
use uext4::{Image, Inode};
use uext4_ondisk::inode::FileType;

pub use self::attributes::Refused;
use self::attributes::{Restorer, has_times_of};
use self::place::Place;
use crate::budget::Budget;
use crate::error::path_buf;
use crate::links::Links;
use crate::put::Existing;
use crate::readable::{Part, read_parts};
use crate::walk::{Entry, Order, Problem, Step, Walk};

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Why something was not copied, or not wholly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// The name, or the directory it leads to, is damaged.
    #[error("{}: {problem}", path.display())]
    Problem {
        /// In the image.
        path: PathBuf,
        /// What is wrong.
        problem: Problem,
    },
    /// It could not be read.
    #[error("{}: {source}", path.display())]
    Image {
        /// In the image.
        path: PathBuf,
        /// Why.
        source: uext4::Error,
    },
    /// A directory is there, with all that is in it, but some of its attributes are not.
    #[error("{}: {source}", path.display())]
    Attributes {
        /// In the image.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could not be made.
    #[error("{}: {source}", path.display())]
    Host {
        /// In the image; the destination if that cannot be opened.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What is copied, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// Its path in the image.
    pub path: &'a [u8],
    /// The inode of the path.
    pub top: &'a Inode,
    /// If it is a directory, the copy is made inside it under its own name, and the contents of "/"
    /// directly in it; else it is the copy's name.
    pub dest: &'a Path,
    /// What becomes of files that are there. Those that are refused are accepted if they have the
    /// type, size and modification time of the image's.
    pub existing: Existing,
    /// What becomes of files that cannot be read wholly.
    pub unreadable: Unreadable,
}

/// What becomes of files that cannot be read wholly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// They are left out.
    #[default]
    LeaveOut,
    /// What can be read is copied; the copy has a hole where a block cannot be read.
    Hole,
}

/// Is notified of what is copied.
pub trait Watcher {
    /// One name more, of a file of so many bytes.
    fn copied(&mut self, bytes: u64);
    /// Something was not copied, or not wholly; the rest goes on.
    fn failed(&mut self, error: GetError);
    /// Bytes of a file could not be read, in ascending order: the copy has a hole there. Only with
    /// [`Unreadable::Hole`], after the first error of the file was passed to
    /// [`Watcher::failed`].
    fn missing(&mut self, _file: &Inode, _bytes: Range<u64>) {}
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetReport {
    /// Names that are there now.
    pub entries: u64,
    /// What the destination refused.
    pub refused: Refused,
}

/// Copies a file or directory out of a file system: modes, times, hard links, holes, symbolic
/// links, fifos and sockets, and xattrs and ACLs as far as the destination takes them; owners and
/// devices when run by root.
///
/// # Errors
/// [`GetError::Host`] if a directory of the destination cannot be entered or left.
pub fn get(fs: &Image, what: &Get<'_>, watcher: &mut dyn Watcher) -> Result<GetReport, GetError> {
    let (place, top_name) = destination(what.path, what.dest)?;
    let mut copy = Copy {
        fs,
        place,
        top: what.path,
        top_name,
        restorer: Restorer::new(),
        links: Links::default(),
        watcher,
        piece: vec![0; PIECE],
        budget: Budget::new(fs),
        existing: what.existing,
        unreadable: what.unreadable,
        entries: 0,
    };
    let mut walk = Walk::new(fs, what.top.clone(), Order::Nested);
    let mut open = Vec::new();
    while let Some(step) = walk.step() {
        match step {
            Step::Entry(entry) => {
                let (ino, size) = (
                    entry.ino,
                    entry.inode.as_ref().map_or(0, |inode| inode.size),
                );
                if !copy.entry(entry, walk.path()) {
                    walk.skip_contents(ino);
                }
                copy.watcher.copied(size);
            }
            Step::Enter(dir) => {
                copy.enter(walk.path())?;
                open.push(dir);
            }
            Step::Leave => {
                if let Some(dir) = open.pop() {
                    copy.leave(&dir, walk.path())?;
                }
            }
        }
    }
    Ok(GetReport {
        entries: copy.entries,
        refused: copy.restorer.refused,
    })
}

/// The directory in which the copy is made, and the copy's name there; `None` if the copy is that
/// directory itself.
fn destination(path: &[u8], dest: &Path) -> Result<(Place, Option<Vec<u8>>), GetError> {
    let own = path.rsplit(|&b| b == b'/').find(|part| !part.is_empty());
    let own = own.filter(|name| !matches!(*name, b"." | b".."));
    let (dir, name) = match (dest.is_dir(), own) {
        (true, own) => (dest, own.map(<[u8]>::to_vec)),
        (false, _) => {
            let parent = dest.parent().filter(|dir| !dir.as_os_str().is_empty());
            let name = dest.file_name().map(|name| name.as_bytes().to_vec());
            match (parent, name) {
                (parent, Some(name)) => (parent.unwrap_or(Path::new(".")), Some(name)),
                // "missing/..": opening it says what is wrong.
                (_, None) => (dest, None),
            }
        }
    };
    let place = Place::open(dir).map_err(|error| GetError::Host {
        path: dir.to_path_buf(),
        source: error.into(),
    })?;
    Ok((place, name))
}

struct Copy<'a> {
    fs: &'a Image,
    place: Place,
    /// Path of the walk's top in the image, as it was asked for.
    top: &'a [u8],
    /// Its name in the destination; `None` if it is the destination itself.
    top_name: Option<Vec<u8>>,
    restorer: Restorer,
    links: Links,
    watcher: &'a mut dyn Watcher,
    piece: Vec<u8>,
    budget: Budget,
    existing: Existing,
    unreadable: Unreadable,
    /// Names that are there now.
    entries: u64,
}

impl Copy<'_> {
    /// A path below the top, in the image.
    fn path(&self, path: &[u8]) -> PathBuf {
        path_buf(if path.is_empty() { self.top } else { path })
    }

    /// Makes one name; false if it is a directory that could not be made.
    fn entry(&mut self, mut entry: Entry, path: &[u8]) -> bool {
        let is_unusable = entry.is_unusable();
        if let Some(problem) = entry.problem.take() {
            let path = self.path(path);
            self.watcher.failed(GetError::Problem { path, problem });
        }
        if is_unusable {
            return false;
        }
        let name = match (entry.depth, &self.top_name) {
            (0, Some(name)) => name.clone(),
            // The destination is there, and was opened.
            (0, None) => return entry.inode.is_ok(),
            _ => entry.name,
        };
        let result = match entry.inode {
            Ok(inode) => self.make(&inode, &name, path),
            Err(error) => Err(error.into()),
        };
        match result {
            Ok(()) => self.entries += 1,
            Err(trouble) => return self.failed(path, trouble),
        }
        true
    }

    /// Reports what was not copied.
    fn failed(&mut self, path: &[u8], trouble: Trouble) -> bool {
        let path = self.path(path);
        self.watcher.failed(match trouble {
            Trouble::Image(source) => GetError::Image { path, source },
            Trouble::Host(source) => GetError::Host { path, source },
        });
        false
    }

    fn make(&mut self, inode: &Inode, name: &[u8], path: &[u8]) -> Result<(), Trouble> {
        if inode.file_type == FileType::Directory {
            return Ok(self.place.make_dir(name)?);
        }
        let first = self.links.first(inode, path);
        let made = match self.exists(inode, name) {
            Ok(true) => return Ok(()),
            Ok(false) => self.make_file(inode, name, path, first.as_deref()),
            Err(error) => Err(error),
        };
        if made.is_err() && first.is_none() {
            self.links.forget(inode);
        }
        made
    }

    /// Whether the name is there and complete, as an interrupted run has left it.
    fn exists(&self, inode: &Inode, name: &[u8]) -> Result<bool, Trouble> {
        if self.existing == Existing::Replace {
            return Ok(false);
        }
        let Some(stat) = self.place.look(name)? else {
            return Ok(false);
        };
        let kind = HostType::from_raw_mode(stat.st_mode);
        let is_complete = kind == host_type(inode)
            && has_times_of(&stat, inode)
            && match kind {
                HostType::RegularFile => u64::try_from(stat.st_size) == Ok(inode.size),
                HostType::Symlink => self.place.read_link(name)? == self.fs.read_link(inode)?,
                HostType::CharacterDevice | HostType::BlockDevice => stat.st_rdev == device(inode),
                _ => true,
            };
        match is_complete {
            true => Ok(true),
            false => Err(Trouble::Host(Errno::EXIST.into())),
        }
    }

    /// Makes a name of something that is no directory; `first` is an earlier name of it.
    fn make_file(
        &mut self,
        inode: &Inode,
        name: &[u8],
        path: &[u8],
        first: Option<&[u8]>,
    ) -> Result<(), Trouble> {
        if let Some(first) = first {
            match self.place.link(first, name, self.existing) {
                // Better a copy than nothing: here files have fewer links, or paths are shorter.
                Err(error) if may_copy(&error) => self.links.forget(inode),
                linked => return Ok(linked?),
            }
        }
        if inode.file_type == FileType::Regular {
            return self.file(inode, name, path);
        }
        let aside = match inode.file_type {
            FileType::Symlink => {
                let target = self.fs.read_link(inode)?;
                self.place
                    .aside(|dir, aside| rustix::fs::symlinkat(&target[..], dir, aside))?
            }
            _ => self.place.aside(|dir, aside| {
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(dir, aside, host_type(inode), mode, device(inode))
            })?,
        };
        let xattrs = self.xattrs(inode, path);
        if let Some((dir, name)) = aside.name() {
            self.restorer.special(dir, name, inode, &xattrs)?;
        }
        Ok(aside.publish(name, self.existing)?)
    }

    fn xattrs(&mut self, inode: &Inode, path: &[u8]) -> Vec<uext4::xattr::Xattr> {
        self.fs.xattrs(inode).unwrap_or_else(|error| {
            self.failed(path, error.into());
            Vec::new()
        })
    }

    fn file(&mut self, inode: &Inode, name: &[u8], path: &[u8]) -> Result<(), Trouble> {
        // Encrypted contents are refused here, before anything is made.
        let ranges = self.fs.data_ranges(inode)?;
        let xattrs = match self.unreadable {
            Unreadable::LeaveOut => self.fs.xattrs(inode)?,
            Unreadable::Hole => self.xattrs(inode, path),
        };
        let (file, aside) = self.place.file()?;
        file.set_len(inode.size)?;
        match self.unreadable {
            Unreadable::LeaveOut => self.write(inode, ranges, &file)?,
            Unreadable::Hole => self.write_readable(inode, path, ranges, &file)?,
        }
        self.restorer.opened(file.as_fd(), inode, &xattrs)?;
        Ok(aside.publish(name, self.existing)?)
    }

    fn write(
        &mut self,
        inode: &Inode,
        ranges: uext4::data::DataRanges,
        file: &File,
    ) -> Result<(), Trouble> {
        for range in ranges {
            let range = range?;
            self.budget.take(inode, &range)?;
            let (mut at, end) = (range.start, range.end.min(inode.size));
            while at < end {
                let want = self.piece.len().min((end - at) as usize);
                let got = self.fs.read_at(inode, at, &mut self.piece[..want])?;
                if got == 0 {
                    break;
                }
                file.write_all_at(&self.piece[..got], at)?;
                at += got as u64;
            }
        }
        Ok(())
    }

    /// The same, but for the blocks that cannot be read.
    fn write_readable(
        &mut self,
        inode: &Inode,
        path: &[u8],
        ranges: uext4::data::DataRanges,
        file: &File,
    ) -> Result<(), Trouble> {
        let mut end = 0;
        for range in ranges {
            let (range, is_mapped) = match range {
                Ok(range) => (range.start..range.end.min(inode.size), true),
                // Where the rest lies is not known, but some of its blocks may still be found.
                Err(error) => {
                    self.failed(path, error.into());
                    (end..inode.size, false)
                }
            };
            end = range.end;
            if let Err(error) = self.budget.take(inode, &range) {
                self.failed(path, error.into());
                self.watcher.missing(inode, range.start..inode.size);
                break;
            }
            self.write_parts(inode, path, &range, is_mapped, file)?;
            if !is_mapped {
                break;
            }
        }
        Ok(())
    }

    /// Writes what can be read of a range; zeroes only if the map says that they are data.
    fn write_parts(
        &mut self,
        inode: &Inode,
        path: &[u8],
        range: &Range<u64>,
        is_mapped: bool,
        file: &File,
    ) -> io::Result<()> {
        let mut piece = std::mem::take(&mut self.piece);
        let mut is_reported = !is_mapped;
        let written = read_parts(self.fs, inode, range, &mut piece, |part| match part {
            Part::Data { offset, bytes } => {
                match is_mapped || bytes.iter().any(|&byte| byte != 0) {
                    true => file.write_all_at(bytes, offset),
                    false => Ok(()),
                }
            }
            Part::Missing { bytes, error } => {
                if let Some(error) = error
                    && !std::mem::replace(&mut is_reported, true)
                {
                    self.failed(path, error.into());
                }
                self.watcher.missing(inode, bytes);
                Ok(())
            }
        });
        self.piece = piece;
        written
    }

    fn enter(&mut self, path: &[u8]) -> Result<(), GetError> {
        let name = match path.rsplit(|&b| b == b'/').next() {
            Some(name) if !name.is_empty() => Some(name),
            _ => self.top_name.as_deref(),
        };
        self.place.enter(name).map_err(|error| GetError::Host {
            path: self.path(path),
            source: error.into(),
        })
    }

    /// A directory's attributes come last: what is made in it would change its times, and its mode
    /// might forbid making anything.
    fn leave(&mut self, dir: &Inode, path: &[u8]) -> Result<(), GetError> {
        let left = self.place.leave().map_err(|source| GetError::Host {
            path: self.path(path),
            source,
        })?;
        let xattrs = self.xattrs(dir, path);
        if let Err(source) = self.restorer.opened(left.as_fd(), dir, &xattrs) {
            let path = self.path(path);
            self.watcher.failed(GetError::Attributes { path, source });
        }
        Ok(())
    }
}

fn host_type(inode: &Inode) -> HostType {
    match inode.file_type {
        FileType::Regular => HostType::RegularFile,
        FileType::Directory => HostType::Directory,
        FileType::Symlink => HostType::Symlink,
        FileType::CharDevice => HostType::CharacterDevice,
        FileType::BlockDevice => HostType::BlockDevice,
        FileType::Fifo => HostType::Fifo,
        _ => HostType::Socket,
    }
}

/// The number of a device; 0 for what is none.
fn device(inode: &Inode) -> rustix::fs::Dev {
    let rdev = inode.rdev.unwrap_or_default();
    rustix::fs::makedev(rdev.major, rdev.minor)
}

/// Whether a copy can take the place of a hard link that failed so: `EXDEV` is what an older
/// Landlock says to a link into another directory.
fn may_copy(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        raw,
        Some(Errno::MLINK | Errno::NAMETOOLONG | Errno::PERM | Errno::NOTSUP | Errno::XDEV)
    )
}

/// Which side failed.
enum Trouble {
    Image(uext4::Error),
    Host(io::Error),
}

impl From<uext4::Error> for Trouble {
    fn from(error: uext4::Error) -> Self {
        Self::Image(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_the_file_system_or_a_sandbox_refuses_becomes_a_copy() {
        for errno in [Errno::XDEV, Errno::MLINK, Errno::PERM] {
            assert!(may_copy(&errno.into()), "{errno}");
        }
        assert!(!may_copy(&Errno::NOSPC.into()));
    }
}

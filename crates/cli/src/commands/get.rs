//! `get`: files and directories copied out of the image, with all that may be restored.
//!
//! Names come from an image that may be hostile. Every name is made relative to an open directory,
//! with no symbolic link followed ([`place`]), so nothing lands outside the destination, whatever
//! links the image plants there first.

mod attributes;
mod place;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags};
use rustix::io::Errno;
use uext4::{Error, Filesystem, FollowLast, Inode};
use uext4_ondisk::inode::FileType;

use self::attributes::Restorer;
use self::place::Place;
use super::bytes;
use crate::args::ImageArgs;
use crate::budget::Budget;
use crate::failure::{Complaints, Exit, Failure};
use crate::links::Links;
use crate::open;
use crate::progress::Progress;
use crate::show::escaped;
use crate::walk::{Entry, Order, Step, Walk};

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Copy files and directories out of the image
///
/// Restores modes, times to the nanosecond, hard links, holes, symbolic links, fifos and sockets,
/// and xattrs and ACLs as far as the destination takes them; owners and devices when run by root.
/// If DEST is a directory, the copy is made inside it under its own name (the contents of "/"
/// directly in it); else DEST is the copy's name. Existing files are kept unless --overwrite.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 get disk.img /etc/fstab .
  uext4 get disk.img /home ./home-of-the-image
  sudo uext4 get disk.img / /mnt/restored")]
pub struct GetArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// File or directory in the image
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Where to put it
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,
}

/// Copies; what cannot be copied is told and left out.
pub fn run(args: &GetArgs) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let path = bytes(args.path.as_os_str());
    let top = open::resolve(&fs, path, FollowLast::No)?;
    let dest = destination(path, &args.dest);
    let parent = match dest.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = dest
        .file_name()
        .map_or(b"." as &[u8], |name| name.as_bytes());
    let place =
        Place::open(parent).map_err(|error| Failure::io(parent.display(), &error.into()))?;
    let mut copy = Copy {
        fs: &fs,
        place,
        top: path.to_vec(),
        top_name: name.to_vec(),
        restorer: Restorer::new(),
        links: Links::default(),
        complaints: Complaints::new(),
        piece: vec![0; PIECE],
        budget: Budget::new(&fs),
        overwrite: args.overwrite,
    };
    let mut progress = Progress::new("copied");
    let mut walk = Walk::new(&fs, top, Order::Nested);
    let mut open = Vec::new();
    while let Some(step) = walk.step() {
        match step {
            Step::Entry(entry) => {
                if !copy.entry(&entry, walk.path()) {
                    walk.skip_contents(entry.ino);
                }
                progress.add(entry.inode.as_ref().map_or(0, |inode| inode.size));
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
    copy.restorer.tell_what_is_missing();
    Ok(copy.complaints.exit())
}

/// Where the copy itself is to be.
fn destination(path: &[u8], dest: &Path) -> PathBuf {
    let name = path.rsplit(|&b| b == b'/').find(|part| !part.is_empty());
    match name {
        Some(name) if dest.is_dir() && name != b"." && name != b".." => {
            dest.join(std::ffi::OsStr::from_bytes(name))
        }
        // "out/.": the directory itself, not a name in its parent that may be a link.
        None if dest.is_dir() => dest.join("."),
        _ => dest.to_owned(),
    }
}

struct Copy<'a> {
    fs: &'a Filesystem,
    place: Place,
    /// Path of the walk's top in the image, as it was asked for.
    top: Vec<u8>,
    top_name: Vec<u8>,
    restorer: Restorer,
    links: Links,
    complaints: Complaints,
    piece: Vec<u8>,
    budget: Budget,
    overwrite: bool,
}

impl Copy<'_> {
    /// How a path below the top is called.
    fn shown(&self, path: &[u8]) -> String {
        escaped(if path.is_empty() { &self.top } else { path })
    }

    /// Makes one name; false if it is a directory that could not be made.
    fn entry(&mut self, entry: &Entry, path: &[u8]) -> bool {
        if let Some(problem) = &entry.problem {
            self.complaints.tell(
                Exit::Damaged,
                format_args!("{}: {problem}", self.shown(path)),
            );
        }
        if entry.is_unusable() {
            return false;
        }
        let name = if entry.depth == 0 {
            self.top_name.clone()
        } else {
            entry.name.clone()
        };
        let result = match &entry.inode {
            Ok(inode) => self.make(inode, &name, path),
            Err(error) => {
                self.complaints.engine(self.shown(path), error);
                return false;
            }
        };
        match result {
            Ok(()) => true,
            Err(Trouble::Image(error)) => {
                self.complaints.engine(self.shown(path), &error);
                false
            }
            Err(Trouble::Host(error)) => {
                let hint = match error.kind() {
                    io::ErrorKind::AlreadyExists => " (see --overwrite)",
                    _ => "",
                };
                let exit = match error.kind() {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::AlreadyExists => {
                        Exit::Incomplete
                    }
                    _ => Exit::CouldNot,
                };
                self.complaints
                    .tell(exit, format_args!("{}: {error}{hint}", self.shown(path)));
                false
            }
        }
    }

    fn make(&mut self, inode: &Inode, name: &[u8], path: &[u8]) -> Result<(), Trouble> {
        if inode.file_type == FileType::Directory {
            return Ok(self.place.make_dir(name)?);
        }
        if self.overwrite {
            self.place.remove(name)?;
        }
        if let Some(first) = self.links.first(inode, path) {
            match self.place.link(&first, name) {
                // Better a copy than nothing: here files have fewer links, or paths are shorter.
                Err(error) if may_copy(&error) => self.links.forget(inode),
                linked => return Ok(linked?),
            }
        }
        let made = match inode.file_type {
            FileType::Regular => self.file(inode, name),
            FileType::Symlink => {
                let target = self.fs.read_link(inode)?;
                let made = rustix::fs::symlinkat(&target[..], &self.place, name);
                made.map_err(|e| Trouble::Host(e.into()))
                    .and_then(|()| self.nameless(inode, name, path))
            }
            _ => self
                .node(inode, name)
                .and_then(|()| self.nameless(inode, name, path)),
        };
        if made.is_err() {
            self.links.forget(inode);
        }
        made
    }

    /// Attributes of what cannot be opened.
    fn nameless(&mut self, inode: &Inode, name: &[u8], path: &[u8]) -> Result<(), Trouble> {
        let xattrs = self.xattrs(inode, path);
        Ok(self
            .restorer
            .special(self.place.as_fd(), name, inode, &xattrs)?)
    }

    fn xattrs(&mut self, inode: &Inode, path: &[u8]) -> Vec<uext4::Xattr> {
        self.fs.xattrs(inode).unwrap_or_else(|error| {
            self.complaints.engine(self.shown(path), &error);
            Vec::new()
        })
    }

    fn node(&mut self, inode: &Inode, name: &[u8]) -> Result<(), Trouble> {
        let kind = match inode.file_type {
            FileType::CharDevice => HostType::CharacterDevice,
            FileType::BlockDevice => HostType::BlockDevice,
            FileType::Fifo => HostType::Fifo,
            _ => HostType::Socket,
        };
        let rdev = inode.rdev.unwrap_or_default();
        let device = rustix::fs::makedev(rdev.major, rdev.minor);
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(&self.place, name, kind, mode, device).map_err(io::Error::from)?;
        Ok(())
    }

    fn file(&mut self, inode: &Inode, name: &[u8]) -> Result<(), Trouble> {
        // Encrypted contents are refused here, before anything is made.
        let ranges = self.fs.data_ranges(inode)?;
        let xattrs = self.fs.xattrs(inode)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o600);
        let fd = rustix::fs::openat(&self.place, name, flags | OFlags::CLOEXEC, mode);
        let file = File::from(fd.map_err(io::Error::from)?);
        let written = self.write(inode, ranges, &file);
        let restored =
            written.and_then(|()| Ok(self.restorer.opened(file.as_fd(), inode, &xattrs)?));
        if restored.is_err() {
            // Half a file would pass for the whole; its loss is told instead.
            let _ = rustix::fs::unlinkat(&self.place, name, AtFlags::empty());
        }
        restored
    }

    fn write(
        &mut self,
        inode: &Inode,
        ranges: uext4::DataRanges,
        file: &File,
    ) -> Result<(), Trouble> {
        file.set_len(inode.size)?;
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

    fn enter(&mut self, path: &[u8]) -> Result<(), Failure> {
        let name = match path.rsplit(|&b| b == b'/').next() {
            Some(name) if !name.is_empty() => name.to_vec(),
            _ => self.top_name.clone(),
        };
        let entered = self.place.enter(&name);
        entered.map_err(|error| Failure::io(self.shown(path), &error.into()))
    }

    /// A directory's attributes come last: what is made in it would change its times, and its mode
    /// might forbid making anything.
    fn leave(&mut self, dir: &Inode, path: &[u8]) -> Result<(), Failure> {
        let left = self.place.leave();
        let left = left.map_err(|error| Failure::io(self.shown(path), &error))?;
        let xattrs = self.xattrs(dir, path);
        if let Err(error) = self.restorer.opened(left.as_fd(), dir, &xattrs) {
            self.complaints.tell(
                Exit::Incomplete,
                format_args!("{}: {error}", self.shown(path)),
            );
        }
        Ok(())
    }
}

/// Whether a copy can take the place of a hard link that failed so.
fn may_copy(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        raw,
        Some(Errno::MLINK | Errno::NAMETOOLONG | Errno::PERM | Errno::NOTSUP)
    )
}

/// Which side failed.
enum Trouble {
    Image(Error),
    Host(io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Image(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

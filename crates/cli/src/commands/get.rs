//! `get`: files and directories copied out of the image, with all that may be restored.
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
mod preloaded;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::{FileType as HostType, Mode};
use rustix::io::Errno;
use uext4::{Error, FollowLast, Image, Inode};
use uext4_image::Existing;
use uext4_ondisk::inode::FileType;

use self::attributes::{Restorer, has_times_of};
use self::place::Place;
use super::{Output, bytes};
use crate::args::ImageArgs;
use crate::budget::Budget;
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
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
/// and xattrs and ACLs as far as the destination takes them; owners and devices when run by root,
/// or under fakeroot or pseudo, which then show them.
/// Set-user-id and set-group-id are dropped where the owner or the group cannot be restored.
/// If DEST is a directory, the copy is made inside it under its own name (the contents of "/"
/// directly in it); else DEST is the copy's name. Existing files are kept unless --overwrite.
///
/// A file appears under its name when it is complete. After an interruption the same command makes
/// the rest: existing files with the type, size and modification time of the image's are accepted.
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
    /// One JSON object about what was copied
    #[arg(long)]
    json: bool,
}

/// Copies; what cannot be copied is told and left out.
pub fn run(args: &GetArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let path = &*open::meant(&fs, bytes(args.path.as_os_str()));
    let top = open::resolve(&fs, path, FollowLast::No)?;
    let (place, top_name) = destination(path, &args.dest)?;
    let mut copy = Copy {
        fs: &fs,
        place,
        top: path.to_vec(),
        top_name,
        restorer: Restorer::new(),
        links: Links::default(),
        complaints: Complaints::new(),
        piece: vec![0; PIECE],
        budget: Budget::new(&fs),
        existing: match args.overwrite {
            true => Existing::Replace,
            false => Existing::Refuse,
        },
        entries: 0,
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
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("image")
            .text(bytes(args.image.place.image.as_os_str()));
        json.key("path").text(path);
        json.key("entries").number(copy.entries);
        copy.restorer.write(&mut json);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
    }
    Ok(copy.complaints.exit())
}

/// The directory in which the copy is made, and the copy's name there; `None` if the copy is that
/// directory itself.
fn destination(path: &[u8], dest: &Path) -> Result<(Place, Option<Vec<u8>>), Failure> {
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
    let place = Place::open(dir).map_err(|error| Failure::io(dir.display(), &error.into()))?;
    Ok((place, name))
}

struct Copy<'a> {
    fs: &'a Image,
    place: Place,
    /// Path of the walk's top in the image, as it was asked for.
    top: Vec<u8>,
    /// Its name in the destination; `None` if it is the destination itself.
    top_name: Option<Vec<u8>>,
    restorer: Restorer,
    links: Links,
    complaints: Complaints,
    piece: Vec<u8>,
    budget: Budget,
    existing: Existing,
    /// Names that are there now.
    entries: u64,
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
        let name = match (entry.depth, &self.top_name) {
            (0, Some(name)) => name.clone(),
            // The destination is there, and was opened.
            (0, None) => return entry.inode.is_ok(),
            _ => entry.name.clone(),
        };
        let result = match &entry.inode {
            Ok(inode) => self.make(inode, &name, path),
            Err(error) => {
                self.complaints.engine(self.shown(path), error);
                return false;
            }
        };
        match result {
            Ok(()) => {
                self.entries += 1;
                true
            }
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
            return self.file(inode, name);
        }
        let aside = match inode.file_type {
            FileType::Symlink => {
                let target = self.fs.read_link(inode)?;
                self.place
                    .aside(|dir, aside| rustix::fs::symlinkat(&target[..], dir, aside))?
            }
            _ => self.place.aside(|dir, aside| {
                if preloaded::make_device(dir, aside, inode) {
                    return Ok(());
                }
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
            self.complaints.engine(self.shown(path), &error);
            Vec::new()
        })
    }

    fn file(&mut self, inode: &Inode, name: &[u8]) -> Result<(), Trouble> {
        // Encrypted contents are refused here, before anything is made.
        let ranges = self.fs.data_ranges(inode)?;
        let xattrs = self.fs.xattrs(inode)?;
        let (file, aside) = self.place.file()?;
        self.write(inode, ranges, &file)?;
        self.restorer.opened(file.as_fd(), inode, &xattrs)?;
        Ok(aside.publish(name, self.existing)?)
    }

    fn write(
        &mut self,
        inode: &Inode,
        ranges: uext4::data::DataRanges,
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
            Some(name) if !name.is_empty() => Some(name),
            _ => self.top_name.as_deref(),
        };
        let entered = self.place.enter(name);
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

//! A directory and all below it, in the order of the bytes of the names, depth first: the order of
//! `tar --sort=name`.
//!
//! Nothing is followed and nothing is opened that could block: contents of files are looked at
//! only where holes are likely (fewer blocks than the size needs). Access times stay as they are
//! where the kernel allows that (`O_NOATIME`, for the owner and root).

mod ahead;

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use uext4_ondisk::inode::{DeviceNumber, Timestamp};
use uext4_ondisk::xattr::{INDEX_SYSTEM, split_name};

use self::ahead::{Look, look_ahead};
use super::copies::{self, Copies};
use super::{Context, Listing, Owner, Store, device_refused, failed, owner};
use crate::error::Error;
use crate::ids::HostIds;
use crate::sparse::Holes;
use crate::tree::{Attributes, DataRange, EntryId, FileData, NewNode, NodeId, RANGES_MAX, Xattr};

/// Magic numbers of file systems that store files, as statfs(2) has them: ext2, ext3 and ext4;
/// tmpfs; xfs; btrfs; f2fs; zfs.
const STORING: [u32; 6] = [
    0xEF53,
    0x0102_1994,
    0x5846_5342,
    0x9123_683E,
    0xF2F5_2010,
    0x2FC1_2FC1,
];

/// Lists a directory into `listing`, as the source that has begun there; returns its store.
///
/// # Errors
/// [`Error::Source`] for what cannot be read, [`Error::TooMany`].
pub fn list(path: &Path, context: &Context<'_>, listing: &mut Listing) -> Result<Store, Error> {
    let (root, mut walk) = start(path, context, listing)?;
    let stat = rustix::fs::fstat(&root).map_err(|e| failed(path, "stat", e.into()))?;
    let place = Place::new(path, root.as_fd(), None);
    let attributes = walk.attributes(&stat, &place, None)?;
    let tree = &mut walk.listing.tree;
    tree.insert(b".", NewNode::Directory, attributes)?;
    let again = open_directory(root.as_fd(), b".").map_err(|e| failed(path, "open", e.into()))?;
    let level = walk.level(again, EntryId::ROOT, 0)?;
    walk.run(level)?;
    Ok(walk.store(root, path))
}

/// Lists one name of a directory, whatever it is, and all below it: the only entry of the tree's
/// root. A symbolic link is not followed.
///
/// # Errors
/// As [`list`].
pub fn list_one(
    dir: &Path,
    name: &OsStr,
    context: &Context<'_>,
    listing: &mut Listing,
) -> Result<Store, Error> {
    let (root, mut walk) = start(dir, context, listing)?;
    let fd = open_directory(root.as_fd(), b".").map_err(|e| failed(dir, "open", e.into()))?;
    let name = CString::new(name.as_bytes())
        .map_err(|_| failed(&dir.join(name), "open", io::ErrorKind::InvalidInput.into()))?;
    let level = Level {
        fd,
        entry: EntryId::ROOT,
        names: vec![name],
        looks: Vec::new(),
        outside: 0,
    };
    walk.run(level)?;
    Ok(walk.store(root, dir))
}

/// Opens the directory where a walk begins.
fn start<'a>(
    dir: &Path,
    context: &'a Context<'a>,
    listing: &'a mut Listing,
) -> Result<(OwnedFd, Walk<'a>), Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty());
    let root = root.map_err(|e| failed(dir, "open", e.into()))?;
    let stat = rustix::fs::fstat(&root).map_err(|e| failed(dir, "stat", e.into()))?;
    let walk = Walk {
        context,
        listing,
        path: dir.to_path_buf(),
        inside: Vec::new(),
        linked: HashMap::new(),
        device: stat.st_dev,
        true_sizes: HashMap::new(),
        ids: HostIds::default(),
        copies: Copies::new(context.spool_dir),
        // Asked once: it reads several files.
        threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    Ok((root, walk))
}

/// Opens a directory that may not be a link.
pub fn open_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    open(parent, name, OFlags::DIRECTORY)
}

/// Opens something to read, without following, blocking, or changing its access time.
pub fn open(parent: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let name = OsStr::from_bytes(name);
    match rustix::fs::openat(parent, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may ask for that.
        Err(Errno::PERM) => rustix::fs::openat(parent, name, flags, Mode::empty()),
        other => other,
    }
}

struct Walk<'a> {
    context: &'a Context<'a>,
    listing: &'a mut Listing,
    /// Where the walk is.
    path: PathBuf,
    /// The same, from the root of the source.
    inside: Vec<u8>,
    /// Files with several names, by device and inode.
    linked: HashMap<(u64, u64), NodeId>,
    /// The device the root is on.
    device: u64,
    /// Of devices, whether files that are empty by their size are empty.
    true_sizes: HashMap<u64, bool>,
    ids: HostIds,
    copies: Copies,
    /// That look at entries of a large directory.
    threads: NonZeroUsize,
}

/// A directory the walk is in.
struct Level {
    fd: OwnedFd,
    entry: EntryId,
    /// What is still to be seen, last first.
    names: Vec<CString>,
    /// What is known already of the last names.
    looks: Vec<Look>,
    /// Length of [`Walk::inside`] outside of it.
    outside: usize,
}

impl Walk<'_> {
    fn store(self, root: OwnedFd, path: &Path) -> Store {
        Store::Directory {
            root,
            path: path.to_path_buf(),
            copies: self.copies,
        }
    }

    fn run(&mut self, top: Level) -> Result<(), Error> {
        let mut levels = vec![top];
        while let Some(level) = levels.last_mut() {
            if level.looks.is_empty() {
                level.looks = look_ahead(self.threads, &level.fd, &self.path, &level.names);
            }
            let look = level.looks.pop();
            let Some(name) = level.names.pop() else {
                let outside = level.outside;
                if levels.len() > 1 {
                    self.path.pop();
                }
                self.inside.truncate(outside);
                levels.pop();
                continue;
            };
            let name = name.as_bytes();
            self.context.counter.check()?;
            let outside = self.inside.len();
            if outside > 0 {
                self.inside.push(b'/');
            }
            self.inside.extend_from_slice(name);
            self.path.push(OsStr::from_bytes(name));
            let entered = self.visit(level, name, look)?;
            if let Some((fd, entry)) = entered {
                let next = self.level(fd, entry, outside)?;
                levels.push(next);
                self.context.options.limits.check_depth(levels.len())?;
            } else {
                self.path.pop();
                self.inside.truncate(outside);
            }
        }
        Ok(())
    }

    fn level(&self, fd: OwnedFd, entry: EntryId, outside: usize) -> Result<Level, Error> {
        let read_error = |e: Errno| failed(&self.path, "read", e.into());
        let mut names = Vec::new();
        // What is left out is not even looked at: it may be a mount that does not answer.
        let mut inside = self.inside.clone();
        if !inside.is_empty() {
            inside.push(b'/');
        }
        let above = inside.len();
        for item in Dir::read_from(&fd).map_err(read_error)? {
            let name = item.map_err(read_error)?.file_name().to_owned();
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            inside.truncate(above);
            inside.extend_from_slice(name.as_bytes());
            let excludes = &self.context.options.excludes;
            if !excludes.matches(name.as_bytes(), &inside) {
                names.push(name);
            }
        }
        names.sort_unstable_by(|a, b| b.as_bytes().cmp(a.as_bytes()));
        Ok(Level {
            fd,
            entry,
            names,
            looks: Vec::new(),
            outside,
        })
    }

    /// Takes one entry; a directory that is to be entered is returned.
    fn visit(
        &mut self,
        level: &Level,
        name: &[u8],
        look: Option<Look>,
    ) -> Result<Option<(OwnedFd, EntryId)>, Error> {
        let os_name = OsStr::from_bytes(name);
        let (known, xattr_names) = match look {
            Some(look) => (look.stat, Some(look.xattrs)),
            None => (ahead::stat(level.fd.as_fd(), os_name), None),
        };
        let mut stat = known.map_err(|e| failed(&self.path, "stat", e))?;
        let target = if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            let target = rustix::fs::readlinkat(&level.fd, os_name, Vec::new());
            let target = target.map_err(|e| self.failed("read", e))?;
            // Reading it was an access: listing again shows the same time only if it is reported
            // now.
            let again = ahead::stat(level.fd.as_fd(), os_name);
            stat = again.map_err(|e| failed(&self.path, "stat", e))?;
            target.into_bytes()
        } else {
            Vec::new()
        };
        let identity = (stat.st_dev, stat.st_ino);
        if self.context.leave_out == Some(identity) {
            self.listing
                .warnings
                .add(&self.inside, "left out: it is the output");
            return Ok(None);
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        let shared = stat.st_nlink > 1 && kind != FileType::Directory;
        if let Some(&node) = self.linked.get(&identity).filter(|_| shared) {
            self.listing.tree.link_at(level.entry, name, node)?;
            self.context.counter.entry();
            return Ok(None);
        }
        let place = Place::new(&self.path, level.fd.as_fd(), Some(name));
        let attributes = self.attributes(&stat, &place, xattr_names)?;
        let bytes = match kind {
            FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0),
            _ => 0,
        };
        let limits = &self.context.options.limits;
        self.listing.used.add(limits, bytes, &attributes.xattrs)?;
        let entry = self.insert(level, name, &stat, &target, attributes)?;
        self.context.counter.entry();
        if shared {
            self.linked
                .insert(identity, self.listing.tree.node_id(entry));
        }
        let other_device = self.context.options.one_file_system && stat.st_dev != self.device;
        if kind != FileType::Directory || other_device {
            return Ok(None);
        }
        let fd = open_directory(level.fd.as_fd(), name).map_err(|e| self.failed("open", e))?;
        Ok(Some((fd, entry)))
    }

    fn insert(
        &mut self,
        level: &Level,
        name: &[u8],
        stat: &Stat,
        target: &[u8],
        attributes: Attributes,
    ) -> Result<EntryId, Error> {
        let number = || DeviceNumber {
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        };
        let pieces;
        let mut is_copied = false;
        let node = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => NewNode::Directory,
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                let copy = match size {
                    0 if !self.has_true_sizes(level, stat.st_dev) => self.copy(level, name)?,
                    _ => None,
                };
                is_copied = copy.is_some();
                if let Some(copies::Place { at, len }) = copy {
                    let data = FileData::Whole { at };
                    NewNode::File { size: len, data }
                } else {
                    pieces = self.pieces(level, name, stat, size)?;
                    let data = match &pieces {
                        Some(pieces) => FileData::Sparse(pieces),
                        None => FileData::Whole { at: 0 },
                    };
                    NewNode::File { size, data }
                }
            }
            FileType::Symlink => NewNode::Symlink(target),
            FileType::CharacterDevice | FileType::BlockDevice
                if self.context.options.no_devices =>
            {
                return Err(device_refused(&self.inside));
            }
            FileType::CharacterDevice => NewNode::CharDevice(number()),
            FileType::BlockDevice => NewNode::BlockDevice(number()),
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
            FileType::Unknown => {
                return Err(Error::Path {
                    path: self.path.clone(),
                    why: "of a kind that an image cannot hold",
                });
            }
        };
        let entry = self
            .listing
            .tree
            .insert_at(level.entry, name, node, attributes)?;
        if is_copied {
            self.copies.note(self.listing.tree.node_id(entry));
        }
        Ok(entry)
    }

    /// True if files of this device that are empty by their size are empty, so that a million of
    /// them need not be opened: it has a file system of those that store files.
    fn has_true_sizes(&mut self, level: &Level, device: u64) -> bool {
        if let Some(&known) = self.true_sizes.get(&device) {
            return known;
        }
        let has_level = rustix::fs::fstat(&level.fd).is_ok_and(|stat| stat.st_dev == device);
        if !has_level {
            // A file that is mounted there itself: of its file system nothing is known.
            return false;
        }
        let statfs = rustix::fs::fstatfs(&level.fd);
        let known = statfs.is_ok_and(|statfs| STORING.contains(&(statfs.f_type as u32)));
        self.true_sizes.insert(device, known);
        known
    }

    /// Some file systems, such as that of `/proc`, give 0 as the size of files that have
    /// contents: a copy of these. `None` for what is empty, or may not be read and is empty by
    /// its size.
    fn copy(&mut self, level: &Level, name: &[u8]) -> Result<Option<copies::Place>, Error> {
        match open(level.fd.as_fd(), name, OFlags::empty()) {
            Ok(fd) => self.copies.take(&mut File::from(fd), &self.path),
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(e) => Err(self.failed("open", e)),
        }
    }

    /// The pieces of a file that seems to have holes; `None` if it has none, or shall have none.
    fn pieces(
        &self,
        level: &Level,
        name: &[u8],
        stat: &Stat,
        size: u64,
    ) -> Result<Option<Vec<DataRange>>, Error> {
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        if self.context.holes == Holes::Filled || blocks.saturating_mul(512) >= size {
            return Ok(None);
        }
        let fd = open(level.fd.as_fd(), name, OFlags::empty());
        let fd = fd.map_err(|e| self.failed("open", e))?;
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < size {
            let offset = match rustix::fs::seek(&fd, SeekFrom::Data(at)) {
                Ok(offset) if offset < size => offset,
                // Nothing but a hole from here on.
                Ok(_) | Err(Errno::NXIO) => break,
                // This file system does not report.
                Err(Errno::INVAL | Errno::OPNOTSUPP) if at == 0 => return Ok(None),
                Err(e) => return Err(self.failed("seek", e)),
            };
            let end = rustix::fs::seek(&fd, SeekFrom::Hole(offset));
            let end = end.map_err(|e| self.failed("seek", e))?.min(size);
            if end <= offset {
                return Err(Error::Changed {
                    path: self.path.clone(),
                    what: "its holes move",
                });
            }
            if pieces.len() >= RANGES_MAX {
                return Err(Error::TooMany {
                    what: "pieces of sparse files",
                    limit: RANGES_MAX as u64,
                });
            }
            pieces.push(DataRange {
                offset,
                len: end - offset,
                at: offset,
            });
            at = end;
        }
        let whole = matches!(pieces[..], [DataRange { offset: 0, len, .. }] if len == size);
        Ok((!whole).then_some(pieces))
    }

    fn attributes(
        &mut self,
        stat: &Stat,
        place: &Place<'_>,
        xattr_names: Option<Result<Vec<u8>, Errno>>,
    ) -> Result<Attributes, Error> {
        let time = |sec: i64, nsec: i64| Timestamp {
            sec,
            nsec: u32::try_from(nsec).unwrap_or(0),
        };
        let stored = Owner {
            uid: stat.st_uid,
            gid: stat.st_gid,
            uname: b"",
            gname: b"",
        };
        let (uid, gid) = owner(self.context.options, &self.ids, &stored);
        Ok(Attributes {
            mode: (stat.st_mode & 0o7777) as u16,
            uid,
            gid,
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
            xattrs: self.xattrs(place, xattr_names.unwrap_or_else(|| place.list()))?,
        })
    }

    fn xattrs(
        &mut self,
        place: &Place<'_>,
        names: Result<Vec<u8>, Errno>,
    ) -> Result<Vec<Xattr>, Error> {
        let names = match names {
            Ok(names) => names,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(e) => return Err(self.failed("list the extended attributes", e)),
        };
        let mut xattrs = Vec::new();
        for name in names.split(|&b| b == 0).filter(|n| !n.is_empty()) {
            let shown = String::from_utf8_lossy(name);
            match split_name(name) {
                Some((index, _)) if index != INDEX_SYSTEM => {}
                _ => {
                    let what = format!("{shown} left out: ext4 has no such attributes");
                    self.listing.warnings.add(&self.inside, what);
                    continue;
                }
            }
            match place.get(name) {
                Ok(value) => xattrs.push((name.to_vec(), value)),
                // Gone since, or listed without being there.
                Err(Errno::NODATA) => {}
                Err(e @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)) => {
                    let what = format!("{shown} left out: {}", io::Error::from(e));
                    self.listing.warnings.add(&self.inside, what);
                }
                Err(e) => return Err(self.failed("read an extended attribute", e)),
            }
        }
        Ok(xattrs)
    }

    fn failed(&self, op: &'static str, e: Errno) -> Error {
        failed(&self.path, op, e.into())
    }
}

/// A way to the attributes of an entry of any kind.
enum Place<'a> {
    /// The root of the source, which may have been given as a link.
    Root(BorrowedFd<'a>),
    /// Anything below. There is no call that takes a directory and a name, so it is the path, or
    /// one through `/proc` if that is too long.
    Below(PathBuf),
}

impl<'a> Place<'a> {
    /// Longest path the kernel takes.
    const PATH_MAX: usize = 4095;

    fn new(path: &Path, dir: BorrowedFd<'a>, name: Option<&[u8]>) -> Self {
        match name {
            None => Self::Root(dir),
            Some(name) if path.as_os_str().len() > Self::PATH_MAX => {
                let dir = format!("/proc/self/fd/{}", dir.as_raw_fd());
                Self::Below(Path::new(&dir).join(OsStr::from_bytes(name)))
            }
            Some(_) => Self::Below(path.to_path_buf()),
        }
    }

    /// Names, each with a zero byte after it.
    fn list(&self) -> Result<Vec<u8>, Errno> {
        sized(|buf| match self {
            Self::Root(fd) => rustix::fs::flistxattr(fd, buf),
            Self::Below(path) => rustix::fs::llistxattr(path, buf),
        })
    }

    fn get(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let name = OsStr::from_bytes(name);
        sized(|buf| match self {
            Self::Root(fd) => rustix::fs::fgetxattr(fd, name, buf),
            Self::Below(path) => rustix::fs::lgetxattr(path, name, buf),
        })
    }
}

/// What a call puts into a buffer: a small one, or, if it asks for more, the largest it can want.
fn sized(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut small = [0; 256];
    match call(&mut small) {
        Ok(len) => return Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(e) => return Err(e),
    }
    let mut large = vec![0; 65536];
    let len = call(&mut large)?;
    large.truncate(len);
    Ok(large)
}

#[cfg(test)]
mod tests;

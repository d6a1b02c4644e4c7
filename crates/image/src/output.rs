//! The image while it is made: a file next to its final name, a block device or a part of a disk in
//! place, or a file without a name that is copied to a stream.
//!
//! A file gets its name only when everything in it is durable; until then, and after any failure,
//! what had the name before still has it. Where the file system can, the file has no name at all
//! before, so that not even a killed process leaves anything; elsewhere it has a hidden one. On a
//! block device there is no second file: the superblock, written last, is what makes it a file
//! system.
//!
//! A file that has the name already is locked until it is replaced, so that no image in use is
//! lost, and the new file gets its permission bits and, where the system allows that, its owner.

mod in_disk;

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tempfile::{Builder, TempPath};
use uext4_blockdev::partition::{Guard, Place};
use uext4_blockdev::{Access, BlockDevice, FileDevice};

use crate::error::Error;
use crate::stream_out::Stream;
use crate::unflushed::Unflushed;
use in_disk::InDisk;
pub use in_disk::{Protection, fs_len};

/// Where an image goes, looked at but not touched.
#[derive(Debug)]
pub struct Output {
    /// With links followed; for a stream a name in the directory of temporary files.
    path: PathBuf,
    /// The block device, if it is one.
    block_device: Option<FileDevice>,
    /// The file that will be replaced, if there is one.
    present: Option<Present>,
    /// The stream that gets a copy, in place of all of these.
    stream: Option<Stream>,
    /// The part of a disk that it will be, in place of all of these.
    in_disk: Option<Box<InDisk>>,
}

/// A file that has the name already, locked against every other user.
#[derive(Debug)]
struct Present {
    /// Holds the lock; `None` if the file may not be read.
    _device: Option<FileDevice>,
    metadata: Metadata,
}

/// An image being made.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    device: Arc<FileDevice>,
    being: Being,
    /// The file that will be replaced, if there is one.
    present: Option<Present>,
}

/// What an image is until it is finished.
#[derive(Debug)]
enum Being {
    /// A file without a name, held by this descriptor.
    Unnamed(File),
    /// A file with a name of its own, which goes when this is dropped.
    Named(TempPath),
    /// The block device itself.
    InPlace,
    /// A file without a name, which is copied to a stream.
    Copied(File, Stream),
    /// A part of a disk.
    InDisk(Box<InDisk>, Arc<dyn BlockDevice>),
}

impl Present {
    /// Locks the file at `path`; `None` if there is none.
    fn lock(path: &Path) -> Result<Option<Self>, Error> {
        let Some(metadata) = metadata(path)? else {
            return Ok(None);
        };
        if !metadata.is_file() {
            return Err(not_replaceable(path));
        }
        let device = match FileDevice::open(path, Access::ReadOnly) {
            // A user who may not read the file may replace it in a directory of their own.
            Err(error) if matches!(&error, uext4_blockdev::Error::Open { source, .. } if source.kind() == io::ErrorKind::PermissionDenied) => {
                None
            }
            device => Some(device?),
        };
        if let Some(device) = &device {
            device.claim()?;
        }
        Ok(Some(Self {
            _device: device,
            metadata,
        }))
    }

    fn identity(&self) -> (u64, u64) {
        (self.metadata.dev(), self.metadata.ino())
    }

    /// Gives its owner and permission bits to the file at `path`.
    fn pass_on(&self, path: &Path) -> io::Result<()> {
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        let new = fs::metadata(path)?;
        if (new.uid(), new.gid()) != (uid, gid) {
            // An ordinary user may not give files away, and may replace those of others.
            let _ = std::os::unix::fs::chown(path, Some(uid), Some(gid));
        }
        fs::set_permissions(path, Permissions::from_mode(self.metadata.mode() & 0o777))
    }
}

/// What is at a path, with links followed; `None` if nothing is.
fn metadata(path: &Path) -> Result<Option<Metadata>, Error> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Output {
            path: path.to_path_buf(),
            source,
        }),
    }
}

fn to_stream_failed(source: io::Error) -> Error {
    let path = PathBuf::from("-");
    Error::Output { path, source }
}

fn not_replaceable(path: &Path) -> Error {
    let why = "is there already, and neither a file nor a block device";
    Error::Output {
        path: path.to_path_buf(),
        source: io::Error::new(io::ErrorKind::AlreadyExists, why),
    }
}

impl Output {
    /// Looks at `path`, which need not exist; its directory must. A file or block device that is
    /// there is locked.
    ///
    /// # Errors
    /// [`Error::Output`] if it is something that cannot be replaced; [`Error::Device`] if it is in
    /// use.
    pub fn look_at(path: &Path) -> Result<Self, Error> {
        let Some(metadata) = metadata(path)? else {
            return Ok(Self {
                path: path.to_path_buf(),
                block_device: None,
                present: None,
                stream: None,
                in_disk: None,
            });
        };
        let path = fs::canonicalize(path).map_err(|source| Error::Output {
            path: path.to_path_buf(),
            source,
        })?;
        if !metadata.file_type().is_block_device() {
            let present = Present::lock(&path)?;
            return Ok(Self {
                path,
                block_device: None,
                present,
                stream: None,
                in_disk: None,
            });
        }
        let device = FileDevice::open(&path, Access::ReadWrite)?;
        device.claim()?;
        Ok(Self {
            path,
            block_device: Some(device),
            present: None,
            stream: None,
            in_disk: None,
        })
    }

    /// A part of the disk at `path`, a file or a block device that is there: the image is written
    /// in place, and nothing else of the disk changes but what `protection` gives up.
    ///
    /// # Errors
    /// [`Error::Device`] if the disk is in use, or has no such part or one that is protected;
    /// [`Error::Output`].
    pub fn in_disk(path: &Path, place: &Place, protection: Protection) -> Result<Self, Error> {
        let failed = |source| Error::Output {
            path: path.to_path_buf(),
            source,
        };
        let real = fs::canonicalize(path).map_err(failed)?;
        let kind = fs::metadata(&real).map_err(failed)?.file_type();
        let part = InDisk::open(path, place, protection, kind.is_block_device())?;
        Ok(Self {
            in_disk: Some(Box::new(part)),
            path: real,
            block_device: None,
            present: None,
            stream: None,
        })
    }

    /// The same output, in place from byte `offset` on if there is something that would else be
    /// replaced as a whole: what lies before and behind a file system is not its own.
    pub(crate) fn beginning_at(self, offset: u64) -> Result<Self, Error> {
        let is_there = self.present.is_some() || self.block_device.is_some();
        if offset == 0 || !is_there {
            return Ok(self);
        }
        let path = self.path.clone();
        // Its lock is taken anew.
        drop(self);
        Self::in_disk(&path, &Place::Offset(offset), Protection::Keep)
    }

    /// Takes no more than `len` bytes of a disk; without a length, all that nothing else has.
    ///
    /// # Errors
    /// [`Error::Device`] if the table of the disk is damaged, so that this is not known.
    pub(crate) fn bounded_by(mut self, len: Option<u64>) -> Result<Self, Error> {
        if let Some(part) = &mut self.in_disk {
            part.bound(len)?;
        }
        Ok(self)
    }

    /// Bytes of the partition that it will be which lie past the end of the disk.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let part = self.in_disk.as_ref();
        part.map_or(0, |part| part.window.missing_on(&*part.device))
    }

    /// What protected the part of a disk, and is given up when the image is begun.
    #[must_use]
    pub fn given_up(&self) -> &[Guard] {
        self.in_disk.as_ref().map_or(&[], |part| part.guards())
    }

    /// Where on its disk it begins, in bytes, if it is a part of one.
    #[must_use]
    pub fn start_in_disk(&self) -> Option<u64> {
        self.in_disk.as_ref().map(|part| part.window.start)
    }

    /// The same error, said of the part of a disk if that is what is too small.
    pub(crate) fn said_of_disk(&self, error: Error) -> Error {
        match (&self.in_disk, error) {
            (Some(part), Error::Mkfs(uext4_mkfs::Error::DeviceTooSmall { need, have })) => {
                part.too_small(need, have)
            }
            (_, error) => error,
        }
    }

    /// A copy for a stream, such as standard output; the image is made in `directory`, in a file
    /// that has no name. A regular file is written from its position on, and gets the holes of
    /// the image where it had nothing. Nothing is made durable.
    ///
    /// # Errors
    /// [`Error::Output`] if the stream is a terminal.
    pub fn to_stream(stream: File, directory: &Path) -> Result<Self, Error> {
        Ok(Self {
            // No file gets this name.
            path: directory.join("-"),
            block_device: None,
            present: None,
            stream: Some(Stream::new(stream).map_err(to_stream_failed)?),
            in_disk: None,
        })
    }

    /// Device and inode of the file that will be replaced or changed, if there is one.
    pub fn identity(&self) -> Option<(u64, u64)> {
        match &self.in_disk {
            Some(part) => part.identity(),
            None => self.present.as_ref().map(Present::identity),
        }
    }

    /// Bytes of the block device or the part of a disk; `None` for a file, which gets the size it
    /// needs.
    pub fn device_len(&self) -> Option<u64> {
        match &self.in_disk {
            Some(part) => part.len(),
            None => self.block_device.as_ref().map(BlockDevice::len),
        }
    }

    /// Bytes of a sector of the block device; 512 for a file.
    pub fn sector_size(&self) -> u32 {
        let disk = self.in_disk.as_ref().map(|part| &*part.device);
        let device = disk.or(self.block_device.as_ref());
        device.map_or(512, BlockDevice::sector_size)
    }

    /// The directory temporary files go to.
    pub fn directory(&self) -> &Path {
        let is_device = self.in_disk.as_ref().map(|part| part.is_block_device);
        directory_for_files(&self.path, is_device.unwrap_or(self.block_device.is_some()))
    }

    /// True if it will be a file of its own, neither a block device nor a part of a disk.
    pub fn is_file(&self) -> bool {
        self.block_device.is_none() && self.in_disk.is_none()
    }

    /// Begins an image of `len` bytes, all zeroes but for what a block device held.
    ///
    /// # Errors
    /// [`Error::Output`] if there can be no file.
    pub fn begin(self, len: u64) -> Result<Draft, Error> {
        let failed = |source| Error::Output {
            path: self.path.clone(),
            source,
        };
        let (device, being) = if let Some(mut part) = self.in_disk {
            let window = part.begin(len)?;
            let device = Arc::clone(&part.device);
            return Ok(Draft {
                path: self.path,
                device,
                being: Being::InDisk(part, window),
                present: None,
            });
        } else if let Some(stream) = self.stream {
            let file = tempfile::tempfile_in(self.path.parent().unwrap_or(Path::new(".")));
            let made = file.and_then(|file| unnamed_device(file, len));
            let (device, file) = made.map_err(failed)?;
            (device, Being::Copied(file, stream))
        } else if let Some(device) = self.block_device {
            (device, Being::InPlace)
        } else if let Ok((device, file)) = unnamed(self.directory(), len) {
            (device, Being::Unnamed(file))
        } else {
            let made = hidden_name(&self.path, self.directory(), |path| {
                FileDevice::create(path, len).map_err(io_error)
            });
            let (device, name) = made.map_err(failed)?.into_parts();
            (device, Being::Named(name))
        };
        let made_at = match &being {
            Being::Unnamed(file) => Some(PathBuf::from(own_path(file))),
            Being::Named(name) => Some(name.to_path_buf()),
            Being::InPlace | Being::Copied(..) | Being::InDisk(..) => None,
        };
        if let (Some(present), Some(made_at)) = (&self.present, made_at) {
            present.pass_on(&made_at).map_err(failed)?;
        }
        Ok(Draft {
            path: self.path,
            device: Arc::new(device),
            being,
            present: self.present,
        })
    }
}

/// Where temporary files for an image at `path` go.
fn directory_for_files(path: &Path, is_block_device: bool) -> &Path {
    match path.parent() {
        // Nothing should fill /dev.
        _ if is_block_device => Path::new("/var/tmp"),
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// A file that has no name.
fn unnamed(dir: &Path, len: u64) -> io::Result<(FileDevice, File)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir, flags, Mode::from_raw_mode(0o666))?);
    unnamed_device(file, len)
}

/// A file that has no name, as a device of `len` bytes.
fn unnamed_device(file: File, len: u64) -> io::Result<(FileDevice, File)> {
    file.set_len(len)?;
    let device = FileDevice::open(own_path(&file), Access::ReadWrite).map_err(io_error)?;
    Ok((device, file))
}

/// A path to an open file that has none.
fn own_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn io_error(error: uext4_blockdev::Error) -> io::Error {
    match error {
        uext4_blockdev::Error::Open { source, .. } => source,
        other => io::Error::other(other),
    }
}

/// Makes something under a name no thread uses, next to the final one.
fn hidden_name<R>(
    path: &Path,
    dir: &Path,
    make: impl FnMut(&Path) -> io::Result<R>,
) -> io::Result<tempfile::NamedTempFile<R>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Cut, so that the whole is no longer than a name may be.
    let name: String = name.chars().take(50).collect();
    Builder::new()
        .prefix(&format!(".{name}.uext4-"))
        .make_in(dir, make)
}

impl Draft {
    /// Where to write. What is written to a file is durable only after [`Draft::finish`].
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        let device = Arc::clone(&self.device);
        match &self.being {
            Being::InPlace => device,
            Being::InDisk(_, window) => Arc::clone(window),
            Being::Unnamed(_) | Being::Named(_) | Being::Copied(..) => Arc::new(Unflushed(device)),
        }
    }

    /// Gives up what was written to a file: the output is as it was before [`Output::begin`].
    pub(crate) fn give_up(self) -> Output {
        Output {
            path: self.path,
            block_device: None,
            present: self.present,
            stream: match self.being {
                Being::Copied(_, stream) => Some(stream),
                _ => None,
            },
            in_disk: None,
        }
    }

    /// The file or block device itself; a file's length may still change.
    pub fn file(&self) -> &Arc<FileDevice> {
        &self.device
    }

    /// Device and inode of the file that will be replaced, if there is one.
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.present.as_ref().map(Present::identity)
    }

    /// The directory temporary files of a file go to.
    pub(crate) fn directory(&self) -> &Path {
        directory_for_files(&self.path, matches!(self.being, Being::InPlace))
    }

    /// Makes what was written durable, and gives it its name; or copies it to its stream.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::Output`]; the name is then as it was, and a stream may have a
    /// part of the image.
    pub fn finish(mut self) -> Result<(), Error> {
        if let Being::Copied(file, stream) = &mut self.being {
            return stream.copy(file, &*self.device).map_err(to_stream_failed);
        }
        self.device.flush()?;
        if let Being::InDisk(part, _) = &mut self.being {
            part.keep();
            return Ok(());
        }
        self.lock_again()?;
        let failed = |source| Error::Output {
            path: self.path.clone(),
            source,
        };
        let dir = match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let name = match self.being {
            Being::InPlace | Being::Copied(..) | Being::InDisk(..) => return Ok(()),
            Being::Named(name) => name,
            // There is no way to link a file over another: a name next to, then the final one.
            Being::Unnamed(file) => {
                let link = |path: &Path| {
                    let flags = AtFlags::SYMLINK_FOLLOW;
                    Ok(rustix::fs::linkat(CWD, own_path(&file), CWD, path, flags)?)
                };
                let linked = hidden_name(&self.path, dir, link).map_err(failed)?;
                linked.into_temp_path()
            }
        };
        // A link that leads nowhere is replaced as a file is.
        let replaces = self.present.is_some()
            || fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_symlink());
        let persisted = match replaces {
            true => name.persist(&self.path),
            false => name.persist_noclobber(&self.path),
        };
        persisted.map_err(|e| failed(e.error))?;
        // The new name is durable only when its directory is.
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        match synced {
            // Some file systems know no such thing.
            Err(e) if e.kind() != io::ErrorKind::InvalidInput => Err(failed(e)),
            _ => Ok(()),
        }
    }
}

impl Draft {
    /// Locks what has the name now, if that is not the file that was locked at the beginning.
    fn lock_again(&mut self) -> Result<(), Error> {
        if matches!(self.being, Being::InPlace) {
            return Ok(());
        }
        let now = metadata(&self.path)?.map(|now| (now.dev(), now.ino()));
        if self.present.is_none() && now.is_some() {
            let why = "another program has made a file of this name meanwhile";
            return Err(Error::Output {
                path: self.path.clone(),
                source: io::Error::new(io::ErrorKind::AlreadyExists, why),
            });
        }
        if now != self.present.as_ref().map(Present::identity) {
            self.present = Present::lock(&self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

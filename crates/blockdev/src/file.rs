//! Image files and block devices of the machine.
//!
//! Every transfer names its place (`pread`, `pwrite` and their vector forms), so threads share
//! one descriptor without a lock. The file position is used by no thread but `lseek`'s search for
//! holes, which reports its answer and does not care where it was left.
//!
//! Left out: direct I/O but for a device that the kernel has mounted (`direct`), `io_uring`, and
//! looking for holes before a read. The kernel answers a read
//! of a hole from nothing, while asking where a hole ends walks the whole run of data on tmpfs; who
//! reads much in order asks [`BlockDevice::next_data`] once a run.

use std::fs::{File, FileType, Metadata, OpenOptions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom as StdSeekFrom};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::behind::Behind;
use crate::claim::Claims;
use crate::direct::Direct;
use crate::vectors::{adjacent, transfer_all};
use crate::{BlockDevice, Error, ReadRequest, WriteRequest, attached, host, sys};

/// Zeroes are written in pieces of this many bytes where the medium knows no holes.
const ZEROES: usize = 256 * 1024;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes are refused, and the file is opened so that it cannot change.
    ReadOnly,
    /// Reads and writes. A block device that is mounted or otherwise held is not opened so.
    ReadWrite,
}

/// An image file or a block device of the machine.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    len: AtomicU64,
    access: Access,
    sector_size: u32,
    is_block_device: bool,
    /// Reads go here, if the kernel writes the device past its page cache.
    direct: Option<Direct>,
    is_rotational: bool,
    claims: Mutex<Claims>,
    behind: Behind,
}

/// Says what is wrong with a path that is no device, in words a user understands.
fn check_kind(kind: FileType) -> io::Result<()> {
    let reason = if kind.is_file() || kind.is_block_device() {
        return Ok(());
    } else if kind.is_dir() {
        "is a directory, not an image file or a block device"
    } else {
        "is neither an image file nor a block device"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Whether a lock was refused because the file system of the machine has none.
fn knows_no_locks(error: &io::Error) -> bool {
    let none = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOLCK];
    none.map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

/// Opens a file once more under its name, if that still names it.
fn open_again(path: &Path, opened: &Metadata) -> Option<File> {
    let again = File::open(path).ok()?;
    let found = again.metadata().ok()?;
    let is_same = (found.dev(), found.ino()) == (opened.dev(), opened.ino());
    is_same.then_some(again)
}

fn open_file(path: &Path, access: Access) -> io::Result<File> {
    // Looked at before it is opened, because opening a pipe waits for its other end.
    let kind = std::fs::metadata(path)?.file_type();
    check_kind(kind)?;
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite);
    if kind.is_block_device() && access == Access::ReadWrite {
        // Without creation this means: fail if it is mounted or part of another device.
        // OK to unwrap: the flag is one low bit.
        options.custom_flags(i32::try_from(OFlags::EXCL.bits()).unwrap());
    }
    options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "is in use: mounted, or held by another program",
        ),
        _ => error,
    })
}

impl FileDevice {
    /// Opens an image file or a block device.
    ///
    /// # Errors
    /// [`Error::Open`] if it cannot be opened, is neither of the two, or is a block device that
    /// was to be written, and is in use or read-only.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, Error> {
        let path = path.as_ref();
        let open_error = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let file = open_file(path, access).map_err(open_error)?;
        Self::opened(file, path, access).map_err(open_error)
    }

    /// An image file or a block device that was opened for reading, perhaps by another process;
    /// errors name it `path`.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn of_file(file: File, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::opened(file, path, Access::ReadOnly).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })
    }

    /// What the system says of the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn metadata(&self) -> Result<Metadata, Error> {
        let found = self.file.metadata();
        found.map_err(|source| Error::io("stat", 0, source))
    }

    /// The file opened once more, for reading, if its path still names it.
    #[must_use]
    pub fn reader(&self) -> Option<File> {
        open_again(&self.path, &self.metadata().ok()?)
    }

    fn opened(mut file: File, path: &Path, access: Access) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        check_kind(kind)?;
        // The length of a block device is found only by going to its end.
        let len = file.seek(StdSeekFrom::End(0))?;
        let is_block_device = kind.is_block_device();
        // Linux opens it for writing all the same, and fails the first write.
        if is_block_device && access == Access::ReadWrite && host::is_read_only(metadata.rdev()) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let sector_size = match is_block_device {
            true => rustix::fs::ioctl_blksszget(&file).unwrap_or(512),
            false => 512,
        };
        let path = path.to_owned();
        let disk = match is_block_device {
            true => metadata.rdev(),
            false => metadata.dev(),
        };
        let is_written = || attached::mount_of(metadata.rdev()).is_some_and(|mount| mount.writes);
        let direct = match is_block_device && access == Access::ReadOnly && is_written() {
            true => Direct::open(&path, &file, sector_size),
            false => None,
        };
        let again = match access {
            Access::ReadOnly => None,
            Access::ReadWrite => open_again(&path, &metadata),
        };
        Ok(Self {
            file,
            path,
            behind: Behind::new(again),
            direct,
            len: AtomicU64::new(len),
            access,
            sector_size,
            is_block_device,
            is_rotational: host::is_rotational(disk),
            claims: Mutex::default(),
        })
    }

    /// Makes a new file of `len` bytes that is one hole.
    ///
    /// # Errors
    /// [`Error::Open`] if it exists already or cannot be made.
    pub fn create(path: impl AsRef<Path>, len: u64) -> Result<Self, Error> {
        let path = path.as_ref();
        let open_error = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path);
        let file = file.map_err(open_error)?;
        if let Err(source) = file.set_len(len) {
            // No caller asked for an empty file; that it stays where removing fails is no new
            // harm.
            let _ = std::fs::remove_file(path);
            return Err(open_error(source));
        }
        let metadata = file.metadata().map_err(open_error)?;
        let is_rotational = host::is_rotational(metadata.dev());
        Ok(Self {
            file,
            path: path.to_owned(),
            behind: Behind::new(open_again(path, &metadata)),
            len: AtomicU64::new(len),
            access: Access::ReadWrite,
            sector_size: 512,
            is_block_device: false,
            direct: None,
            is_rotational,
            claims: Mutex::default(),
        })
    }

    /// The path it was opened under.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the descriptor by which the length can be set: a file's that is written.
    #[must_use]
    pub fn resizable(&self) -> Option<RawFd> {
        let can_be = self.access == Access::ReadWrite && !self.is_block_device;
        can_be.then(|| self.file.as_raw_fd())
    }

    /// Whether this is a block device and not a file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Takes the advisory lock (`flock`) that well-behaved programs ask for before they use an
    /// image, as its one exclusive holder. Held until the device is dropped.
    ///
    /// # Errors
    /// [`Error::Locked`] at once if another program holds it; [`Error::Io`].
    pub fn lock(&self) -> Result<(), Error> {
        self.lock_result(self.file.try_lock())
    }

    /// Takes the same lock as one of many shared holders. Held until the device is dropped.
    ///
    /// # Errors
    /// [`Error::Locked`] at once if another program holds it exclusively; [`Error::Io`].
    pub fn lock_shared(&self) -> Result<(), Error> {
        self.lock_result(self.file.try_lock_shared())
    }

    /// What taking the lock came to, as an error of this crate.
    fn lock_result(&self, taken: Result<(), TryLockError>) -> Result<(), Error> {
        taken.map_err(|error| match error {
            TryLockError::WouldBlock => self.locked(),
            TryLockError::Error(source) => Error::io("lock", 0, source),
        })
    }

    /// Claims exclusive use of the whole image file or device until this `FileDevice` is dropped,
    /// for a command that writes or replaces it. Works for devices opened for reading, too.
    ///
    /// # Errors
    /// [`Error::Locked`] at once if another writer or reader has locked it, [`Error::Attached`] if
    /// the kernel has it attached as a loop device or mounted, [`Error::Io`].
    pub fn claim(&self) -> Result<(), Error> {
        let mut claims = self.claims.lock();
        if claims.is_empty() {
            self.exclude_others()?;
            claims.is_whole = true;
            return Ok(());
        }
        Err(self.locked())
    }

    /// Takes the exclusive lock, and looks for users that take none.
    fn exclude_others(&self) -> Result<(), Error> {
        match self.lock() {
            // A file system without locks; what it holds can be used all the same.
            Err(Error::Io { source, .. }) if knows_no_locks(&source) => {}
            taken => taken?,
        }
        let unused = self.check_attached();
        if unused.is_err() {
            self.unlock();
        }
        unused
    }

    /// Fails with [`Error::Attached`].
    fn check_attached(&self) -> Result<(), Error> {
        let device = match self.is_block_device {
            true => Some(self.path.to_string_lossy().into_owned()),
            false => attached::loop_device(&self.path),
        };
        let Some(device) = device else { return Ok(()) };
        let mounted = attached::place_of(&device).map(|(dir, _)| dir);
        if self.is_block_device && mounted.is_none() {
            return Ok(());
        }
        Err(Error::Attached {
            path: self.path.clone(),
            device,
            mounted,
        })
    }

    fn unlock(&self) {
        // Closing the file does it for certain.
        _ = self.file.unlock();
    }

    fn locked(&self) -> Error {
        Error::Locked {
            path: self.path.clone(),
        }
    }

    fn check_write(&self, offset: u64, len: u64) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        Error::check_range(offset, len, self.len())
    }

    /// Makes the range a hole; on a block device, has the device zero it without data sent to it.
    /// False if that cannot be done.
    fn punch(&self, offset: u64, len: u64) -> Result<bool, Error> {
        if len == 0 {
            return Ok(true);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match rustix::fs::fallocate(&self.file, flags, offset, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                // No holes here, or (a block device) the range is not whole sectors.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => {
                    return Ok(false);
                }
                Err(errno) => return Err(Error::io("discard", offset, errno)),
            }
        }
    }

    /// Notifies a block device that the whole sectors of the range are not needed. False if it
    /// takes no discards.
    fn discard_sectors(&self, offset: u64, len: u64) -> Result<bool, Error> {
        let sector = u64::from(self.sector_size).max(1);
        let end = (offset + len) / sector * sector;
        let Some(start) = offset
            .checked_next_multiple_of(sector)
            .filter(|at| *at < end)
        else {
            return Ok(true);
        };
        loop {
            match sys::discard_sectors(&self.file, &(start..end)) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => return Ok(false),
                Err(errno) => return Err(Error::io("discard", offset, errno)),
            }
        }
    }

    /// Writes zeroes over the data of a range, leaving its holes alone.
    fn write_zeroes(&self, range: Range<u64>) -> Result<(), Error> {
        let zeroes =
            vec![0; ZEROES.min(usize::try_from(range.end - range.start).unwrap_or(ZEROES))];
        let mut at = range.start;
        while let Some(data) = self.next_data(at)?.filter(|data| data.start < range.end) {
            at = data.start;
            let end = data.end.min(range.end);
            while at < end {
                let count = usize::try_from(end - at)
                    .unwrap_or(ZEROES)
                    .min(zeroes.len());
                self.write_at(at, &zeroes[..count])?;
                at += count as u64;
            }
        }
        Ok(())
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn measure(&self) -> Result<u64, Error> {
        let end = rustix::fs::seek(&self.file, SeekFrom::End(0));
        let now = end.map_err(|errno| Error::io("seek to the end", self.len(), errno))?;
        Ok(now.max(self.len.fetch_max(now, Ordering::AcqRel)))
    }

    /// A file becomes longer by a hole. No block device can be changed so.
    fn set_len(&self, len: u64) -> Result<(), Error> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        if self.is_block_device {
            return Err(Error::FixedLength { len: self.len() });
        }
        self.file
            .set_len(len)
            .map_err(|source| Error::io("make the file end", len, source))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_rotational(&self) -> bool {
        self.is_rotational
    }

    fn claim_range(&self, range: &Range<u64>) -> Result<(), Error> {
        let mut claims = self.claims.lock();
        if claims.overlaps(range) {
            return Err(self.locked());
        }
        if claims.is_empty() {
            self.exclude_others()?;
        }
        claims.add(range);
        Ok(())
    }

    fn release_range(&self, range: &Range<u64>) {
        let mut claims = self.claims.lock();
        if claims.remove(range) {
            self.unlock();
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        Error::check_range(offset, buf.len() as u64, self.len())?;
        let read = match &self.direct {
            Some(direct) => direct.read_at(offset, buf),
            None => self.file.read_exact_at(buf, offset),
        };
        read.map_err(|source| Error::io("read", offset, source))
    }

    fn read_many(&self, mut requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        let len = self.len();
        for request in requests.iter() {
            Error::check_range(request.offset, request.buf.len() as u64, len)?;
        }
        if self.direct.is_some() {
            let mut each = requests.iter_mut();
            return each.try_for_each(|request| self.read_at(request.offset, request.buf));
        }
        let mut vectors = Vec::new();
        while !requests.is_empty() {
            let count = adjacent(requests.iter().map(|r| (r.offset, r.buf.len())));
            let (group, rest) = requests.split_at_mut(count);
            requests = rest;
            let offset = group[0].offset;
            vectors.clear();
            vectors.extend(group.iter_mut().map(|r| IoSliceMut::new(r.buf)));
            transfer_all(
                &mut vectors,
                offset,
                |vectors, offset| rustix::io::preadv(&self.file, vectors, offset),
                IoSliceMut::advance_slices,
                "read",
            )?;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.check_write(offset, buf.len() as u64)?;
        self.file
            .write_all_at(buf, offset)
            .map_err(|source| Error::io("write", offset, source))
    }

    fn write_many(&self, mut requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        for request in requests {
            self.check_write(request.offset, request.buf.len() as u64)?;
        }
        let mut vectors = Vec::new();
        while !requests.is_empty() {
            let count = adjacent(requests.iter().map(|r| (r.offset, r.buf.len())));
            let (group, rest) = requests.split_at(count);
            requests = rest;
            vectors.clear();
            vectors.extend(group.iter().map(|r| IoSlice::new(r.buf)));
            transfer_all(
                &mut vectors,
                group[0].offset,
                |vectors, offset| rustix::io::pwritev(&self.file, vectors, offset),
                IoSlice::advance_slices,
                "write",
            )?;
        }
        Ok(())
    }

    fn write_behind(&self, range: Range<u64>) {
        self.behind.send(range);
    }

    fn flush(&self) -> Result<(), Error> {
        self.behind.flushed();
        self.file
            .sync_data()
            .map_err(|source| Error::io("flush", 0, source))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_write(offset, len)?;
        if !self.punch(offset, len)? {
            self.write_zeroes(offset..offset + len)?;
        }
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> Result<bool, Error> {
        self.check_write(offset, len)?;
        match self.is_block_device {
            true => self.discard_sectors(offset, len),
            false => self.punch(offset, len),
        }
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let len = self.len();
        if offset >= len {
            return Ok(None);
        }
        if self.is_block_device {
            return Ok(Some(offset..len));
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start.max(offset),
            Err(Errno::NXIO) => return Ok(None),
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Some(offset..len)),
            Err(errno) => return Err(Error::io("seek to data", offset, errno)),
        };
        // The rest may be data where the end of the run cannot be reported, or another thread has
        // just punched the run away.
        let end = match rustix::fs::seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end.min(len),
            _ => len,
        };
        Ok((start < end).then_some(start..end))
    }
}

#[cfg(test)]
mod tests;

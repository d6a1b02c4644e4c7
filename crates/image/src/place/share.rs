//! Contents that are not copied: where the file system that the image is on can do that (Btrfs, and
//! XFS with `reflink`), files and image share blocks.
//!
//! It pays where blocks are shared, and there alone. The system can also copy between files without
//! showing the data to this process, but here one thread reads while another writes, and that is as
//! fast: see `docs/images.md`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::Error;

/// Least bytes of a file, or of a piece of it, that are shared. Reading and writing 64 KiB takes
/// longer than sharing them, and 16 KiB as long.
pub const SHARED_MIN: u64 = 64 << 10;
/// Blocks of most file systems begin at multiples of this, and blocks of others are not shared.
pub const ALIGNMENT: u64 = 4096;
/// Bytes read at once of what cannot be shared after all.
const COPIED_AT_ONCE: u64 = 1 << 20;

/// Finds out which files can share their blocks with the image.
#[derive(Debug)]
pub struct Sharing {
    /// Where the image is.
    dir: Arc<Path>,
    /// The image.
    image: Arc<File>,
    /// Whether files of a device can be shared, as far as that is known.
    by_device: HashMap<u64, bool>,
}

impl Sharing {
    /// For an image that is open as a device of this path, and lies in `dir`.
    ///
    /// # Errors
    /// Those of opening it once more.
    pub fn new(image: &Path, dir: &Path) -> io::Result<Self> {
        Ok(Self {
            dir: dir.into(),
            image: Arc::new(File::options().write(true).open(image)?),
            by_device: HashMap::new(),
        })
    }

    /// `len` bytes of `file` from `from` on, to be shared; `None` if that cannot be. `path` is how
    /// errors call the file.
    pub fn part(
        &mut self,
        file: &Arc<File>,
        from: u64,
        len: u64,
        path: impl FnOnce() -> PathBuf,
    ) -> Option<Shared> {
        let version = Version::of(file).ok()?;
        let known = self.by_device.get(&version.device).copied();
        let can = known.unwrap_or_else(|| self.try_with(file, version.device));
        can.then(|| Shared {
            file: Arc::clone(file),
            image: Arc::clone(&self.image),
            dir: self.dir.clone(),
            from,
            len,
            path: path(),
            version,
        })
    }

    /// Whether this file can be shared as a whole, with one that nothing else is done with. What
    /// that says of all files of the device is noted: one may be of a kind that cannot, such as a
    /// file for swapping, or without checksums on Btrfs.
    fn try_with(&mut self, file: &File, device: u64) -> bool {
        let Ok(probe) = tempfile::tempfile_in(&self.dir) else {
            return false;
        };
        let cloned = rustix::fs::ioctl_ficlone(&probe, file);
        match cloned {
            Ok(()) => self.by_device.insert(device, true),
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => {
                self.by_device.insert(device, false)
            }
            Err(_) => None,
        };
        cloned.is_ok()
    }
}

/// Bytes of a file that the image shares.
#[derive(Debug)]
pub struct Shared {
    file: Arc<File>,
    image: Arc<File>,
    /// Where the image is.
    dir: Arc<Path>,
    from: u64,
    len: u64,
    path: PathBuf,
    version: Version,
}

/// What shows that a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    len: u64,
    modified: (i64, i64),
}

impl Version {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

impl Shared {
    /// Bytes of it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Makes `len` bytes, from the byte `skip` of it on, those of the image at `to`. What cannot be
    /// shared is copied.
    ///
    /// # Errors
    /// [`Error::Source`], [`Error::Output`]; [`Error::Changed`] if the file is no longer what it
    /// was when it was opened.
    pub fn put(&self, skip: u64, len: u64, to: u64) -> Result<(), Error> {
        let (mut from, mut to) = (self.from.saturating_add(skip), to);
        let end = from.saturating_add(len);
        let mut can_share = true;
        while from < end {
            let done = match can_share {
                true => self.share(from, end - from, to)?,
                false => Some(self.copy(from, end - from, to)?),
            };
            match done {
                None => can_share = false,
                Some(0) => return Err(self.changed("it became shorter")),
                Some(done) => (from, to) = (from + done, to + done),
            }
        }
        match Version::of(&self.file) {
            Ok(version) if version == self.version => Ok(()),
            Ok(version) if version.len != self.version.len => Err(self.changed("its size")),
            Ok(_) => Err(self.changed("its time of modification")),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Has the system share blocks, or copy what it cannot share; returns how many bytes.
    /// `None` if it does neither.
    fn share(&self, mut from: u64, len: u64, mut to: u64) -> Result<Option<u64>, Error> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        loop {
            let (from, to) = (Some(&mut from), Some(&mut to));
            match rustix::fs::copy_file_range(&self.file, from, &self.image, to, len) {
                Ok(done) => return Ok(Some(done as u64)),
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                    return Err(self.not_written(error.into()));
                }
                // Copying finds out which side fails.
                Err(_) => return Ok(None),
            }
        }
    }

    fn copy(&self, from: u64, len: u64, to: u64) -> Result<u64, Error> {
        let mut buffer = vec![0; len.min(COPIED_AT_ONCE) as usize];
        let read = self.file.read_at(&mut buffer, from);
        let read = read.map_err(|source| self.failed(source))?;
        let bytes = buffer.get(..read).unwrap_or_default();
        let written = self.image.write_all_at(bytes, to);
        written.map_err(|source| self.not_written(source))?;
        Ok(read as u64)
    }

    fn changed(&self, what: &'static str) -> Error {
        let path = self.path.clone();
        Error::Changed { path, what }
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Source {
            path: self.path.clone(),
            op: "read",
            source,
        }
    }

    fn not_written(&self, source: io::Error) -> Error {
        let path = self.dir.to_path_buf();
        Error::Output { path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file, and a part of it for an image that is on another file system, as far as is known.
    fn part(dir: &Path, bytes: &[u8]) -> (PathBuf, Shared) {
        let (path, image) = (dir.join("file"), dir.join("image"));
        std::fs::write(&path, bytes).unwrap();
        File::create(&image).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let version = Version::of(&file).unwrap();
        let image = File::options().write(true).open(&image).unwrap();
        let shared = Shared {
            file,
            image: Arc::new(image),
            dir: dir.into(),
            from: 1,
            len: 5,
            path: path.clone(),
            version,
        };
        (path, shared)
    }

    #[test]
    fn what_is_not_shared_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (_, shared) = part(dir.path(), b"0123456789");
        shared.put(2, 3, 4).unwrap();
        let image = std::fs::read(dir.path().join("image")).unwrap();
        assert_eq!(image, b"\0\0\0\x00345");
        assert_eq!(shared.copy(6, 2, 0).unwrap(), 2);
        let image = std::fs::read(dir.path().join("image")).unwrap();
        assert_eq!(image, b"67\0\x00345");
    }

    #[test]
    fn files_that_change_are_found_out() {
        let dir = tempfile::tempdir().unwrap();
        let (path, shared) = part(dir.path(), b"0123456789");
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(3)
            .unwrap();
        let error = shared.put(0, 5, 0).unwrap_err();
        assert!(matches!(error, Error::Changed { what, .. } if what.contains("shorter")));
        let (path, shared) = part(dir.path(), b"0123456789");
        std::fs::write(&path, b"abcdefghij").unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
        File::open(&path).unwrap().set_modified(later).unwrap();
        let error = shared.put(0, 5, 0).unwrap_err();
        assert!(matches!(error, Error::Changed { what, .. } if what.contains("time")));
    }
}

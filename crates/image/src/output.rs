//! The image while it is made: a file beside its final name, or a block device in place.
//!
//! A file gets its name only when everything in it is durable; until then, and after any failure, what
//! had the name before still has it. On a block device there is no beside: the superblock, written
//! last, is what makes it a file system.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::{Builder, TempPath};
use uext4_blockdev::{Access, BlockDevice, FileDevice};

use crate::error::Error;

/// Where an image goes, looked at but not touched.
#[derive(Debug)]
pub struct Output {
    /// With links followed.
    path: PathBuf,
    /// The block device, if it is one.
    block_device: Option<FileDevice>,
}

/// An image being made.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    device: Arc<FileDevice>,
    /// The name it has until it is finished; `None` for a block device.
    temporary: Option<TempPath>,
}

impl Output {
    /// Looks at `path`, which need not exist; its directory must.
    ///
    /// # Errors
    /// [`Error::Output`] if it is something that cannot be replaced; [`Error::Device`] if it is a
    /// block device in use.
    pub fn look_at(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Output {
            path: path.to_path_buf(),
            source,
        };
        let kind = match fs::metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    path: path.to_path_buf(),
                    block_device: None,
                });
            }
            Err(e) => return Err(failed(e)),
        };
        let block_device = if kind.is_block_device() {
            Some(FileDevice::open(path, Access::ReadWrite)?)
        } else if kind.is_file() {
            None
        } else {
            let why = "is there already, and neither a file nor a block device";
            return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, why)));
        };
        Ok(Self {
            path: fs::canonicalize(path).map_err(failed)?,
            block_device,
        })
    }

    /// Device and inode of the file that will be replaced, if there is one.
    pub fn identity(&self) -> Option<(u64, u64)> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }

    /// Bytes of the block device; `None` for a file, which gets the size it needs.
    pub fn device_len(&self) -> Option<u64> {
        self.block_device.as_ref().map(BlockDevice::len)
    }

    /// The directory temporary files go to.
    pub fn directory(&self) -> &Path {
        match self.path.parent() {
            // Nobody wants to fill /dev.
            _ if self.block_device.is_some() => Path::new("/var/tmp"),
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        }
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
        if let Some(device) = self.block_device {
            return Ok(Draft {
                path: self.path,
                device: Arc::new(device),
                temporary: None,
            });
        }
        let name = self.path.file_name().unwrap_or_default();
        let mut prefix = std::ffi::OsString::from(".");
        // So that the whole is no longer than a name may be.
        let shown = name.to_string_lossy();
        prefix.push(shown.chars().take(50).collect::<String>());
        prefix.push(".uext4-");
        let made = Builder::new()
            .prefix(&prefix)
            .make_in(self.directory(), |path| {
                match FileDevice::create(path, len) {
                    Ok(device) => Ok(device),
                    Err(uext4_blockdev::Error::Open { source, .. }) => Err(source),
                    Err(other) => Err(io::Error::other(other)),
                }
            });
        let (device, temporary) = made.map_err(failed)?.into_parts();
        Ok(Draft {
            path: self.path,
            device: Arc::new(device),
            temporary: Some(temporary),
        })
    }
}

impl Draft {
    /// Where to write.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::<FileDevice>::clone(&self.device)
    }

    /// Makes what was written durable, and gives it its name.
    ///
    /// # Errors
    /// [`Error::Device`] or [`Error::Output`]; the name is then as it was.
    pub fn finish(self) -> Result<(), Error> {
        self.device.flush()?;
        let Some(temporary) = self.temporary else {
            return Ok(());
        };
        let failed = |source| Error::Output {
            path: self.path.clone(),
            source,
        };
        temporary.persist(&self.path).map_err(|e| failed(e.error))?;
        // The new name is durable only when its directory is.
        let dir = match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
        match synced {
            // Some file systems know no such thing.
            Err(e) if e.kind() != io::ErrorKind::InvalidInput => Err(failed(e)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        entries.map(name).collect()
    }

    #[test]
    fn the_name_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.img");
        let draft = Output::look_at(&path).unwrap().begin(4096).unwrap();
        draft.device().write_at(0, b"abc").unwrap();
        assert!(names(dir.path())[0].starts_with(".x.img.uext4-"));
        draft.finish().unwrap();
        assert_eq!(names(dir.path()), ["x.img"]);
        assert_eq!(fs::read(&path).unwrap()[..4], *b"abc\0");
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("y".repeat(255));
        fs::write(&path, "before").unwrap();
        let draft = Output::look_at(&path).unwrap().begin(1 << 20).unwrap();
        assert_eq!(names(dir.path()).len(), 2);
        drop(draft);
        assert_eq!(names(dir.path()).len(), 1);
        assert_eq!(fs::read(&path).unwrap(), b"before");
    }

    #[test]
    fn a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "before").unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        let draft = Output::look_at(&link).unwrap().begin(10).unwrap();
        draft.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), [0; 10]);
    }

    #[test]
    fn what_cannot_be_an_image_is_refused() {
        for path in ["/dev/null", "/"] {
            let error = Output::look_at(Path::new(path)).unwrap_err().to_string();
            assert!(
                error.contains("neither a file nor a block device"),
                "{error}"
            );
        }
        let nowhere = Output::look_at(Path::new("/no/such/dir/x.img")).unwrap();
        assert!(
            nowhere
                .begin(1)
                .unwrap_err()
                .to_string()
                .contains("/no/such/dir/x.img")
        );
    }
}

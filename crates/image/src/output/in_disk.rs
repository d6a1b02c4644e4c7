//! A part of an existing disk as the place of an image: a partition, or what follows a byte.
//!
//! Nothing else of the disk changes, whatever happens: the image is written through a window that
//! has its bytes and no others, and a file that had to become longer has its old length again if
//! the image is not finished.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::partition::{Place, Window};
use uext4_blockdev::{Access, BlockDevice, FileDevice, SubDevice};

use crate::error::Error;

/// A part of a disk, whose lock is held.
#[derive(Debug)]
pub struct InDisk {
    pub device: Arc<FileDevice>,
    pub window: Window,
    /// The length to go back to, of a file that became longer.
    had: Option<u64>,
    pub is_block_device: bool,
}

impl InDisk {
    /// Opens the disk, and looks for the place in it.
    ///
    /// # Errors
    /// [`Error::Device`] if it is in use, or has no such place.
    pub fn open(path: &Path, place: &Place, is_block_device: bool) -> Result<Self, Error> {
        let device = Arc::new(FileDevice::open(path, Access::ReadWrite)?);
        device.claim()?;
        Ok(Self {
            window: Window::find(&*device, place)?,
            device,
            had: None,
            is_block_device,
        })
    }

    /// Bytes that there are; `None` if a file may become longer for more.
    pub fn len(&self) -> Option<u64> {
        let is_fixed = self.window.end.is_some() || self.is_block_device;
        is_fixed.then(|| self.window.len_on(&*self.device))
    }

    /// The part of the disk, at least `len` bytes long.
    ///
    /// # Errors
    /// [`Error::InDisk`] if it is not so long.
    pub fn begin(&mut self, len: u64) -> Result<Arc<dyn BlockDevice>, Error> {
        match self.len() {
            Some(have) if have < len => return Err(self.too_small(len, have)),
            Some(_) => {}
            None => {
                let end = self.window.start.saturating_add(len);
                let had = self.device.len();
                if end > had {
                    self.had = Some(had);
                    self.device.set_len(end)?;
                }
            }
        }
        let disk = Arc::clone(&self.device) as Arc<dyn BlockDevice>;
        let part = match self.window.end {
            Some(_) => self.window.open(disk)?,
            // What lies behind the image is not a part of it.
            None => SubDevice::new(disk, self.window.start, len)?,
        };
        Ok(Arc::new(part))
    }

    /// Why an image of `need` bytes cannot be there.
    pub fn too_small(&self, need: u64, have: u64) -> Error {
        Error::InDisk {
            need,
            have,
            partition: self.window.partition.as_ref().map(|found| found.number),
            next: self.window.next,
        }
    }

    /// Device and inode of the disk.
    pub fn identity(&self) -> Option<(u64, u64)> {
        let found = self.device.metadata().ok()?;
        Some((found.dev(), found.ino()))
    }

    /// The image is complete.
    pub fn keep(&mut self) {
        self.had = None;
    }
}

impl Drop for InDisk {
    fn drop(&mut self) {
        if let Some(had) = self.had {
            // Nothing can be done about an error here: the file is longer than it was, no more.
            let _ = self.device.set_len(had);
        }
    }
}

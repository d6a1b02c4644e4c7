//! A part of an existing disk as the place of an image: a partition, or what follows a byte.
//!
//! Nothing else of the disk changes, whatever happens: the image is written through a window that
//! has its bytes and no others, and a file that had to become longer has its old length again if
//! the image is not finished.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::partition::{Guard, Place, Window};
use uext4_blockdev::verity::wipe_behind;
use uext4_blockdev::{Access, BlockDevice, FileDevice, SubDevice};
use uext4_ondisk::Geometry;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};

use crate::error::Error;

/// What becomes of a protection of the file system that an image replaces: a dm-verity hash tree in
/// a partition of its own, and the mark of a partition as read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// What is protected is not replaced.
    Keep,
    /// It is given up when the image is begun.
    GiveUp,
}

/// Bytes of the file system that a superblock speaks of; `None` if that cannot be read.
#[must_use]
pub fn fs_len(device: &dyn BlockDevice) -> Option<u64> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let superblock = SuperBlock::parse(&bytes).ok()?;
    Some(Geometry::new(&superblock).ok()?.len_bytes())
}

/// A part of a disk, whose lock is held.
#[derive(Debug)]
pub struct InDisk {
    pub device: Arc<FileDevice>,
    pub window: Window,
    /// What is given up when the image is begun.
    guards: Vec<Guard>,
    /// The length to go back to, of a file that became longer.
    had: Option<u64>,
    pub is_block_device: bool,
}

impl InDisk {
    /// Opens the disk, and looks for the place in it.
    ///
    /// # Errors
    /// [`Error::Device`] if it is in use, has no such place, or one that is protected.
    pub fn open(
        path: &Path,
        place: &Place,
        protection: Protection,
        is_block_device: bool,
    ) -> Result<Self, Error> {
        let device = Arc::new(FileDevice::open(path, Access::ReadWrite)?);
        device.claim()?;
        let window = Window::find(&*device, place)?;
        let guards = window.guards(&(Arc::clone(&device) as _), &fs_len)?;
        if let (Some(guard), Protection::Keep) = (guards.first(), protection) {
            return Err(guard.error().into());
        }
        Ok(Self {
            window,
            guards,
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
    /// [`Error::InDisk`] if it is not so long; [`Error::Device`] if it is not all its own.
    pub fn begin(&mut self, len: u64) -> Result<Arc<dyn BlockDevice>, Error> {
        self.window.must_be_free(&*self.device, len)?;
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
        for guard in &self.guards {
            guard.lift(&*self.device)?;
        }
        let disk = Arc::clone(&self.device) as Arc<dyn BlockDevice>;
        let rest = self.window.open(Arc::clone(&disk))?;
        // What verified an old file system of the same length.
        wipe_behind(&rest, len)?;
        let part = match self.window.end {
            Some(_) => rest,
            // What lies behind the image is not a part of it.
            None => SubDevice::new(disk, self.window.start, len)?,
        };
        Ok(Arc::new(part))
    }

    /// Takes no more than its first `len` bytes; without a length, its end must be known.
    ///
    /// # Errors
    /// [`Error::Device`] if the table of the disk is damaged.
    pub fn bound(&mut self, len: Option<u64>) -> Result<(), Error> {
        match (len, self.window.end) {
            // A file may become longer, and no more than that is taken of it.
            (Some(_), None) => self.window.hidden = None,
            (Some(len), Some(_)) if self.window.hidden.is_some() => {
                self.window = self.window.clone().within(len);
            }
            _ => {}
        }
        Ok(self.window.must_be_known()?)
    }

    /// What is given up when the image is begun.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
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

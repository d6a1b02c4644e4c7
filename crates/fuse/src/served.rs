//! The file system that a mount serves: opened for reading, or for writing.

use std::ops::Deref;

use uext4::{Image, Volume};

use crate::errno::{Errno, Result};

/// A file system as it was opened.
#[derive(Clone, Debug)]
pub enum Served {
    /// For reading.
    Image(Image),
    /// For reading and writing.
    Volume(Volume),
}

impl From<Image> for Served {
    fn from(image: Image) -> Self {
        Self::Image(image)
    }
}

impl From<Volume> for Served {
    fn from(volume: Volume) -> Self {
        Self::Volume(volume)
    }
}

impl Deref for Served {
    type Target = Image;

    fn deref(&self) -> &Image {
        match self {
            Self::Image(image) => image,
            Self::Volume(volume) => volume,
        }
    }
}

impl Served {
    /// As one that can be written.
    pub fn volume(&self) -> Option<&Volume> {
        match self {
            Self::Image(_) => None,
            Self::Volume(volume) => Some(volume),
        }
    }

    /// As one that can be written.
    ///
    /// # Errors
    /// `EROFS`.
    pub fn writable(&self) -> Result<&Volume> {
        self.volume().ok_or(Errno::EROFS)
    }

    /// Inodes in use without a name, and those that are being deleted.
    pub fn unlinked(&self) -> usize {
        self.volume().map_or(0, Volume::unlinked)
    }
}

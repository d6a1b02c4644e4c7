//! One of the two trees that are compared.

use uext4::{FollowLast, Image, Inode};
use uext4_image::walk::joined;

use crate::args::ImageArgs;
use crate::commands::bytes;
use crate::failure::Failure;
use crate::open;
use crate::paths;
use crate::show::escaped;

/// One of the two trees.
pub struct Side {
    /// The image.
    pub image: String,
    /// The top as the user wrote it.
    pub path: Vec<u8>,
    /// The file system in it.
    pub fs: Image,
    /// The top.
    pub top: Inode,
}

impl Side {
    /// Opens an image and looks up the top.
    ///
    /// # Errors
    /// If one of the two cannot be.
    pub fn open(image: &ImageArgs, path: &[u8]) -> Result<Self, Failure> {
        let fs = open::open(image)?;
        let path = paths::meant(&fs, path).into_owned();
        let image = escaped(bytes(image.place.image.as_os_str()));
        let top = paths::resolve(&fs, &path, FollowLast::No);
        let top = top.map_err(|failure| failure.about(&image))?;
        Ok(Self {
            image,
            path,
            fs,
            top,
        })
    }

    /// The image and a path in it, for a message.
    pub fn place(&self, below: &[u8]) -> String {
        format!("{}:{}", self.image, escaped(&joined(&self.path, below)))
    }
}

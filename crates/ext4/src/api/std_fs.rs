//! The calls of `std::fs`, by path, for file systems opened for reading or for writing.

use std::io::{Read, Write};

use crate::api::dir::Dir;
use crate::api::file::{File, ImageFile};
use crate::api::image::Image;
use crate::api::open_inode::OpenInode;
use crate::api::volume::Volume;
use crate::api::walk::Walk;
use crate::base::error::{Error, Result};
use crate::bulk::NewInode;
use crate::dir::namei::FollowLast;
use crate::file::setattr::SetAttributes;
use crate::inode::Inode;
use crate::names::create::Creation;

/// Size of the largest file that `read` loads into memory: a sparse file can have any size at no
/// cost.
const READ_MAX: u64 = 1 << 30;
/// Maximum number of bytes that `read` allocates at once because of the size alone.
const PREALLOCATED_MAX: u64 = 1 << 20;

/// Reads a file of `size` bytes.
fn read_whole(file: impl Read, size: u64) -> Result<Vec<u8>> {
    if size > READ_MAX {
        return Err(Error::FileTooBig);
    }
    // One more byte: the read that finds the end needs no additional memory.
    let mut data = Vec::with_capacity(size.min(PREALLOCATED_MAX) as usize + 1);
    // A writer may extend the file meanwhile.
    let read = file.take(READ_MAX + 1).read_to_end(&mut data);
    read.map_err(Error::from_io)?;
    match data.len() as u64 > READ_MAX {
        true => Err(Error::FileTooBig),
        false => Ok(data),
    }
}

/// As in `std::fs`. Paths begin at the root, with or without a leading slash; symbolic links are
/// followed.
impl Image {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Image::resolve`] and [`ImageFile::new`].
    pub fn open_file(&self, path: impl AsRef<[u8]>) -> Result<ImageFile> {
        ImageFile::new(self, self.metadata(path)?)
    }

    /// Reads a file of up to 1 GiB; larger ones are read through [`Image::open_file`].
    ///
    /// # Errors
    /// As [`Image::open_file`] and [`Image::read_at`]; [`Error::FileTooBig`].
    pub fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        match self.in_use() {
            // The file is in use to the end, so its number is not reused meanwhile.
            Some(in_use) => {
                let file = File::new(in_use.resolve(path.as_ref(), FollowLast::Yes)?)?;
                let size = file.size();
                read_whole(file, size)
            }
            None => {
                let file = self.open_file(path)?;
                let size = file.inode().size;
                read_whole(file, size)
            }
        }
    }

    /// The inode of a path.
    ///
    /// # Errors
    /// As [`Image::resolve`].
    pub fn metadata(&self, path: impl AsRef<[u8]>) -> Result<Inode> {
        self.resolve(path.as_ref(), FollowLast::Yes)
    }

    /// Whether the path exists; false for a dangling symbolic link.
    ///
    /// # Errors
    /// As [`Image::resolve`], except those that mean that the path does not exist.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::NotFound | Error::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Walks the inode with this path and everything below it. Links below it are not followed.
    ///
    /// # Errors
    /// As [`Image::resolve`].
    pub fn walk(&self, path: impl AsRef<[u8]>) -> Result<Walk> {
        let path = path.as_ref();
        let top = self.metadata(path)?;
        Ok(Walk::new(self, path, top))
    }
}

/// As in `std::fs`. Paths begin at the root, with or without a leading slash; symbolic links are
/// followed.
impl Volume {
    fn find(&self, path: impl AsRef<[u8]>) -> Result<OpenInode> {
        self.open_path(path.as_ref(), FollowLast::Yes)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As [`Volume::open_path`] and [`File::new`].
    pub fn open_file(&self, path: impl AsRef<[u8]>) -> Result<File> {
        File::new(self.find(path)?)
    }

    /// Opens a file for reading and writing, empty: an existing one is truncated, otherwise it is
    /// created with mode 0644 and owned by root. [`Volume::create`] sets other attributes.
    ///
    /// # Errors
    /// As [`Volume::create`], [`Volume::open_file`] and [`OpenInode::set_attributes`].
    pub fn create_file(&self, path: impl AsRef<[u8]>) -> Result<File> {
        let path = path.as_ref();
        match self.create(path, NewInode::File, &Creation::file()) {
            Err(Error::Exists) => {
                let file = self.open_file(path)?;
                file.set_attributes(&SetAttributes {
                    size: Some(0),
                    ..SetAttributes::default()
                })?;
                Ok(file)
            }
            made => File::new(made?),
        }
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// As [`Volume::open_path`] and [`Dir::new`].
    pub fn open_dir(&self, path: impl AsRef<[u8]>) -> Result<Dir> {
        Dir::new(self.find(path)?)
    }

    /// Writes `data` as the only contents of a file, which is opened like
    /// [`Volume::create_file`]. Durable after [`Volume::sync`], or with the next commit.
    ///
    /// # Errors
    /// As [`Volume::create_file`] and [`OpenInode::write_at`].
    pub fn write(&self, path: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Result<()> {
        let mut file = self.create_file(path)?;
        file.write_all(data.as_ref()).map_err(Error::from_io)
    }
}

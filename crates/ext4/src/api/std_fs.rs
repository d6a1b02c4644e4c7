//! The calls of `std::fs`, by path, of file systems that are read and of those that are written.

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

/// Bytes of the largest file that `read` takes into memory: the size of a sparse file costs
/// nothing.
const READ_MAX: u64 = 1 << 30;
/// Bytes of memory that `read` takes at once, by the size alone.
const PREALLOCATED_MAX: u64 = 1 << 20;

/// Reads a file of `size` bytes.
fn read_whole(file: impl Read, size: u64) -> Result<Vec<u8>> {
    if size > READ_MAX {
        return Err(Error::FileTooBig);
    }
    // One byte more: the read that finds the end needs no more memory.
    let mut data = Vec::with_capacity(size.min(PREALLOCATED_MAX) as usize + 1);
    // A writer may let it grow meanwhile.
    let read = file.take(READ_MAX + 1).read_to_end(&mut data);
    read.map_err(Error::from_io)?;
    match data.len() as u64 > READ_MAX {
        true => Err(Error::FileTooBig),
        false => Ok(data),
    }
}

/// As in `std::fs`. Paths begin at the root, with a slash or without; symbolic links are followed.
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
            // In use to the end: its number is given to no other file meanwhile.
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

    /// Whether there is something of this path; false for a symbolic link that leads nowhere.
    ///
    /// # Errors
    /// As [`Image::resolve`], but for what says that there is nothing.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::NotFound | Error::NotDirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What has this path and all below it. Links below it are not followed.
    ///
    /// # Errors
    /// As [`Image::resolve`].
    pub fn walk(&self, path: impl AsRef<[u8]>) -> Result<Walk> {
        let path = path.as_ref();
        let top = self.metadata(path)?;
        Ok(Walk::new(self, path, top))
    }
}

/// As in `std::fs`. Paths begin at the root, with a slash or without; symbolic links are followed.
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

    /// Opens a file for reading and writing, empty: one that exists is truncated, otherwise it is
    /// created, with mode 0644 and of root. [`Volume::create`] makes it of others.
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

    /// Writes a file that has these contents alone, as [`Volume::create_file`] opens it. Durable
    /// after [`Volume::sync`], or with the next commit.
    ///
    /// # Errors
    /// As [`Volume::create_file`] and [`OpenInode::write_at`].
    pub fn write(&self, path: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Result<()> {
        let mut file = self.create_file(path)?;
        file.write_all(data.as_ref()).map_err(Error::from_io)
    }
}

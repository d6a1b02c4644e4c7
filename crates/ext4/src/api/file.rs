//! Open files with a position, like `std::fs::File`: the traits of `std::io` on top of reads and
//! writes by offset.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Deref;

use uext4_ondisk::inode::FileType;

use crate::api::image::Image;
use crate::api::open_inode::OpenInode;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::inode::Inode;

/// The position after a seek in a file of `size` bytes.
fn sought(position: u64, size: u64, to: SeekFrom) -> io::Result<u64> {
    let found = match to {
        SeekFrom::Start(offset) => Some(offset),
        SeekFrom::End(offset) => size.checked_add_signed(offset),
        SeekFrom::Current(offset) => position.checked_add_signed(offset),
    };
    found.ok_or_else(|| {
        let what = "a position before the beginning of the file, or past 2^64";
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}

fn check_regular(file_type: FileType) -> Result<()> {
    match file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid(Invalid::NotRegularFile)),
    }
}

/// A regular file of a [`Volume`](crate::Volume), with a position.
///
/// It dereferences to the inode in use, with its attributes, `read_at`, `write_at` and `fsync`.
/// Writing copies data into memory, as the kernel does; [`OpenInode::fsync`] makes it durable.
/// `flush` does nothing: there is no additional buffer.
#[derive(Debug)]
pub struct File {
    inode: OpenInode,
    position: u64,
}

impl File {
    /// Creates a file from an inode in use, positioned at its first byte.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`] for other special files.
    pub fn new(inode: OpenInode) -> Result<Self> {
        check_regular(inode.inode().file_type)?;
        let position = 0;
        Ok(Self { inode, position })
    }
}

impl Deref for File {
    type Target = OpenInode;

    fn deref(&self) -> &OpenInode {
        &self.inode
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.inode.read_at(self.position, buf)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = self.inode.write_at(self.position, data)?;
        self.position += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = sought(self.position, self.inode.size(), to)?;
        Ok(self.position)
    }
}

/// A regular file of an [`Image`], with a position.
#[derive(Clone, Debug)]
pub struct ImageFile {
    image: Image,
    inode: Inode,
    position: u64,
}

impl ImageFile {
    /// Creates a file from an inode, positioned at its first byte.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`] for other special files.
    pub fn new(image: &Image, inode: Inode) -> Result<Self> {
        check_regular(inode.file_type)?;
        Ok(Self {
            image: image.clone(),
            inode,
            position: 0,
        })
    }

    /// The inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }
}

impl Read for ImageFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.image.read_at(&self.inode, self.position, buf)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl Seek for ImageFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = sought(self.position, self.inode.size, to)?;
        Ok(self.position)
    }
}

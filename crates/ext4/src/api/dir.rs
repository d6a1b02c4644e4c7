//! Open directories, as `std::fs` lists them.

use std::ops::Deref;

use uext4_ondisk::inode::FileType;

use crate::api::file::File;
use crate::api::open_inode::OpenInode;
use crate::api::read_dir::ReadDir;
use crate::base::error::{Error, Result};
use crate::bulk::NewInode;
use crate::names::create::Creation;

/// A directory of a [`Volume`](crate::Volume), in use.
///
/// It dereferences to the inode in use, with `lookup`, `create`, `unlink`, `rmdir` and `rename`
/// for its entries.
#[derive(Clone, Debug)]
pub struct Dir(OpenInode);

impl Dir {
    /// Creates a directory handle from an inode in use.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn new(inode: OpenInode) -> Result<Self> {
        match inode.inode().file_type {
            FileType::Directory => Ok(Self(inode)),
            _ => Err(Error::NotDirectory),
        }
    }

    /// An iterator over the entries.
    pub fn entries(&self) -> ReadDir {
        self.0.clone().into()
    }

    /// Opens a directory in this one. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`OpenInode::lookup`] and [`Dir::new`].
    pub fn open_dir(&self, name: &[u8]) -> Result<Self> {
        Self::new(self.0.lookup(name)?)
    }

    /// Opens a file in this directory. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`OpenInode::lookup`] and [`File::new`].
    pub fn open_file(&self, name: &[u8]) -> Result<File> {
        File::new(self.0.lookup(name)?)
    }

    /// Creates a directory in this one.
    ///
    /// # Errors
    /// As [`OpenInode::create`].
    pub fn create_dir(&self, name: &[u8], how: &Creation) -> Result<Self> {
        Self::new(self.0.create(name, NewInode::Directory, how)?)
    }

    /// Creates a file in this directory.
    ///
    /// # Errors
    /// As [`OpenInode::create`].
    pub fn create_file(&self, name: &[u8], how: &Creation) -> Result<File> {
        File::new(self.0.create(name, NewInode::File, how)?)
    }
}

impl Deref for Dir {
    type Target = OpenInode;

    fn deref(&self) -> &OpenInode {
        &self.0
    }
}

//! Open directories, as `std::fs` lists them.

use std::ops::Deref;
use std::vec;

use uext4_ondisk::inode::FileType;

use crate::api::file::File;
use crate::api::open_inode::OpenInode;
use crate::base::error::{Error, Result};
use crate::bulk::NewInode;
use crate::dir::DirEntry;
use crate::names::create::Creation;

/// Names that are listed at once.
const BATCH: usize = 256;

/// A directory of a [`Volume`](crate::Volume), in use.
///
/// It dereferences to the inode in use, with `lookup`, `create`, `unlink`, `rmdir` and `rename` for its
/// names.
#[derive(Clone, Debug)]
pub struct Dir(OpenInode);

impl Dir {
    /// Of an inode in use.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn new(inode: OpenInode) -> Result<Self> {
        match inode.inode().file_type {
            FileType::Directory => Ok(Self(inode)),
            _ => Err(Error::NotDirectory),
        }
    }

    /// The inode in use.
    #[must_use]
    pub fn into_inode(self) -> OpenInode {
        self.0
    }

    /// Its names, without "." and "..". Names that exist all the time are listed once, whatever happens
    /// to others meanwhile.
    pub fn entries(&self) -> Entries {
        Entries {
            dir: self.0.clone(),
            batch: Vec::new().into_iter(),
            cookie: Some(0),
        }
    }

    /// A directory in it. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`OpenInode::lookup`] and [`Dir::new`].
    pub fn open_dir(&self, name: &[u8]) -> Result<Self> {
        Self::new(self.0.lookup(name)?)
    }

    /// A file in it. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`OpenInode::lookup`] and [`File::new`].
    pub fn open_file(&self, name: &[u8]) -> Result<File> {
        File::new(self.0.lookup(name)?)
    }

    /// A new directory in it.
    ///
    /// # Errors
    /// As [`OpenInode::create`].
    pub fn create_dir(&self, name: &[u8], how: &Creation) -> Result<Self> {
        Self::new(self.0.create(name, NewInode::Directory, how)?)
    }

    /// A new file in it.
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

/// The names of a [`Dir`], listed bit by bit. After an error it ends.
#[derive(Debug)]
pub struct Entries {
    dir: OpenInode,
    batch: vec::IntoIter<DirEntry>,
    /// Where to go on; `None` at the end.
    cookie: Option<u64>,
}

impl Entries {
    fn fill(&mut self, from: u64) -> Result<()> {
        let mut batch = Vec::new();
        let mut last = None;
        self.dir.list(from, &mut |listed| {
            last = Some(listed.next);
            if !matches!(listed.name, b"." | b"..") {
                batch.push(DirEntry {
                    ino: listed.ino,
                    name: listed.name.to_vec(),
                    file_type: listed.file_type,
                    hash: None,
                });
            }
            batch.len() < BATCH
        })?;
        self.cookie = last.filter(|_| batch.len() == BATCH);
        self.batch = batch.into_iter();
        Ok(())
    }
}

impl Iterator for Entries {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(Ok(entry));
            }
            let from = self.cookie.take()?;
            if let Err(error) = self.fill(from) {
                return Some(Err(error));
            }
        }
    }
}

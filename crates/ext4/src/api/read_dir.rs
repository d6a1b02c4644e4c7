//! Iteration over the entries of a directory.

use std::borrow::Cow;
use std::vec;

use crate::api::open_inode::OpenInode;
use crate::base::error::{Error, Result};
use crate::dir::{self, DirEntry};
use crate::inode::Inode;

/// Number of names that are listed at once.
const BATCH: usize = 256;

/// An iterator over the entries of a directory, without "." and "..".
///
/// For a file system opened for reading, entries come in stored order; a damaged block is one
/// error, and the iterator continues after it. For one opened for writing, entries are listed in
/// batches: those that exist during the whole iteration come once, even if others change
/// meanwhile, and the iterator ends after an error.
#[derive(Debug)]
pub struct ReadDir(Source);

#[derive(Debug)]
enum Source {
    Stored(Box<dir::ReadDir>),
    InUse(Listing),
}

impl From<dir::ReadDir> for ReadDir {
    fn from(stored: dir::ReadDir) -> Self {
        Self(Source::Stored(Box::new(stored)))
    }
}

impl From<OpenInode> for ReadDir {
    fn from(dir: OpenInode) -> Self {
        Self(Source::InUse(Listing {
            dir,
            batch: Vec::new().into_iter(),
            failed: None,
            cookie: Some(0),
        }))
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = match &mut self.0 {
                Source::Stored(stored) => stored.next()?,
                Source::InUse(listing) => listing.next()?,
            };
            match next {
                Ok(entry) if matches!(&entry.name[..], b"." | b"..") => {}
                next => return Some(next),
            }
        }
    }
}

#[derive(Debug)]
struct Listing {
    dir: OpenInode,
    batch: vec::IntoIter<DirEntry>,
    /// The error that ended the last batch early.
    failed: Option<Error>,
    /// Where to continue; `None` at the end.
    cookie: Option<u64>,
}

impl Listing {
    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(Ok(entry));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let from = self.cookie.take()?;
            self.fill(from);
        }
    }

    fn fill(&mut self, from: u64) {
        let mut batch = Vec::new();
        let mut last = None;
        let listed = self.dir.list(from, &mut |listed| {
            last = Some(listed.next);
            batch.push(DirEntry {
                ino: listed.ino,
                name: listed.name.to_vec(),
                file_type: listed.file_type,
                hash: None,
            });
            batch.len() < BATCH
        });
        // Entries that were read before the damage are returned, too.
        self.failed = listed.err();
        self.cookie = last.filter(|_| batch.len() == BATCH && self.failed.is_none());
        self.batch = batch.into_iter();
    }
}

/// What says which directory is meant: a path from the root, whose symbolic links are followed, or
/// an inode.
pub trait DirRef {
    /// The inode of the directory, which `resolve` finds by its path.
    ///
    /// # Errors
    /// Those of `resolve`.
    fn inode(&self, resolve: &dyn Fn(&[u8]) -> Result<Inode>) -> Result<Cow<'_, Inode>>;
}

impl DirRef for &Inode {
    fn inode(&self, _: &dyn Fn(&[u8]) -> Result<Inode>) -> Result<Cow<'_, Inode>> {
        Ok(Cow::Borrowed(self))
    }
}

impl<P: AsRef<[u8]>> DirRef for P {
    fn inode(&self, resolve: &dyn Fn(&[u8]) -> Result<Inode>) -> Result<Cow<'_, Inode>> {
        resolve(self.as_ref()).map(Cow::Owned)
    }
}

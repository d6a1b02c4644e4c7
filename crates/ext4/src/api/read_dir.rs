//! The names of a directory, one by one.

use std::vec;

use crate::api::open_inode::OpenInode;
use crate::base::error::{Error, Result};
use crate::dir::{self, DirEntry};

/// Names that are listed at once.
const BATCH: usize = 256;

/// The names of a directory, without "." and "..".
///
/// Of a file system that is read they come in the order they are stored; a damaged block is one
/// error, and the iterator goes on after it. Of one that is written they are listed bit by bit:
/// names that exist all the time come once, whatever happens to others meanwhile, and it ends after
/// an error.
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
    /// What ended the last batch too early.
    failed: Option<Error>,
    /// Where to go on; `None` at the end.
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
        // Names that were read before the damage are listed, too.
        self.failed = listed.err();
        self.cookie = last.filter(|_| batch.len() == BATCH && self.failed.is_none());
        self.batch = batch.into_iter();
    }
}

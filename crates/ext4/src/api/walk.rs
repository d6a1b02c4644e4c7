//! All files below a directory, one after the other.

use uext4_ondisk::Damage;
use uext4_ondisk::inode::FileType;

use crate::api::image::Image;
use crate::api::read_dir::ReadDir;
use crate::base::error::{Error, Result};
use crate::dir::DirEntry;
use crate::inode::Inode;

/// A file, directory or anything else that a walk comes to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WalkEntry {
    /// Its path, which begins with the one that the walk was given.
    pub path: Vec<u8>,
    /// Its inode as it was then.
    pub inode: Inode,
}

#[derive(Debug)]
struct Level {
    dir: Inode,
    names: ReadDir,
    /// Bytes of its path.
    path_len: usize,
}

/// A directory and all below it: each directory before what is in it, otherwise in the order that the
/// file system lists names. Symbolic links are not followed. After an error it goes on with what else
/// there is.
#[derive(Debug)]
pub struct Walk {
    image: Image,
    levels: Vec<Level>,
    path: Vec<u8>,
    /// What comes before anything else.
    top: Option<Inode>,
}

impl Walk {
    pub(crate) fn new(image: &Image, path: &[u8], top: Inode) -> Self {
        Self {
            image: image.clone(),
            levels: Vec::new(),
            path: path.to_vec(),
            top: Some(top),
        }
    }

    /// Comes to an inode: what is in it is next if it is a directory.
    fn enter(&mut self, inode: &Inode) -> Result<()> {
        if inode.file_type != FileType::Directory {
            return Ok(());
        }
        if self.levels.iter().any(|level| level.dir.ino == inode.ino) {
            return Err(Error::Corrupt(Damage::Directory {
                ino: inode.ino,
                why: "it lies in itself",
            }));
        }
        let level = Level {
            dir: inode.clone(),
            names: self.image.read_dir(inode)?,
            path_len: self.path.len(),
        };
        self.levels.push(level);
        Ok(())
    }

    fn step(&mut self, entry: &DirEntry, dir: &Inode) -> Result<WalkEntry> {
        let name = self.image.entry_name(dir, entry);
        if !self.path.is_empty() && !self.path.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend(name);
        let inode = self.image.inode(entry.ino)?;
        self.enter(&inode)?;
        let path = self.path.clone();
        Ok(WalkEntry { path, inode })
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(inode) = self.top.take() {
            let path = self.path.clone();
            return Some(self.enter(&inode).map(|()| WalkEntry { path, inode }));
        }
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_len);
            match level.names.next() {
                None => {
                    self.levels.pop();
                }
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => {
                    let dir = level.dir.clone();
                    return Some(self.step(&entry, &dir));
                }
            }
        }
    }
}

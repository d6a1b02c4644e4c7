//! All files below a directory, one after the other.

use rustc_hash::FxHashSet;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Damage, Ino};

use crate::api::image::Image;
use crate::api::read_dir::ReadDir;
use crate::base::error::{Error, Result};
use crate::dir::DirEntry;
use crate::dir::namei::check_name;
use crate::inode::Inode;

/// Directories inside each other, at most.
const DEPTH_MAX: usize = 16_384;
/// Bytes of a path, at most.
const PATH_MAX: usize = 1 << 16;

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

/// A directory and all below it: each directory before what is in it, otherwise in the order that
/// the file system lists names. Symbolic links are not followed. After an error it goes on with
/// what else there is.
///
/// It ends on any image: a directory is entered once, and one that is met again (a circle, or a
/// second name) is damage, as is a name that no path can hold, more than 16,384 directories inside
/// each other, a path of more than 64 KiB, and directories that are together larger than the file
/// system.
#[derive(Debug)]
pub struct Walk {
    image: Image,
    levels: Vec<Level>,
    path: Vec<u8>,
    /// By number and generation.
    entered: FxHashSet<(Ino, u32)>,
    /// Bytes of the directories that were entered.
    bytes: u64,
    /// What comes before anything else.
    top: Option<Inode>,
}

impl Walk {
    pub(crate) fn new(image: &Image, path: &[u8], top: Inode) -> Self {
        Self {
            image: image.clone(),
            levels: Vec::new(),
            path: path.to_vec(),
            entered: FxHashSet::default(),
            bytes: 0,
            top: Some(top),
        }
    }

    /// Comes to an inode: what is in it is next if it is a directory.
    fn enter(&mut self, inode: &Inode) -> Result<()> {
        if inode.file_type != FileType::Directory {
            return Ok(());
        }
        let bad = |why| {
            Error::Corrupt(Damage::Directory {
                ino: inode.ino,
                why,
            })
        };
        if self.levels.len() >= DEPTH_MAX || self.path.len() > PATH_MAX {
            return Err(bad("it lies too deep"));
        }
        if !self.entered.insert((inode.ino, inode.generation)) {
            // It may have been moved to where the walk comes to it again.
            let is_above = self.levels.iter().any(|level| level.dir.ino == inode.ino);
            return match is_above || self.image.in_use().is_none() {
                true => Err(bad("it has a second name, or lies in itself")),
                false => Ok(()),
            };
        }
        self.bytes = self.bytes.saturating_add(inode.size);
        let geometry = self.image.geometry();
        if self.bytes >> geometry.block_size.log2() > geometry.blocks_count {
            return Err(bad("directories are larger than the file system"));
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
        check_name(&name).map_err(|_| {
            Error::Corrupt(Damage::Directory {
                ino: dir.ino,
                why: "it has a name that no path can hold",
            })
        })?;
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

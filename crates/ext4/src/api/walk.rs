//! Recursive iteration over all files below a directory.

use rustc_hash::FxHashSet;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Damage, Ino};

use crate::api::image::Image;
use crate::api::read_dir::ReadDir;
use crate::base::error::{Error, Result};
use crate::dir::DirEntry;
use crate::dir::namei::check_name;
use crate::inode::Inode;

/// Maximum depth of nested directories.
const DEPTH_MAX: usize = 16_384;
/// Maximum length of a path in bytes.
const PATH_MAX: usize = 1 << 16;

/// A file, directory or other inode that a walk visits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WalkEntry {
    /// Its path, which begins with the path that the walk was started with.
    pub path: Vec<u8>,
    /// The inode as it was when visited.
    pub inode: Inode,
}

#[derive(Debug)]
struct Level {
    dir: Inode,
    names: ReadDir,
    /// Length of its path in bytes.
    path_len: usize,
}

/// A directory and everything below it: each directory before its contents, otherwise in the
/// order in which the file system lists entries. Symbolic links are not followed. After an error
/// the walk continues with the next entry.
///
/// It ends on any image: a directory is entered once, and one that is reached again (a cycle, or
/// a second name) is damage, as is a name that no path can contain, more than 16,384 nested
/// directories, a path of more than 64 KiB, and directories that are together larger than the
/// file system.
#[derive(Debug)]
pub struct Walk {
    image: Image,
    levels: Vec<Level>,
    path: Vec<u8>,
    /// Directories by inode number and generation.
    entered: FxHashSet<(Ino, u32)>,
    /// Total size in bytes of the directories entered.
    bytes: u64,
    /// The start of the walk, which is returned first.
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

    /// Visits an inode: if it is a directory, its contents are next.
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
            // It may have been moved to a place that the walk reaches again.
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

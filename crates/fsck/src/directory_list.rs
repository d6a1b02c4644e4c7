//! The directories that the examination of inodes found, with their blocks: the next passes need
//! to read no inode again.

use std::ops::Range;

use uext4_ondisk::num::index;
use uext4_ondisk::{Ino, Lblk, Pblk};

/// One directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Its inode.
    pub ino: Ino,
    /// `i_size` in bytes.
    pub size: u64,
    /// `i_flags`.
    pub flags: u32,
    /// `i_generation`, part of the checksums of its blocks.
    pub generation: u32,
    /// Its blocks in the list's runs.
    runs: Range<u32>,
}

/// Blocks of a directory at one stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First logical block.
    pub lblk: Lblk,
    /// First physical block.
    pub pblk: Pblk,
    /// Number of blocks, at least 1.
    pub len: u32,
}

/// Directories and their blocks. One with inline data has no blocks.
#[derive(Debug, Default)]
pub struct DirectoryList {
    directories: Vec<Directory>,
    runs: Vec<Run>,
}

impl DirectoryList {
    /// Adds a directory with its blocks, in the order of logical blocks.
    pub fn push(&mut self, ino: Ino, size: u64, flags: u32, generation: u32, runs: &[Run]) {
        let from = self.runs.len() as u32;
        self.runs.extend_from_slice(runs);
        self.directories.push(Directory {
            ino,
            size,
            flags,
            generation,
            runs: from..self.runs.len() as u32,
        });
    }

    /// Replaces the blocks of a directory, once the list is sorted.
    pub fn set_runs(&mut self, ino: Ino, runs: &[Run]) {
        let position = self.position(ino);
        if let Some(directory) = position.and_then(|at| self.directories.get_mut(at)) {
            let from = self.runs.len() as u32;
            self.runs.extend_from_slice(runs);
            directory.runs = from..self.runs.len() as u32;
        }
    }

    /// Adds all of another list.
    pub fn append(&mut self, other: Self) {
        for directory in &other.directories {
            let runs = other.runs(directory);
            let Directory {
                ino,
                size,
                flags,
                generation,
                ..
            } = *directory;
            self.push(ino, size, flags, generation, runs);
        }
    }

    /// Sorts by inode, so that the list is the same whatever thread found what.
    pub fn sort(&mut self) {
        self.directories
            .sort_unstable_by_key(|directory| directory.ino);
    }

    /// All directories.
    pub fn directories(&self) -> &[Directory] {
        &self.directories
    }

    /// The directory of this inode, once the list is sorted.
    pub fn find(&self, ino: Ino) -> Option<&Directory> {
        self.directories.get(self.position(ino)?)
    }

    /// The place of this inode in [`DirectoryList::directories`], once the list is sorted.
    pub fn position(&self, ino: Ino) -> Option<usize> {
        self.directories.binary_search_by_key(&ino, |d| d.ino).ok()
    }

    /// The blocks of a directory of this list.
    pub fn runs(&self, directory: &Directory) -> &[Run] {
        let range = index(directory.runs.start)..index(directory.runs.end);
        self.runs.get(range).unwrap_or_default()
    }
}

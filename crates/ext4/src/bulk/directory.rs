//! Directories while they are being filled: names in memory, in the order in which they were
//! added.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use uext4_mballoc::Run;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::pack::directory::{DirShape, Name, Plan};
use uext4_ondisk::{GroupNr, Ino};

use super::threads;
use crate::alloc::ialloc::Parent;
use crate::base::error::{Error, Result};

/// An entry; its name is stored by its position in the bytes of all names of the directory.
#[derive(Clone, Copy, Debug)]
struct Entry {
    ino: Ino,
    start: u32,
    len: u8,
    file_type: FileType,
}

/// One directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) ino: Ino,
    pub(super) parent: Ino,
    /// Generation of its inode: 0 unless it was there before.
    pub(super) generation: u32,
    /// Number of directories in it, not counting "." and "..".
    pub(super) subdirs: u32,
    /// Blocks that it already has on the device, to be freed when it is laid out again.
    pub(super) old_blocks: Vec<Run>,
    /// Whether it has to be laid out.
    pub(super) changed: bool,
    /// Where new inodes in it are allocated.
    pub(super) place: Parent,
    entries: Vec<Entry>,
    names: Vec<u8>,
}

impl Directory {
    pub(super) fn new(ino: Ino, parent: Ino, group: GroupNr, is_top: bool) -> Self {
        Self {
            ino,
            parent,
            generation: 0,
            subdirs: 0,
            old_blocks: Vec::new(),
            changed: false,
            place: Parent {
                group,
                is_top,
                last_group: None,
            },
            entries: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Adds a name that [`check_name`] has accepted.
    pub(super) fn add(&mut self, name: &[u8], ino: Ino, file_type: FileType) -> Result<()> {
        let start = u32::try_from(self.names.len()).map_err(|_| Error::FileTooBig)?;
        self.names.extend_from_slice(name);
        self.entries.push(Entry {
            ino,
            start,
            len: name.len() as u8,
            file_type,
        });
        self.subdirs += u32::from(file_type == FileType::Directory);
        self.changed = true;
        Ok(())
    }

    /// The `i`th name.
    pub(super) fn name(&self, i: u32) -> Name<'_> {
        let entry = &self.entries[i as usize];
        let start = entry.start as usize;
        Name {
            name: &self.names[start..start + usize::from(entry.len)],
            ino: entry.ino,
            file_type: entry.file_type,
        }
    }

    /// Looks up a name by linear search.
    pub(super) fn find(&self, name: &[u8]) -> Option<Ino> {
        let all = 0..self.entries.len() as u32;
        all.map(|i| self.name(i))
            .find(|n| n.name == name)
            .map(|n| n.ino)
    }

    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Calculates how its names are packed, with up to `threads` threads.
    pub(super) fn plan(&self, shape: &DirShape, threads: NonZeroUsize) -> Result<Plan> {
        let count = self.entries.len() as u32;
        Ok(threads::plan(shape, threads, count, |i| self.name(i).name)?)
    }
}

/// All directories, in the order in which they were created.
#[derive(Debug, Default)]
pub(super) struct Directories {
    list: Vec<Directory>,
    index: HashMap<Ino, usize>,
    /// The directory that was looked up last, and its index.
    last: Option<(Ino, usize)>,
}

impl Directories {
    pub(super) fn push(&mut self, directory: Directory) {
        self.index.insert(directory.ino, self.list.len());
        self.list.push(directory);
    }

    /// The directory, if it is known.
    pub(super) fn get(&mut self, ino: Ino) -> Option<&mut Directory> {
        let at = match self.last {
            Some((last, at)) if last == ino => at,
            _ => *self.index.get(&ino)?,
        };
        self.last = Some((ino, at));
        self.list.get_mut(at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Directory> {
        self.list.iter()
    }
}

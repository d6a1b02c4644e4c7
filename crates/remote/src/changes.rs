//! What requests have changed, for who has to hear of it.

use std::collections::BTreeSet;

use uext4::{Ino, OpenInode};

/// Hears what has changed.
pub trait Observer: Send + Sync {
    /// What a name of a directory stands for, and so the directory.
    fn name(&self, dir: Ino, name: &[u8]);
    /// Contents or attributes of an inode.
    fn inode(&self, ino: Ino);
    /// Attributes of inodes that nothing else names: links of what was removed with its directory.
    fn many(&self);
    /// Has what programs have stored through mappings of files, or written to a cache above the
    /// file system, written to it.
    fn write_back(&self) {}
    /// The same of one file, before a request reads or changes it.
    fn write_back_of(&self, _inode: &OpenInode) {}
    /// Paths from the root of the file system at which others are mounted: as this process sees
    /// them, and as the one of this number does, which asks for a change.
    fn mount_points(&self, _process: Option<u32>) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// What the requests of a batch have changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    names: BTreeSet<(u32, Vec<u8>)>,
    inodes: BTreeSet<u32>,
    pub(crate) many: bool,
}

impl Changes {
    /// What a name stands for.
    pub(crate) fn name(&mut self, dir: &OpenInode, name: &[u8]) {
        self.inodes.insert(dir.ino().0);
        self.names.insert((dir.ino().0, name.to_vec()));
    }

    /// An inode, by itself.
    pub(crate) fn inode(&mut self, inode: &OpenInode) {
        self.inodes.insert(inode.ino().0);
    }

    /// Reports all of them, once.
    pub(crate) fn report(&mut self, observer: &dyn Observer) {
        for (dir, name) in std::mem::take(&mut self.names) {
            observer.name(Ino(dir), &name);
        }
        for ino in std::mem::take(&mut self.inodes) {
            observer.inode(Ino(ino));
        }
        if std::mem::take(&mut self.many) {
            observer.many();
        }
    }
}

//! What the pass over directories notes for the passes after it: the parent of each directory as
//! an entry says it and as `..` says it, and which directories are to be written anew.
//!
//! Eight bytes for each directory, in the order of the list of directories. Threads note parents
//! at the same time. The second entry that names a directory is no parent but a conflict, and which
//! of two entries a thread saw first must not matter: `connect` looks at all entries of such a
//! directory again and decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use uext4_ondisk::Ino;

use crate::directory_list::DirectoryList;
use crate::report::Cause;

/// How directories hang together.
#[derive(Debug, Default)]
pub struct Tree {
    links: OnceLock<Box<[Links]>>,
    claims: Mutex<BTreeSet<Claim>>,
    rebuilds: Mutex<BTreeMap<Ino, Cause>>,
    lost: Mutex<BTreeMap<Ino, Cause>>,
    lost_found: OnceLock<Ino>,
}

/// A directory that had a parent already, or lost it, and a directory that may have an entry for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The directory that is named.
    pub child: Ino,
    /// The directory with the entry.
    pub parent: Ino,
}

/// Of one directory; 0 stands for nothing.
#[derive(Debug, Default)]
struct Links {
    /// The directory whose entry names it.
    parent: AtomicU32,
    /// What its `..` names.
    dotdot: AtomicU32,
}

impl Tree {
    /// Makes room for the directories of the sorted list.
    pub fn start(&self, list: &DirectoryList) {
        let count = list.directories().len();
        self.links
            .get_or_init(|| (0..count).map(|_| Links::default()).collect());
    }

    /// Notes that an entry of `parent` names the directory at this place of the list.
    pub fn note_parent(&self, at: usize, child: Ino, parent: Ino) {
        let Some(links) = self.links(at) else {
            return;
        };
        let noted =
            links
                .parent
                .compare_exchange(0, parent.0, Ordering::Relaxed, Ordering::Relaxed);
        if noted.is_err() {
            self.dispute(child, parent);
        }
    }

    /// Notes that it must be looked at again whether `parent` has an entry for a directory.
    pub fn dispute(&self, child: Ino, parent: Ino) {
        self.claims.lock().insert(Claim { child, parent });
    }

    /// Makes `parent` the parent of a directory, whatever was noted; 0: it has none.
    pub fn set_parent(&self, at: usize, parent: Ino) {
        if let Some(links) = self.links(at) {
            links.parent.store(parent.0, Ordering::Relaxed);
        }
    }

    /// Notes what `..` names.
    pub fn note_dotdot(&self, at: usize, ino: Ino) {
        if let Some(links) = self.links(at) {
            links.dotdot.store(ino.0, Ordering::Relaxed);
        }
    }

    /// The directory whose entry names the one at this place of the list.
    pub fn parent(&self, at: usize) -> Option<Ino> {
        let parent = self.links(at)?.parent.load(Ordering::Relaxed);
        (parent != 0).then_some(Ino(parent))
    }

    /// What its `..` names; `Ino(0)` if there is none.
    pub fn dotdot(&self, at: usize) -> Ino {
        let links = self.links(at);
        Ino(links.map_or(0, |links| links.dotdot.load(Ordering::Relaxed)))
    }

    /// The directories that more than one entry names, with all but one of the directories that
    /// have these entries: the last is [`Tree::parent`].
    pub fn take_claims(&self) -> BTreeSet<Claim> {
        std::mem::take(&mut *self.claims.lock())
    }

    /// Notes that a directory is to be written anew.
    pub fn rebuild(&self, ino: Ino, cause: Cause) {
        self.rebuilds.lock().entry(ino).or_insert(cause);
    }

    /// Whether it is noted to be written anew.
    pub fn is_rebuilt(&self, ino: Ino) -> bool {
        self.rebuilds.lock().contains_key(&ino)
    }

    /// The directories to be written anew.
    pub fn take_rebuilds(&self) -> BTreeMap<Ino, Cause> {
        std::mem::take(&mut *self.rebuilds.lock())
    }

    /// Notes that an inode goes to `lost+found`.
    pub fn lose(&self, ino: Ino, cause: Cause) {
        self.lost.lock().insert(ino, cause);
    }

    /// The inodes that go to `lost+found`.
    pub fn take_lost(&self) -> BTreeMap<Ino, Cause> {
        std::mem::take(&mut *self.lost.lock())
    }

    /// Why the first of them goes there, if there are any.
    pub fn first_lost(&self) -> Option<Cause> {
        self.lost.lock().values().next().copied()
    }

    /// Notes which directory is `lost+found`, if it was looked for.
    pub fn set_lost_found(&self, ino: Option<Ino>) {
        if let Some(ino) = ino {
            self.lost_found.get_or_init(|| ino);
        }
    }

    /// The directory `lost+found`, if it was looked for.
    pub fn lost_found(&self) -> Option<Ino> {
        self.lost_found.get().copied()
    }

    fn links(&self, at: usize) -> Option<&Links> {
        self.links.get()?.get(at)
    }
}

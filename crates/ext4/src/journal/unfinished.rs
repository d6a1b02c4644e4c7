//! Truncations and deletions that stopped because the host has no space for the image: they
//! continue when there is space again.
//!
//! Truncation and deletion unmap blocks in steps, each in a handle of its own, and starting a
//! handle may commit. If that commit finds no space, the inode stays on the orphan list and is
//! recorded here. Each tick retries the recorded inodes, and a truncation is completed before
//! anything else changes the file's data: otherwise a file that grows would expose its old
//! contents.
//!
//! Locks: leaf locks of this module.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_ondisk::Ino;

use crate::inode::icache::Cell;

/// Operations that wait for space.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Whether there ever was such an operation: if not, a query costs one read.
    any: AtomicBool,
    cuts: Mutex<BTreeSet<Ino>>,
    deletions: Mutex<Vec<Arc<Cell>>>,
}

impl Unfinished {
    /// Records a file that has its new size but still maps blocks past it.
    pub(crate) fn note_cut(&self, ino: Ino) {
        self.cuts.lock().insert(ino);
        self.any.store(true, Relaxed);
    }

    /// Records an inode without a name and without users that is not deleted yet.
    pub(crate) fn note_deletion(&self, cell: &Arc<Cell>) {
        self.deletions.lock().push(Arc::clone(cell));
        self.any.store(true, Relaxed);
    }

    /// Whether a file still has to be truncated to its size.
    pub(crate) fn is_cut(&self, ino: Ino) -> bool {
        self.any.load(Relaxed) && self.cuts.lock().contains(&ino)
    }

    /// Removes a file that was truncated or deleted.
    pub(crate) fn cut(&self, ino: Ino) {
        if self.any.load(Relaxed) {
            self.cuts.lock().remove(&ino);
        }
    }

    /// All files that still have to be truncated.
    pub(crate) fn cuts(&self) -> Vec<Ino> {
        match self.any.load(Relaxed) {
            true => self.cuts.lock().iter().copied().collect(),
            false => Vec::new(),
        }
    }

    /// Removes and returns all inodes that still have to be deleted.
    pub(crate) fn take_deletions(&self) -> Vec<Arc<Cell>> {
        match self.any.load(Relaxed) {
            true => mem::take(&mut *self.deletions.lock()),
            false => Vec::new(),
        }
    }
}

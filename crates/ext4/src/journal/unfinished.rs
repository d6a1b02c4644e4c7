//! Cuts and deletions that stopped because the host has no room for the image: they go on when
//! there is room again.
//!
//! What is cut or deleted is unmapped in steps, each in a handle of its own, and starting a
//! handle may commit. Where that commit finds no room, the inode stays on the orphan list and is
//! noted here. Each tick takes up what is noted, and a file is cut to its end before anything
//! else changes its contents: else a file that grows would show what it held before.
//!
//! Locks: leaves, of this module.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_ondisk::Ino;

use crate::inode::icache::Cell;

/// What waits for room.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// There was something once: where there never was, asking costs one read.
    any: AtomicBool,
    cuts: Mutex<BTreeSet<Ino>>,
    deletions: Mutex<Vec<Arc<Cell>>>,
}

impl Unfinished {
    /// A file has its new size and maps blocks behind it still.
    pub(crate) fn note_cut(&self, ino: Ino) {
        self.cuts.lock().insert(ino);
        self.any.store(true, Relaxed);
    }

    /// An inode without a name and a user is not deleted yet.
    pub(crate) fn note_deletion(&self, cell: &Arc<Cell>) {
        self.deletions.lock().push(Arc::clone(cell));
        self.any.store(true, Relaxed);
    }

    /// Whether a file is still to be cut to its end.
    pub(crate) fn is_cut(&self, ino: Ino) -> bool {
        self.any.load(Relaxed) && self.cuts.lock().contains(&ino)
    }

    /// The file was cut, or is gone.
    pub(crate) fn cut(&self, ino: Ino) {
        if self.any.load(Relaxed) {
            self.cuts.lock().remove(&ino);
        }
    }

    /// All files that are to be cut.
    pub(crate) fn cuts(&self) -> Vec<Ino> {
        match self.any.load(Relaxed) {
            true => self.cuts.lock().iter().copied().collect(),
            false => Vec::new(),
        }
    }

    /// All inodes that are to be deleted, which are noted no longer.
    pub(crate) fn take_deletions(&self) -> Vec<Arc<Cell>> {
        match self.any.load(Relaxed) {
            true => mem::take(&mut *self.deletions.lock()),
            false => Vec::new(),
        }
    }
}

//! Which blocks of a part of the table are dirty.

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use uext4_ondisk::Pblk;

/// Numbers of the dirty blocks of one shard.
#[derive(Debug, Default)]
pub(crate) struct DirtySet(Mutex<FxHashSet<u64>>);

impl DirtySet {
    pub(crate) fn insert(&self, block: Pblk) {
        self.0.lock().insert(block.0);
    }

    pub(crate) fn remove(&self, block: Pblk) {
        self.0.lock().remove(&block.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Appends all numbers to `to`.
    pub(crate) fn collect(&self, to: &mut Vec<u64>) {
        to.extend(self.0.lock().iter());
    }
}

//! What inodes may share of their attributes: blocks, and inodes of values, found again by a hash.
//!
//! One entry a hash, so that of several equal blocks only the last is found. Forgetting an entry
//! costs sharing and nothing else, so that the size of the table is bounded simply. What is in the
//! table is in use: its number of users is changed, and it is freed, under the lock of its hash.
//!
//! Lock: a shard's is a leaf but for those of groups and buffers; never two at once.

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use uext4_ondisk::{Ino, Pblk};

/// Parts of a table, a power of two.
const SHARDS: usize = 16;
/// Most entries of a part: some 4 MiB in all.
const SHARD_MAX: usize = 16_384;

/// What is shared in one file system.
#[derive(Debug, Default)]
pub(crate) struct XattrSharing {
    /// Blocks of attributes, by `h_hash`.
    pub(crate) blocks: Shared<Pblk>,
    /// Inodes of values, by the value's hash.
    pub(crate) values: Shared<Ino>,
}

/// Things found by a hash.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    shards: [Mutex<FxHashMap<u32, T>>; SHARDS],
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl<T: Copy + PartialEq> Shared<T> {
    /// Locks what has this hash; others may be locked with it.
    pub(crate) fn lock(&self, hash: u32) -> Locked<'_, T> {
        let shard = hash as usize % SHARDS;
        Locked {
            hash,
            table: self.shards[shard].lock(),
        }
    }
}

/// The lock of a hash.
#[derive(Debug)]
pub(crate) struct Locked<'a, T> {
    hash: u32,
    table: MutexGuard<'a, FxHashMap<u32, T>>,
}

impl<T: Copy + PartialEq> Locked<'_, T> {
    /// What has the hash.
    pub(crate) fn get(&self) -> Option<T> {
        self.table.get(&self.hash).copied()
    }

    /// Lets others find `thing`, rather than what had the hash before.
    pub(crate) fn put(&mut self, thing: T) {
        if self.table.len() >= SHARD_MAX {
            self.table.clear();
        }
        self.table.insert(self.hash, thing);
    }

    /// Lets nobody find `thing` any more.
    pub(crate) fn forget(&mut self, thing: T) {
        if self.get() == Some(thing) {
            self.table.remove(&self.hash);
        }
    }
}

//! An entry: a block, or an inode of a value, under the hash of its content.

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Slot;

use crate::lock::{AtomicU32, AtomicU64};

/// A content's hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The hash on disk: `h_hash` of a block, the crc32c of a value.
    pub(crate) hash: u32,
    /// A hash of all of the content, seeded; 0 under policies that do without.
    pub(crate) content: u64,
}

/// No place on a list.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// An entry. What `state` and `flags` mean is each policy's.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    /// The number of the block, or of the inode.
    pub(crate) value: u64,
    /// Its age: later entries have higher numbers.
    pub(crate) seq: u64,
    pub(crate) state: AtomicU64,
    pub(crate) flags: AtomicU32,
    /// Where it is on the list; changed under the list's lock only.
    pub(crate) slot: Slot,
}

impl Entry {
    pub(crate) fn new(key: Key, value: u64, seq: u64, state: u64, flags: u32) -> Arc<Self> {
        Arc::new(Self {
            key,
            value,
            seq,
            state: AtomicU64::new(state),
            flags: AtomicU32::new(flags),
            slot: NO_SLOT.into(),
        })
    }

    /// Whether the pair is this entry's, as far as the hash on disk says.
    pub(crate) fn is(&self, key: Key, value: u64) -> bool {
        self.value == value && self.key.hash == key.hash
    }
}

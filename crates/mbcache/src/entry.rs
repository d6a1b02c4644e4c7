//! An entry: a block of attributes, or an inode with a value, under the key of its content.

use std::sync::Arc;
use std::sync::atomic::AtomicU32 as Slot;

use crate::lock::{AtomicU32, AtomicU64};

/// The hashes of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The hash on disk: `h_hash` of a block, the crc32c of a value.
    pub hash: u32,
    /// A seeded hash of all of the content; 0 in an index that uses only the hash on disk.
    pub content: u64,
}

/// An entry. Each index defines what `state` and `flags` mean.
#[derive(Debug)]
pub struct Entry {
    /// The hashes of the content.
    pub key: Key,
    /// The number of the block or of the inode.
    pub value: u64,
    /// The age: later entries have higher numbers.
    pub seq: u64,
    /// Changed by compare-and-swap, or under a lock of the index.
    pub state: AtomicU64,
    /// Changed as `state` is.
    pub flags: AtomicU32,
    /// The position in a list, [`Entry::NO_SLOT`] outside; changed under that list's lock.
    pub slot: Slot,
}

impl Entry {
    /// No position in a list.
    pub const NO_SLOT: u32 = uext4_support::ring::NONE;

    /// An entry that is in no list.
    pub fn new(key: Key, value: u64, seq: u64, state: u64, flags: u32) -> Arc<Self> {
        Arc::new(Self {
            key,
            value,
            seq,
            state: AtomicU64::new(state),
            flags: AtomicU32::new(flags),
            slot: Self::NO_SLOT.into(),
        })
    }
}

//! What lookups and installs cost, as designs count it.

use uext4_buffer_cache::Buffer;

/// What calls have done, in the units of the lab's cost model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effort {
    /// Keys compared; a word of tags counts as one.
    pub(super) compares: u32,
    /// Entries written.
    pub(super) slot_writes: u32,
    /// Bytes of an array that were copied or cleared as a whole.
    pub(super) bytes_copied: u32,
    /// Reference counts changed.
    pub(super) atomics: u32,
    /// An entry gave way to another.
    pub(super) evicted: bool,
    /// The block was remembered from before, though it was not known.
    pub(super) ghost_hit: bool,
}

/// A block that was found, and at which position: 0 is the first one compared.
#[derive(Debug)]
pub(super) struct Found {
    /// The block, pinned.
    pub(super) buffer: Buffer,
    /// The slot of an array, or the way of a set.
    pub(super) at: usize,
}

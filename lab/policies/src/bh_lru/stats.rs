//! What the LRUs of a cache did.

use uext4_buffer_cache::BH_LRU_SIZE_MAX;

/// What all LRUs of a cache have done. The kernel has no such
/// statistics; units are those of the cost model in `docs/lab-models.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Hits, by the place where the block was found: its slot in an array, its way in a set.
    pub hit_pos: [u64; BH_LRU_SIZE_MAX],
    /// Lookups that went on to the table.
    pub misses: u64,
    /// Of these, because another thread of the same core was at it.
    pub contended: u64,
    /// Keys compared; a word of tags counts as one.
    pub compares: u64,
    /// Entries written.
    pub slot_writes: u64,
    /// Bytes copied or cleared by installs that copy the array.
    pub bytes_copied: u64,
    /// Reference counts changed.
    pub atomics: u64,
    /// Blocks offered after a miss.
    pub installs: u64,
    /// Blocks that gave way to another.
    pub evictions: u64,
    /// Blocks expected to be used once that came again.
    pub ghost_hits: u64,
    /// LRUs that dropped the references they held.
    pub invalidations: u64,
    /// References held now.
    pub held: u64,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            hit_pos: [0; BH_LRU_SIZE_MAX],
            misses: 0,
            contended: 0,
            compares: 0,
            slot_writes: 0,
            bytes_copied: 0,
            atomics: 0,
            installs: 0,
            evictions: 0,
            ghost_hits: 0,
            invalidations: 0,
            held: 0,
        }
    }
}

impl Stats {
    /// Lookups that found the block.
    pub fn hits(&self) -> u64 {
        self.hit_pos.iter().sum()
    }
}

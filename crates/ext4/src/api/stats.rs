//! Statistics of the subsystems of an open file system: counters, and what they hold now.
//!
//! The counters are read one by one while other threads update them: they need not be consistent
//! with each other.

pub use crate::base::memory::MemoryUse;
pub use crate::base::policies::Designs;
pub use uext4_buffer_cache::Stats as BufferStats;
pub use uext4_extent_status::Stats as ExtentStatusStats;
pub use uext4_jbd2::Stats as JournalStats;
pub use uext4_mballoc::{CriterionStats, PreallocationStats, Stats as AllocatorStats};
pub use uext4_mbcache::Stats as MbcacheStats;
pub use uext4_writeback::{DeviceStats, Stats as PageStats};

use crate::journal::sbi::Sbi;

/// The statistics of a file system. Fields that only a mount for writing has are `None` if it was
/// opened for reading.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The policy that each subsystem uses.
    pub designs: Option<Designs>,
    /// Memory in use, and how often it was reclaimed.
    pub memory: MemoryUse,
    /// The cache of metadata blocks.
    pub buffers: BufferStats,
    /// The journal: commits and checkpoints.
    pub journal: Option<JournalStats>,
    /// The block allocator: requests and searches.
    pub allocator: Option<AllocatorStats>,
    /// Blocks that the allocator has preallocated for files.
    pub preallocation: Option<PreallocationStats>,
    /// Attribute blocks that inodes share; `None` with `nombcache` too.
    pub xattr_blocks: Option<MbcacheStats>,
    /// Attribute values in separate inodes that other inodes share; `None` with `nombcache` too.
    pub xattr_values: Option<MbcacheStats>,
    /// Cached extents of files: lookups and the shrinker.
    pub extent_status: Option<ExtentStatusStats>,
    /// The throttle's data about the device; its text is that of the kernel's `bdi` stats file.
    pub pages: Option<PageStats>,
    /// The throttle's estimates of the device; its text is that of the kernel's `bdi` stats file.
    pub device: Option<DeviceStats>,
}

/// All statistics of a file system.
pub(crate) fn stats(sbi: &Sbi) -> Stats {
    let rw = sbi.rw();
    Stats {
        designs: rw.map(|rw| rw.designs.clone()),
        memory: sbi.memory_use(),
        buffers: sbi.cache().stats(),
        journal: rw.map(|rw| rw.journal.stats()),
        allocator: rw.map(|rw| rw.allocator.stats()),
        preallocation: rw.map(|rw| rw.allocator.preallocation_stats()),
        xattr_blocks: rw.and_then(|rw| rw.xattrs.blocks.stats()),
        xattr_values: rw.and_then(|rw| rw.xattrs.values.stats()),
        extent_status: rw.map(|rw| rw.inodes.room().stats()),
        pages: rw.map(|rw| rw.pages.stats()),
        device: rw.map(|rw| rw.pages.bdi_stats()),
    }
}

//! Designs of subsystems in place of those that are shipped.
//!
//! Each subsystem ships one design and states in a trait what any other has to do. Experiments give
//! the engine an object of that trait here, and run it on the whole of it; `lab/policies` has those of
//! the mailing-list threads and of today's kernel.

use std::sync::Arc;

use uext4_buffer_cache::BhLru;
use uext4_extent_status::Shrinker;
use uext4_mballoc::Policies as AllocatorPolicies;
use uext4_mbcache::Index;
use uext4_writeback::throttle::NewPolicy;

/// The designs of a file system; `None`, everywhere: the one that is shipped.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// The LRU in front of the cache of metadata blocks.
    pub bh_lru: Option<Arc<dyn BhLru>>,
    /// How much the block allocator takes for a file beyond its need, and where it looks for blocks.
    pub mballoc: AllocatorPolicies,
    /// The index of what is known of the blocks of files, and its shrinker. An object serves one mount
    /// at a time.
    pub extent_status: Option<Arc<dyn Shrinker>>,
    /// The index that finds equal blocks of attributes. An index is for one file system, once.
    pub xattr_blocks: Option<Arc<dyn Index>>,
    /// The index that finds equal values in inodes of their own; another object than `xattr_blocks`.
    pub xattr_values: Option<Arc<dyn Index>>,
    /// The policy by which writers are throttled, made for each device; not for file systems with
    /// [`limits`](crate::tuning::WritebackOptions::limits) in common, which have that of the limits.
    pub throttle: Option<NewPolicy>,
}

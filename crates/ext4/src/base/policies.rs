//! Designs of subsystems in place of those that are shipped.
//!
//! Each subsystem ships one design and states in a trait what any other has to do. Experiments
//! give the engine an object of that trait here, and run it on the whole of it; `lab/policies`
//! has those of the mailing-list threads and of today's kernel.

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
    /// How much the block allocator takes for a file beyond its need, and where it looks for
    /// blocks.
    pub mballoc: AllocatorPolicies,
    /// The index of what is known of the blocks of files, and its shrinker. An object serves one
    /// mount at a time.
    pub extent_status: Option<Arc<dyn Shrinker>>,
    /// The index that finds equal blocks of attributes. An index is for one file system, once.
    pub xattr_blocks: Option<Arc<dyn Index>>,
    /// The index that finds equal values in inodes of their own; another object than
    /// `xattr_blocks`.
    pub xattr_values: Option<Arc<dyn Index>>,
    /// The policy by which writers are throttled, made for each device; not for file systems with
    /// [`limits`](crate::tuning::WritebackOptions::limits) in common, which have that of the
    /// limits.
    pub throttle: Option<NewPolicy>,
    /// The names under which statistics show the designs. A caller that gives a design of its own
    /// sets that one's name; else it is shown as `given`.
    pub designs: Designs,
}

/// The name of the design that each subsystem runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Designs {
    /// Of the LRU in front of the cache of metadata blocks.
    pub bh_lru: String,
    /// Of the index of known extents and its shrinker.
    pub extent_status: String,
    /// Of the block allocator: how a request is normalized, and how groups are searched.
    pub mballoc: String,
    /// Of the indexes of equal attributes.
    pub mbcache: String,
    /// Of the throttling of writers.
    pub writeback: String,
}

impl Default for Designs {
    /// Those that are shipped.
    fn default() -> Self {
        Self {
            bh_lru: "recent".to_owned(),
            extent_status: "leaf-queue".to_owned(),
            mballoc: "predict+largest-run".to_owned(),
            mbcache: "one-donor".to_owned(),
            writeback: "cell-rate".to_owned(),
        }
    }
}

impl Policies {
    /// What runs where these policies are given.
    pub(crate) fn shown(&self) -> Designs {
        let (shipped, named) = (Designs::default(), self.designs.clone());
        let name = |is_given: bool, shipped: String, named: String| match is_given {
            false => shipped,
            true if named == shipped => "given".to_owned(),
            true => named,
        };
        let mballoc = self.mballoc.normalize.is_some() || self.mballoc.search.is_some();
        let mbcache = self.xattr_blocks.is_some() || self.xattr_values.is_some();
        let extent_status = self.extent_status.is_some();
        Designs {
            bh_lru: name(self.bh_lru.is_some(), shipped.bh_lru, named.bh_lru),
            extent_status: name(extent_status, shipped.extent_status, named.extent_status),
            mballoc: name(mballoc, shipped.mballoc, named.mballoc),
            mbcache: name(mbcache, shipped.mbcache, named.mbcache),
            writeback: name(self.throttle.is_some(), shipped.writeback, named.writeback),
        }
    }
}

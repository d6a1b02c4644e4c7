//! Trees by last use, each with a queue of what may be dropped.
//!
//! Source: the third patch of "ext4: extents status tree shrinker improvement", version 2 (Zheng
//! Liu, linux-ext4, April 2014): a list that holds only reclaimable extents, so that a scan never
//! touches a delayed one.
//!
//! - List, sort and lock are those of `vanilla`; a tree is on the list only while it holds
//!   something to drop.
//! - In a tree, extents go in the order in which they came.
//!
//! Differences: the patches as posted are lost; these are the rules their description gives. A
//! tree's queue is a map by sequence number, not a list through the extents.

use super::list::List;
use super::map::Map;
use super::vanilla;
use uext4_extent_status::{Counters, Scan};

/// Drops up to `nr` extents.
pub(crate) fn scan(counters: &Counters, list: &List, nr: usize) -> Scan {
    vanilla::by_last_use(counters, list, nr, Map::reclaim_queued)
}

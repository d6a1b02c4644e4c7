//! Trees by last use, each with a queue of what may be dropped.
//!
//! Source: the third patch of "ext4: extents status tree shrinker improvement", version 2 (Zheng
//! Liu, linux-ext4, April 2014): a list that holds only reclaimable extents, so that a scan never
//! touches a delayed one.
//!
//! - List, sort and lock are those of `vanilla`; a tree is on the list only while it holds something
//!   to drop.
//! - In a tree, extents go in the order in which they came.
//!
//! Differences: the patches as posted are lost; these are the rules their description gives. A
//! tree's queue is a map by ticket, not a list through the extents.
//!
//! Tunables: none.

use crate::list::List;
use crate::map::Map;
use crate::room::Room;
use crate::scan::Scan;
use crate::vanilla;

/// Drops up to `nr` extents.
pub(crate) fn scan(room: &Room, list: &List, nr: usize) -> Scan {
    vanilla::by_last_use(room, list, nr, Map::reclaim_queued)
}

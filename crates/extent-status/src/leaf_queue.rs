//! The shipped design: leaves in sharded queues after S3-FIFO. What is new goes first, what was
//! used again stays, and lookups take no lock.
//!
//! ```text
//! tree ── roots ─┬─ cached ── index ─┬─ leaf ◄────── shard 0: probation, main, protected; ghost
//!  version       │   (never changed, └─ leaf ◄────── shard 1: …
//!                │    only copied)
//!                └─ delayed ─ index ─── leaf           (in no queue: no scan ever meets it)
//! ```
//!
//! - The unit is a leaf of up to 64 extents. Delayed extents are in leaves of their own, which are
//!   in no queue: no scan ever meets one.
//! - A new leaf is on probation, or in the main queue if it was dropped a short while ago.
//!   Probation holds a tenth of all; the leaf at its head goes, unless it was used: then it joins
//!   the main queue. The leaf at the head of that goes, unless it was used: then it goes round
//!   once more and one use is forgotten. At most three uses count.
//! - Leaves of trees loaded in advance by request are in a queue that is looked at only if the
//!   others gave nothing.
//! - Each leaf belongs to one of a power of two of shards, and scans take the shards in turn. No
//!   step depends on how many trees or delayed extents there are.
//! - What [`Tree::cache_all`](crate::Tree::cache_all) puts in at once, a leaf of the map on the
//!   device, gets leaves of its own if it is large enough: it is used, dropped and read again
//!   together, and the queues see it so.
//!
//! # Locks
//!
//! One lock a tree for its writers, and inside it one for each shard, held for a step. The writer
//! makes the tree's version odd, changes entries in place, and makes it even again; a lookup that
//! saw the same even version before and after has its answer. After three that did not, it takes
//! the lock. An index or leaf lives as long as a reader looks at it (`arc-swap`). A scan takes a
//! leaf off its queue, unlocks the shard, and only tries the lock of the tree.
//!
//! # Cost
//!
//! A lookup writes one cache line of its own thread's (that keeps the index), and at most once in
//! a while a mark of use in the leaf. A change moves up to 64 entries of 16 bytes, and about one
//! in 32 copies up to 32 rows of each level of the index. A scan costs a step for each leaf taken
//! and the copying of index rows for each one dropped. The price: neighbours go together, and a
//! tree of few extents takes a leaf of four all the same.
//!
//! Source: ours; the queues follow "FIFO queues are all you need for cache eviction" (Yang,
//! Zhang, Qiu, Yue, Rashmi; SOSP 2023). Differences: the eviction history is a table in which
//! each slot belongs to the last leaf that fell on it, and says how long ago that went; lookups
//! in quick succession, as of a reader that goes through a file, are one use (a shard's clock
//! ticks when one in 32 of its leaves has moved).

mod ghost;
mod index;
mod leaf;
mod owner;
mod queues;
mod side;
mod tree;

use std::sync::Arc;

use crate::scan::Scan;
use crate::shrinker::{EsTree, Shrinker};
use crate::stats::Counters;

use leaf::Queue;
use queues::Taken;
use tree::{LeafTree, Queues};

pub use leaf::LEAF_EXTENTS;

/// What a tree takes in addition to its extents, in bytes: itself, its handle, its roots, what
/// its first node has spare.
pub(crate) const TREE_MEMORY: u64 = size_of::<LeafTree>() as u64 + 184;

/// Leaves of trees in use that a scan bears: where there are few trees, it may be all of them.
const BUSY: usize = 16;

/// What tests and experiments vary. The default is what file systems have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafQueueOptions {
    /// Shards, brought to a power of two up to [`Self::SHARDS_MAX`]. 0: two a processor.
    pub shards: usize,
    /// One leaf in so many is on probation. 0: none, and each new leaf begins in the main queue.
    pub probation: usize,
    /// Neighbours of one status are one extent. Without it there are many, as in a fragmented file.
    pub merge: bool,
}

impl LeafQueueOptions {
    /// The most shards there may be.
    pub const SHARDS_MAX: usize = 256;

    fn shard_count(&self) -> usize {
        let asked = match self.shards {
            0 => std::thread::available_parallelism().map_or(2, |count| count.get() * 2),
            asked => asked,
        };
        asked.min(Self::SHARDS_MAX).next_power_of_two()
    }
}

impl Default for LeafQueueOptions {
    fn default() -> Self {
        Self {
            shards: 0,
            probation: 10,
            merge: true,
        }
    }
}

/// The leaves of all trees of a file system, in queues.
#[derive(Debug)]
pub struct LeafQueue {
    queues: Arc<Queues>,
    merge: bool,
}

impl Default for LeafQueue {
    fn default() -> Self {
        Self::new(LeafQueueOptions::default())
    }
}

impl LeafQueue {
    /// Queues without leaves.
    pub fn new(options: LeafQueueOptions) -> Self {
        Self {
            queues: Arc::new(Queues::new(options.probation, options.shard_count())),
            merge: options.merge,
        }
    }

    /// Until `nr` extents are gone, or as many leaves were taken, or all shards are empty. Only the
    /// protected leaves if `protected`, else only the others.
    fn round(&self, counters: &Counters, nr: usize, protected: bool, scan: &mut Scan) {
        let queues = &*self.queues;
        let (mut idle, mut busy) = (0, 0);
        while scan.freed < nr && scan.leaves < nr as u64 && idle < queues.shards() && busy < BUSY {
            let (leaf, queue) = match queues.take(queues.next_shard(), protected, scan) {
                Taken::Empty => {
                    idle += 1;
                    continue;
                }
                Taken::Gone => {
                    idle = 0;
                    continue;
                }
                Taken::Leaf(leaf, queue) => (leaf, queue),
            };
            idle = 0;
            let freq = leaf.freq();
            if freq > 0 {
                leaf.set_freq(freq - 1);
                let again = match queue {
                    Queue::Probation => Queue::Main,
                    same => same,
                };
                queues.put_back(&leaf, again, scan);
                continue;
            }
            let Some((tree, place)) = &leaf.queued else {
                continue;
            };
            let Some(tree) = tree.upgrade() else {
                continue;
            };
            match tree.try_evict(counters, &leaf) {
                None => {
                    busy += 1;
                    scan.trylock_failed += 1;
                    queues.put_back(&leaf, queue, scan);
                }
                // The tree has dropped it meanwhile.
                Some((0, _)) => {}
                Some((freed, copied)) => {
                    scan.freed += freed;
                    scan.leaves_evicted += 1;
                    scan.copied += copied;
                    scan.held(1 + copied);
                    if queue == Queue::Probation {
                        queues.remember(place);
                    }
                }
            }
        }
    }
}

impl Shrinker for LeafQueue {
    fn tree(&self) -> Arc<dyn EsTree> {
        LeafTree::new(&self.queues, self.merge)
    }

    /// Drops leaves until `nr` extents are gone, taking up to `nr` leaves off their queues.
    fn scan(&self, counters: &Counters, nr: usize) -> Scan {
        let mut scan = Scan::default();
        self.round(counters, nr, false, &mut scan);
        if scan.freed == 0 && scan.leaves < nr as u64 {
            scan.second_rounds = 1;
            self.round(counters, nr, true, &mut scan);
        }
        scan
    }

    fn memory(&self) -> u64 {
        self.queues.memory() + self.queues.ghost_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_brought_into_range() {
        let count = |shards| {
            let options = LeafQueueOptions {
                shards,
                ..LeafQueueOptions::default()
            };
            options.shard_count()
        };
        assert_eq!([1, 3, 8, 256, usize::MAX].map(count), [1, 4, 8, 256, 256]);
        assert!(count(0).is_power_of_two());
    }
}

//! Designs of the index of what is known of a file's blocks, and of its shrinker.
//!
//! | policy | order | finds what may go by | budget | longest under one lock |
//! |---|---|---|---|---|
//! | `vanilla` | trees by last use, sorted | walking from the first extent, over delayed ones | freed | the whole scan |
//! | `lru` | trees by last use, sorted | a queue in each tree | freed | the whole scan |
//! | `round-robin` | trees in turn | a queue in each tree | freed | one tree |
//! | `mainline` | trees in turn, second chance | going on in the tree, over delayed ones | looked at | one tree |
//! | `leaf-queue` | leaves: probation, main, eviction history | queues of leaves | freed | 256 steps |
//! | `clock` | leaves, second chance | queues of leaves | freed | 256 steps |
//!
//! For the first four a tree is one ordered map of extents under a readers-writer lock, which
//! lookups share, and a list has the trees ([`Listed`]). `leaf-queue` is the product's, and
//! `clock` the same without probation.
//!
//! # Locks
//!
//! One lock a tree and one for the list, which is taken inside a tree's, for a step. Scans only
//! *try* the lock of a tree: `round-robin` and `mainline` after they have unlocked the list,
//! `vanilla` and `lru` with the list locked from the first step to the last.
//!
//! # Statistics
//!
//! [`Counters::linked`] counts the trees on the list: those that hold something to drop, and with
//! `vanilla` all that were ever looked at. An extent counts as 40 bytes, or 64 where there is a
//! queue.
//!
//! Source: Zheng Liu, "\[RFC PATCH v2 0/4\] ext4: extents status tree shrinker improvement",
//! linux-ext4, April 2014, and the kernels named in the files.

mod clock;
mod list;
mod listed_tree;
mod lru;
mod mainline;
mod map;
mod pass;
mod policy;
mod round_robin;
mod vanilla;

use std::sync::Arc;

use uext4_extent_status::{Counters, EsTree, Scan, Shrinker};

use list::{List, Order};
use listed_tree::ListedTree;

pub use policy::{Options, Policy, PolicyError};

/// Trees on a list: the designs that go from tree to tree.
#[derive(Debug)]
pub struct Listed {
    list: Arc<List>,
    merge: bool,
}

impl Listed {
    fn new(order: Order, merge: bool) -> Self {
        Self {
            list: Arc::new(List::new(order)),
            merge,
        }
    }
}

impl Shrinker for Listed {
    fn tree(&self) -> Arc<dyn EsTree> {
        ListedTree::new(&self.list, self.merge)
    }

    fn scan(&self, counters: &Counters, nr: usize) -> Scan {
        match self.list.order {
            Order::Vanilla => vanilla::scan(counters, &self.list, nr),
            Order::Lru => lru::scan(counters, &self.list, nr),
            Order::RoundRobin => round_robin::scan(counters, &self.list, nr),
            Order::Mainline => mainline::scan(counters, &self.list, nr),
        }
    }
}

//! Tests of the cache as its users see it.

#[path = "conformance/suite.rs"]
mod conformance;
mod leaves;

use std::sync::Arc;

use conformance::{Design, Merge};
use uext4_extent_status::{LeafQueue, LeafQueueOptions, Shrinker};

/// The shipped design in two shards, whatever the machine.
fn leaf_queue(merge: Merge) -> Arc<dyn Shrinker> {
    Arc::new(LeafQueue::new(LeafQueueOptions {
        shards: 2,
        merge: merge == Merge::On,
        ..LeafQueueOptions::default()
    }))
}

fn designs() -> [Design; 1] {
    [Design {
        name: "leaf-queue",
        make: leaf_queue,
        has_leaves: true,
        lists_idle_trees: false,
    }]
}

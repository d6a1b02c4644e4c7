//! The index of what is known of a file's blocks, and its shrinkers: the tests of the crate with
//! each design, what the designs states at the same time, and each under the whole engine.

mod clock;
#[path = "../../../../crates/extent-status/tests/it/conformance/suite.rs"]
mod conformance;
mod engine;
mod leaves;
mod listed;

use std::sync::Arc;

use conformance::{Design, Merge};
use uext4_extent_status::{ExtentStatusCache, Shrinker};
use uext4_lab_policies::extent_status::{Options, Policy};

/// In two shards, whatever the machine.
fn shrinker(policy: Policy, merge: Merge) -> Arc<dyn Shrinker> {
    policy.shrinker(Options {
        merge: merge == Merge::On,
        shards: 2,
    })
}

fn room(policy: Policy) -> Arc<ExtentStatusCache> {
    conformance::room(shrinker(policy, Merge::On))
}

fn designs() -> [Design; 6] {
    let makes: [fn(Merge) -> Arc<dyn Shrinker>; 6] = [
        |merge| shrinker(Policy::Vanilla, merge),
        |merge| shrinker(Policy::Lru, merge),
        |merge| shrinker(Policy::RoundRobin, merge),
        |merge| shrinker(Policy::Mainline, merge),
        |merge| shrinker(Policy::LeafQueue, merge),
        |merge| shrinker(Policy::Clock, merge),
    ];
    let mut makes = makes.into_iter();
    Policy::ALL.map(|policy| Design {
        name: policy.name(),
        make: makes.next().expect("one a policy"),
        has_leaves: policy.drops_leaves(),
        lists_idle_trees: policy == Policy::Vanilla,
    })
}

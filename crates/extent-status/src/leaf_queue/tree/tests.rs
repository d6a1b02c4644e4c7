//! What users of a tree cannot bring about: a change that is under way, or that failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use uext4_ondisk::{Lblk, Pblk};

use super::*;
use crate::stats::StatsMode;

fn hole(lblk: u32) -> Extent {
    Extent {
        lblk: Lblk(lblk),
        len: 1,
        pblk: Pblk(0),
        status: Status::Hole,
    }
}

/// A tree in queues, and the counters of its cache.
fn tree() -> (Arc<LeafTree>, Arc<Queues>, Counters) {
    let queues = Arc::new(Queues::new(10, 2));
    let counters = Counters::new(StatsMode::On, || Duration::ZERO);
    (LeafTree::new(&queues, true), queues, counters)
}

#[test]
fn a_look_up_under_the_lock_is_a_use() {
    let (tree, queues, counters) = tree();
    tree.cache(&counters, &hole(3));
    let leaf = || {
        let state = tree.state.lock();
        let (leaf, _) = found(state.cached.root(), state.delayed.root(), 3)?;
        Some(Arc::clone(leaf))
    };
    let leaf = leaf().unwrap();
    // Time passes in its shard as other leaves come.
    let others: Vec<_> = (0..64).map(|_| LeafTree::new(&queues, true)).collect();
    for other in &others {
        other.cache(&counters, &hole(3));
    }
    assert_eq!(leaf.freq(), 0);
    tree.version.fetch_add(1, Relaxed);
    let look = |locked| {
        let extent = Some(hole(3));
        assert_eq!(tree.lookup(&counters, 3), Lookup { extent, locked });
    };
    look(true);
    assert_eq!(leaf.freq(), 1);
    tree.version.fetch_add(1, Relaxed);
    look(false);
}

#[test]
fn a_change_that_failed_does_not_show_the_next_one_half_done() {
    let (tree, _, counters) = tree();
    let change = |work: &dyn Fn()| {
        let state = &mut *tree.state.lock();
        tree.change(&counters, state, |_, _| work());
    };
    let is_even = || tree.version.load(Relaxed).is_multiple_of(2);
    let failed = catch_unwind(AssertUnwindSafe(|| change(&|| panic!("while it changes"))));
    assert!(failed.is_err() && !is_even());
    change(&|| assert!(!is_even()));
    assert!(is_even());
}

#[test]
fn a_tree_in_use_is_not_waited_for() {
    let (tree, _, counters) = tree();
    tree.cache(&counters, &hole(3));
    let state = tree.state.lock();
    let leaf =
        found(state.cached.root(), state.delayed.root(), 3).map(|(leaf, _)| Arc::clone(leaf));
    let leaf = leaf.unwrap();
    assert_eq!(tree.try_evict(&counters, &leaf), None);
    // Lookups wait only while something changes.
    let look = tree.lookup(&counters, 3);
    assert_eq!((look.extent, look.locked), (Some(hole(3)), false));
    drop(state);
    assert_eq!(tree.try_evict(&counters, &leaf), Some((1, 0)));
    // It is no longer the tree's.
    assert_eq!(tree.try_evict(&counters, &leaf), Some((0, 0)));
}

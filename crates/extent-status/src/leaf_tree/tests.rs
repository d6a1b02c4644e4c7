//! What users of a tree cannot bring about: a change that is under way, or that failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use uext4_ondisk::{Lblk, Pblk};

use super::*;
use crate::room::Order;

fn hole(lblk: u32) -> Extent {
    Extent {
        lblk: Lblk(lblk),
        len: 1,
        pblk: Pblk(0),
        status: Status::Hole,
    }
}

fn room() -> (Arc<Room>, Arc<Queues>) {
    let room = Room::new(|| Duration::ZERO);
    let Order::Leaves(queues) = &room.order else {
        unreachable!("the default is one of leaves")
    };
    let queues = Arc::clone(queues);
    (room, queues)
}

#[test]
fn a_look_up_under_the_lock_is_a_use() {
    let (room, queues) = room();
    let tree = Shared::new(&queues, true);
    tree.cache(&room, &queues, &hole(3));
    let leaf = || {
        let state = tree.state.lock();
        let (leaf, _) = found(state.cached.root(), state.delayed.root(), 3)?;
        Some(Arc::clone(leaf))
    };
    let leaf = leaf().unwrap();
    // Time passes in its shard as other leaves come.
    let others: Vec<_> = (0..64).map(|_| Shared::new(&queues, true)).collect();
    for other in &others {
        other.cache(&room, &queues, &hole(3));
    }
    assert_eq!(leaf.freq(), 0);
    tree.version.fetch_add(1, Relaxed);
    assert_eq!(tree.lookup(&queues, 3), (Some(hole(3)), true));
    assert_eq!(leaf.freq(), 1);
    tree.version.fetch_add(1, Relaxed);
    assert_eq!(tree.lookup(&queues, 3), (Some(hole(3)), false));
}

#[test]
fn a_change_that_failed_does_not_show_the_next_one_half_done() {
    let (room, queues) = room();
    let tree = Shared::new(&queues, true);
    let change = |work: &dyn Fn()| {
        let state = &mut *tree.state.lock();
        tree.change(&room, &queues, state, |_, _| work());
    };
    let is_even = || tree.version.load(Relaxed).is_multiple_of(2);
    let failed = catch_unwind(AssertUnwindSafe(|| change(&|| panic!("while it changes"))));
    assert!(failed.is_err() && !is_even());
    change(&|| assert!(!is_even()));
    assert!(is_even());
}

//! What sharded clocks of leaves drop.

use std::sync::Arc;

use uext4_extent_status::{ExtentStatusCache, Tree};
use uext4_lab_policies::extent_status::{Options, Policy};
use uext4_ondisk::Lblk;

use super::conformance::hole;
use super::conformance::shrink::{scan_all, scattered};

/// One clock, so that the order is plain.
fn one_clock() -> Arc<ExtentStatusCache> {
    super::conformance::room(Policy::Clock.shrinker(Options {
        shards: 1,
        ..Options::default()
    }))
}

#[test]
fn what_was_used_later_stays() {
    let room = one_clock();
    let trees: Vec<Tree> = (0..8).map(|_| scattered(&room, 4)).collect();
    trees[1].lookup(Lblk(0)).unwrap();
    trees[4].lookup(Lblk(0)).unwrap();
    // The six others; the used ones go round.
    assert_eq!(room.scan(24), 24);
    let known = (0..8).filter(|at| !trees[*at].extents().is_empty());
    assert_eq!(known.collect::<Vec<usize>>(), [1, 4]);
    scan_all(&room);
}

#[test]
fn nothing_is_remembered() {
    let room = one_clock();
    let trees: Vec<Tree> = (0..20).map(|_| scattered(&room, 4)).collect();
    assert_eq!(room.scan(4), 4);
    trees[0].cache(hole(0, 1));
    assert_eq!(room.stats().ghost_hits, 0);
    // In their order: it is the last that came.
    assert_eq!(room.scan(4 * 19), 4 * 19);
    assert_eq!((room.count(), trees[0].extents().len()), (1, 1));
}

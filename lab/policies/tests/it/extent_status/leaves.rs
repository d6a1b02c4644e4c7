//! Leaves of the shipped design compared with the map of mainline, one extent after the other.

use proptest::prelude::*;
use uext4_extent_status::{Extent, Status, Tree};
use uext4_lab_policies::extent_status::Policy;
use uext4_ondisk::Lblk;

use super::conformance::shrink::scan_all;
use super::conformance::{Merge, delayed, hole, room, written};
use super::shrinker;

/// A leaf of a map on the device: extents from `first` on, with or without holes between them.
fn map_leaf(first: u32, extents: u32, with_holes: bool) -> Vec<Extent> {
    let mut all = Vec::new();
    for at in 0..extents {
        let lblk = first + at * 3;
        all.push(written(lblk, 2, 1_000_000 - u64::from(lblk) * 4));
        if with_holes {
            all.push(hole(lblk + 2, 1));
        }
    }
    all
}

proptest! {
    #[test]
    fn whole_leaves_go_in_as_their_extents_would(
        merge in prop::sample::select(vec![Merge::On, Merge::Off]),
        ops in prop::collection::vec((0..12_u32, 0..3000_u32, 1..400_u32, any::<bool>()), 1..25),
    ) {
        let caches = [Policy::LeafQueue, Policy::Mainline].map(|policy| room(shrinker(policy, merge)));
        let trees = caches.each_ref().map(Tree::new);
        for (op, first, len, with_holes) in ops {
            for tree in &trees {
                match op {
                    0 => _ = tree.remove(Lblk(first), len),
                    1 => _ = tree.insert(delayed(first, 1 + len % 7)),
                    2 => _ = tree.insert(hole(first, len)),
                    3 => tree.cache(written(first, 1, u64::from(first))),
                    4 => tree.cache(written(first + 2000, 1, 1 + u64::from(first))),
                    5 => _ = tree.remove(Lblk(first + 1000), u32::MAX - 5000),
                    _ => tree.cache_all(&map_leaf(first, len, with_holes)),
                }
            }
            let known = trees.each_ref().map(Tree::extents);
            prop_assert_eq!(&known[0], &known[1]);
            for lblk in (first.saturating_sub(20)..first + 3 * len + 20).step_by(7) {
                let found = trees.each_ref().map(|tree| tree.lookup(Lblk(lblk)));
                prop_assert_eq!(found[0], found[1]);
            }
        }
        prop_assert_eq!(caches[0].count(), caches[1].count());
        scan_all(&caches[0]);
        prop_assert!(trees[0].extents().iter().all(|extent| extent.status == Status::Delayed));
    }
}

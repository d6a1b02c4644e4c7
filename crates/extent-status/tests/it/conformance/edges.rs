//! First and last blocks, lengths that reach too far, impossible places.

use uext4_extent_status::{Extent, Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

use super::{Merge, Subject, delayed, designs, extent, for_each_design, hole, written};

const LAST: u32 = Lblk::LAST.0;

#[test]
fn an_empty_tree_knows_nothing() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        for lblk in [0, 1, LAST, u32::MAX] {
            assert_eq!(tree.lookup(Lblk(lblk)), None);
            assert_eq!(tree.find(Lblk(lblk), |_| true), None);
            assert_eq!(tree.remove(Lblk(lblk), u32::MAX), 0);
        }
        assert_eq!((tree.delayed_blocks(), tree.extents().len()), (0, 0));
    });
}

#[test]
fn a_hole_spans_all_blocks() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        tree.cache(hole(0, u32::MAX));
        assert_eq!(tree.extents(), [hole(0, u32::MAX)]);
        assert_eq!(tree.lookup(Lblk(LAST)), Some(hole(0, u32::MAX)));
        assert_eq!(tree.lookup(Lblk(u32::MAX)), None);
        assert_eq!(tree.insert(delayed(LAST, 1)), 0);
        assert_eq!(tree.extents(), [hole(0, LAST), delayed(LAST, 1)]);
        assert_eq!(tree.insert(hole(0, u32::MAX)), 1);
        assert_eq!(tree.extents(), [hole(0, u32::MAX)]);
    });
}

#[test]
fn all_blocks_may_be_delayed() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        assert_eq!(tree.insert(delayed(0, LAST)), 0);
        assert_eq!(tree.insert(delayed(LAST, 1)), 0);
        assert_eq!(tree.extents(), [delayed(0, u32::MAX)]);
        assert_eq!(tree.delayed_blocks(), u64::from(u32::MAX));
        assert_eq!(tree.insert(delayed(0, u32::MAX)), u32::MAX);
        assert_eq!(tree.remove(Lblk(0), u32::MAX), u32::MAX);
        assert_eq!(tree.delayed_blocks(), 0);
    });
}

#[test]
fn lengths_are_cut_at_the_last_block() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        assert_eq!(tree.insert(delayed(LAST - 1, u32::MAX)), 0);
        assert_eq!(tree.extents(), [delayed(LAST - 1, 2)]);
        assert_eq!(tree.remove(Lblk(LAST), u32::MAX), 1);
        assert_eq!(tree.extents(), [delayed(LAST - 1, 1)]);
        tree.cache(hole(5, u32::MAX));
        assert_eq!(
            tree.extents(),
            [hole(5, LAST - 6), delayed(LAST - 1, 1), hole(LAST, 1)]
        );
    });
}

#[test]
fn an_empty_range_stores_nothing() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        let seq = tree.seq();
        for lblk in [0, 7, u32::MAX] {
            assert_eq!(tree.insert(delayed(lblk, 0)), 0);
            assert_eq!(tree.remove(Lblk(lblk), 0), 0);
            tree.cache(hole(lblk, 0));
        }
        assert_eq!(tree.insert(delayed(u32::MAX, 9)), 0);
        assert_eq!((tree.seq(), tree.extents().len()), (seq, 0));
    });
}

#[test]
fn an_impossible_place_makes_the_range_unknown() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        tree.insert(delayed(0, 10));
        tree.cache(written(10, 2, u64::MAX));
        assert_eq!(tree.extents(), [delayed(0, 10)]);
        assert_eq!(tree.insert(written(2, 3, Extent::PLACES - 1)), 3);
        assert_eq!(tree.extents(), [delayed(0, 2), delayed(5, 5)]);
        tree.insert(written(2, 3, Extent::PLACES - 3));
        let last = tree.lookup(Lblk(4)).unwrap();
        assert_eq!(last.pblk_at(Lblk(4)), Some(Pblk(Extent::PLACES - 1)));
    });
}

#[test]
fn delayed_extents_are_not_cached_and_have_no_place() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        tree.cache(delayed(0, 4));
        assert_eq!(tree.extents(), []);
        tree.insert(extent(0, 4, 77, Status::Delayed));
        tree.insert(extent(4, 4, 99, Status::Hole));
        assert_eq!(tree.extents(), [delayed(0, 4), hole(4, 4)]);
    });
}

/// Blocks that are delayed one by one, `step` apart.
fn each_delayed(tree: &Tree, step: u32, count: u32) {
    for at in 0..count {
        tree.insert(delayed(at * step, 1));
    }
}

#[test]
fn the_cost_of_a_miss_does_not_grow_with_the_cache() {
    for design in designs() {
        let Subject { room, .. } = Subject::new(design, Merge::Off);
        let name = design.name;
        let tree = Tree::new(&room);
        each_delayed(&tree, 2, 100_000);
        // The map on the device is one hole; every other block of it is delayed.
        tree.cache_all(&[hole(0, u32::MAX), hole(7, 1)]);
        assert_eq!(
            tree.find(Lblk(0), |status| status == Status::Hole),
            Some(hole(7, 1))
        );
        tree.cache(hole(100_001, 50_000));
        assert_eq!(room.count(), 1 + 32, "{name}");
        assert_eq!(tree.lookup(Lblk(100_001)), Some(hole(100_001, 1)));
        // Side by side, they are gone over alike.
        tree.clear_cache();
        each_delayed(&tree, 1, 100_000);
        tree.cache(hole(0, u32::MAX));
        assert_eq!(room.count(), 0, "{name}");
        assert_eq!(tree.delayed_blocks(), 150_000);
    }
}

#[test]
fn finding_cuts_at_its_start() {
    for_each_design(|room| {
        let tree = Tree::new(room);
        tree.cache_all(&[written(8, 8, 100), hole(0, 8)]);
        tree.insert(delayed(20, 4));
        let is = |wanted| move |status| status == wanted;
        assert_eq!(
            tree.find(Lblk(10), is(Status::Written)),
            Some(written(10, 6, 102))
        );
        assert_eq!(
            tree.find(Lblk(3), is(Status::Written)),
            Some(written(8, 8, 100))
        );
        assert_eq!(
            tree.find(Lblk(22), is(Status::Delayed)),
            Some(delayed(22, 2))
        );
        assert_eq!(tree.find(Lblk(24), is(Status::Delayed)), None);
        assert_eq!(tree.find(Lblk(0), |_| false), None);
    });
}

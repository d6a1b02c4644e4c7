//! First and last blocks, lengths that reach too far, impossible places.

use uext4_extent_status::{Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

use crate::{delayed, extent, hole, room, written};

const LAST: u32 = Lblk::LAST.0;

#[test]
fn an_empty_tree_knows_nothing() {
    let tree = Tree::new(&room());
    for lblk in [0, 1, LAST, u32::MAX] {
        assert_eq!(tree.lookup(Lblk(lblk)), None);
        assert_eq!(tree.find(Lblk(lblk), |_| true), None);
        assert_eq!(tree.remove(Lblk(lblk), u32::MAX), 0);
    }
    assert_eq!((tree.delayed_blocks(), tree.extents().len()), (0, 0));
}

#[test]
fn a_hole_spans_all_blocks() {
    let tree = Tree::new(&room());
    tree.cache(hole(0, u32::MAX));
    assert_eq!(tree.extents(), [hole(0, u32::MAX)]);
    assert_eq!(tree.lookup(Lblk(LAST)), Some(hole(0, u32::MAX)));
    assert_eq!(tree.lookup(Lblk(u32::MAX)), None);
    assert_eq!(tree.insert(delayed(LAST, 1)), 0);
    assert_eq!(tree.extents(), [hole(0, LAST), delayed(LAST, 1)]);
    assert_eq!(tree.insert(hole(0, u32::MAX)), 1);
    assert_eq!(tree.extents(), [hole(0, u32::MAX)]);
}

#[test]
fn all_blocks_may_be_delayed() {
    let tree = Tree::new(&room());
    assert_eq!(tree.insert(delayed(0, LAST)), 0);
    assert_eq!(tree.insert(delayed(LAST, 1)), 0);
    assert_eq!(tree.extents(), [delayed(0, u32::MAX)]);
    assert_eq!(tree.delayed_blocks(), u64::from(u32::MAX));
    assert_eq!(tree.insert(delayed(0, u32::MAX)), u32::MAX);
    assert_eq!(tree.remove(Lblk(0), u32::MAX), u32::MAX);
    assert_eq!(tree.delayed_blocks(), 0);
}

#[test]
fn lengths_are_cut_at_the_last_block() {
    let tree = Tree::new(&room());
    assert_eq!(tree.insert(delayed(LAST - 1, u32::MAX)), 0);
    assert_eq!(tree.extents(), [delayed(LAST - 1, 2)]);
    assert_eq!(tree.remove(Lblk(LAST), u32::MAX), 1);
    assert_eq!(tree.extents(), [delayed(LAST - 1, 1)]);
    tree.cache(hole(5, u32::MAX));
    assert_eq!(
        tree.extents(),
        [hole(5, LAST - 6), delayed(LAST - 1, 1), hole(LAST, 1)]
    );
}

#[test]
fn nothing_is_kept_of_nothing() {
    let tree = Tree::new(&room());
    let seq = tree.seq();
    for lblk in [0, 7, u32::MAX] {
        assert_eq!(tree.insert(delayed(lblk, 0)), 0);
        assert_eq!(tree.remove(Lblk(lblk), 0), 0);
        tree.cache(hole(lblk, 0));
    }
    assert_eq!(tree.insert(delayed(u32::MAX, 9)), 0);
    assert_eq!((tree.seq(), tree.extents().len()), (seq, 0));
}

#[test]
fn an_impossible_place_makes_the_range_unknown() {
    let tree = Tree::new(&room());
    tree.insert(delayed(0, 10));
    tree.cache(written(10, 2, u64::MAX));
    assert_eq!(tree.extents(), [delayed(0, 10)]);
    assert_eq!(tree.insert(written(2, 3, u64::MAX - 1)), 3);
    assert_eq!(tree.extents(), [delayed(0, 2), delayed(5, 5)]);
    tree.insert(written(2, 3, u64::MAX - 3));
    let last = tree.lookup(Lblk(4)).unwrap();
    assert_eq!(last.pblk_at(Lblk(4)), Some(Pblk(u64::MAX - 1)));
}

#[test]
fn delayed_extents_are_not_cached_and_have_no_place() {
    let tree = Tree::new(&room());
    tree.cache(delayed(0, 4));
    assert_eq!(tree.extents(), []);
    tree.insert(extent(0, 4, 77, Status::Delayed));
    tree.insert(extent(4, 4, 99, Status::Hole));
    assert_eq!(tree.extents(), [delayed(0, 4), hole(4, 4)]);
}

#[test]
fn finding_cuts_at_its_start() {
    let tree = Tree::new(&room());
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
}

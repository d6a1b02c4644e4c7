//! Lookups, changes and reclaim of several threads in many orders: delayed extents stay, no
//! answer was never so, counts add up at the end. The tests of `lab/policies` include this file,
//! for the designs there; `check` next to it runs each test with its designs.

use std::sync::Arc;

use shuttle::thread;
use uext4_extent_status::{Extent, Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

use super::check;

fn extent(lblk: u32, len: u32, status: Status) -> Extent {
    let pblk = match status {
        Status::Written | Status::Unwritten => Pblk(1000 + u64::from(lblk)),
        Status::Delayed | Status::Hole => Pblk(0),
    };
    Extent {
        lblk: Lblk(lblk),
        len,
        pblk,
        status,
    }
}

#[test]
fn reclaim_takes_nothing_that_is_truth() {
    check(|room| {
        let tree = Arc::new(Tree::new(room));
        tree.insert(extent(10, 5, Status::Delayed));
        let reader = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.cache(extent(0, 10, Status::Written));
                if let Some(found) = tree.lookup(Lblk(3)) {
                    assert_eq!(found.pblk_at(Lblk(3)), Some(Pblk(1003)));
                }
                let found = tree.lookup(Lblk(12)).map(|found| found.status);
                assert_eq!(found, Some(Status::Delayed));
            })
        };
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                assert_eq!(tree.insert(extent(20, 4, Status::Delayed)), 0);
                assert_eq!(tree.insert(extent(21, 2, Status::Written)), 2);
                assert_eq!(tree.remove(Lblk(23), 1), 1);
            })
        };
        room.scan(100);
        room.scan(1);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(tree.delayed_blocks(), 6);
        let kept: Vec<_> = [10, 14, 20]
            .iter()
            .filter_map(|&at| tree.lookup(Lblk(at)))
            .collect();
        assert!(kept.iter().all(|found| found.status == Status::Delayed));
        assert_eq!(kept.len(), 3);
        // The first visit may only clear a mark of use.
        (0..6).for_each(|_| _ = room.scan(100));
        assert_eq!(room.count(), 0, "all else can go");
        assert_eq!(tree.extents().len(), 2);
    });
}

#[test]
fn trees_come_and_go_while_others_are_scanned() {
    check(|room| {
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let room = Arc::clone(room);
                thread::spawn(move || {
                    let tree = Tree::new(&room);
                    tree.cache(extent(number, 1, Status::Written));
                    tree.cache(extent(5 + number, 1, Status::Hole));
                    if number == 1 {
                        tree.remove(Lblk(0), 100);
                        tree.cache(extent(7, 1, Status::Unwritten));
                    }
                    drop(tree);
                })
            })
            .collect();
        room.scan(2);
        room.scan(2);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(room.count(), 0);
        assert_eq!(room.scan(10), 0);
    });
}

/// What a block of the tree may be said to be: at its one place, delayed, or not known.
fn look(tree: &Tree, lblk: u32) -> Option<Status> {
    let found = tree.lookup(Lblk(lblk))?;
    assert!(found.lblk.0 <= lblk && lblk < found.end());
    let place = found
        .status
        .is_mapped()
        .then_some(Pblk(1000 + u64::from(lblk)));
    assert_eq!(found.pblk_at(Lblk(lblk)), place);
    Some(found.status)
}

#[test]
fn look_ups_see_no_half_of_a_change() {
    check(|room| {
        let tree = Arc::new(Tree::new(room));
        // Apart, so that they fill a leaf of the smallest kind, and later do not.
        for lblk in [0, 4, 8, 12] {
            tree.cache(extent(lblk, 2, Status::Written));
        }
        tree.insert(extent(2, 1, Status::Delayed));
        let reader = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                for lblk in [4, 9, 2] {
                    let status = look(&tree, lblk);
                    assert!(lblk != 2 || status == Some(Status::Delayed));
                }
                // It becomes delayed, and then stays so.
                if look(&tree, 8) == Some(Status::Delayed) {
                    assert_eq!(look(&tree, 8), Some(Status::Delayed));
                }
            })
        };
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                // Moves entries, cuts one in two, grows the leaf.
                tree.remove(Lblk(0), 2);
                tree.insert(extent(8, 1, Status::Delayed));
                for lblk in [20, 24, 28] {
                    tree.cache(extent(lblk, 1, Status::Written));
                }
                tree.insert(extent(4, 2, Status::Unwritten));
            })
        };
        room.scan(1);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(tree.delayed_blocks(), 2);
        assert_eq!(look(&tree, 2), Some(Status::Delayed));
        assert_eq!(look(&tree, 8), Some(Status::Delayed));
        let extents = tree.extents();
        let cached = extents.iter().filter(|e| e.status.is_reclaimable());
        assert_eq!(room.count(), cached.count());
    });
}

#[test]
fn few_extents_come_and_go_at_once() {
    check(|room| {
        let tree = Arc::new(Tree::new(room));
        let few = [0, 4, 8, 12].map(|lblk| extent(lblk, 2, Status::Written));
        let reader = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                assert!([None, Some(Status::Written)].contains(&look(&tree, 1)));
                // It becomes delayed, and then stays so.
                if look(&tree, 12) == Some(Status::Delayed) {
                    assert_eq!(look(&tree, 12), Some(Status::Delayed));
                }
            })
        };
        let owner = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.cache_all(&few);
                tree.clear_cache();
                tree.cache_all(&few[1..]);
                tree.insert(extent(12, 1, Status::Delayed));
                tree.cache_all(&few[..1]);
            })
        };
        room.scan(1);
        reader.join().unwrap();
        owner.join().unwrap();
        assert_eq!(tree.delayed_blocks(), 1);
        assert_eq!(look(&tree, 12), Some(Status::Delayed));
        (0..6).for_each(|_| _ = room.scan(100));
        assert_eq!((room.count(), tree.extents().len()), (0, 1));
    });
}

#[test]
fn leaves_are_dropped_while_they_move() {
    check(|room| {
        let tree = Arc::new(Tree::new(room));
        for lblk in [0, 4, 8, 12] {
            tree.cache(extent(lblk, 1, Status::Written));
        }
        let shrinker = {
            let room = Arc::clone(room);
            thread::spawn(move || {
                room.scan(1);
                room.scan(1);
            })
        };
        let owner = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.set_precached();
                // A new leaf in place of the old one, in whatever queue that is.
                tree.cache(extent(16, 1, Status::Written));
                look(&tree, 16);
                tree.clear_cache();
                tree.cache(extent(20, 1, Status::Hole));
            })
        };
        room.scan(3);
        shrinker.join().unwrap();
        owner.join().unwrap();
        (0..6).for_each(|_| _ = room.scan(100));
        assert_eq!((room.count(), tree.extents().len()), (0, 0));
    });
}

#[test]
fn an_answer_stands_as_long_as_the_number_does() {
    check(|room| {
        let tree = Arc::new(Tree::new(room));
        tree.cache(extent(4, 4, Status::Written));
        let reader = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                let seq = tree.seq();
                (seq, look(&tree, 5))
            })
        };
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || {
                tree.insert(extent(5, 1, Status::Unwritten));
                tree.insert(extent(5, 2, Status::Delayed));
            })
        };
        let (seq, status) = reader.join().unwrap();
        writer.join().unwrap();
        if tree.seq() == seq {
            assert_eq!(look(&tree, 5), status);
        }
    });
}

#[test]
fn what_may_be_dropped_is_always_found() {
    check(|room| {
        let tree = Arc::new(Tree::new(room));
        tree.cache(extent(0, 1, Status::Written));
        let scanner = {
            let room = Arc::clone(room);
            thread::spawn(move || room.scan(1))
        };
        tree.cache(extent(5, 1, Status::Written));
        scanner.join().unwrap();
        // Twice, as one of recent use may be spared the first time.
        for _ in 0..3 {
            room.scan(9);
        }
        assert_eq!(room.count(), 0);
        assert!(tree.extents().is_empty());
    });
}

//! In which order the shrinkers that go from tree to tree drop what they find, and what they look
//! at.

use uext4_extent_status::{ExtentStatusCache, Tree};
use uext4_lab_policies::extent_status::Policy::{Lru, Mainline, RoundRobin, Vanilla};
use uext4_ondisk::Lblk;

use super::conformance::shrink::scattered;
use super::conformance::{delayed, hole};
use super::room;

/// Ninety delayed extents before a hole.
fn mostly_delayed(room: &std::sync::Arc<ExtentStatusCache>) -> Tree {
    let tree = Tree::new(room);
    for at in 0..90 {
        tree.insert(delayed(at * 2, 1));
    }
    tree.cache(hole(1000, 1));
    tree
}

#[test]
fn the_budget_of_mainline_counts_visited_extents() {
    let room = room(Mainline);
    let _tree = mostly_delayed(&room);
    let scans = [(); 2].map(|()| room.scan_recorded(50));
    assert_eq!(scans.map(|scan| scan.freed), [0, 1]);
    assert_eq!(scans.map(|scan| scan.visited), [50, 50]);
    assert_eq!(scans.map(|scan| scan.delayed_seen), [50, 49]);
    assert_eq!((room.stats().scans, room.stats().freed), (2, 1));
    // Nothing is left, so the tree is not looked at any more.
    assert_eq!(room.scan_recorded(50).visited, 0);
}

#[test]
fn the_budget_of_vanilla_counts_freed_extents() {
    let room = room(Vanilla);
    let _tree = mostly_delayed(&room);
    let scan = room.scan_recorded(1);
    assert_eq!((scan.freed, scan.visited, scan.delayed_seen), (1, 91, 90));
    // The tree was used after the list was sorted, so it took two rounds, all under one lock.
    assert_eq!((scan.trees, scan.second_rounds, scan.list_locks), (2, 1, 1));
    assert_eq!(scan.max_steps_under_lock, scan.steps());
}

#[test]
fn queued_extents_are_found_at_once() {
    for policy in [Lru, RoundRobin] {
        let room = room(policy);
        let tree = mostly_delayed(&room);
        let scan = room.scan_recorded(50);
        assert_eq!((scan.freed, scan.visited, scan.delayed_seen), (1, 1, 0));
        // In the order in which they came; what became of delayed ones is last.
        for lblk in [1006, 1002, 1004] {
            tree.insert(hole(lblk, 1));
        }
        tree.insert(hole(0, 1));
        let left: Vec<Option<u32>> = (0..4)
            .map(|_| {
                room.scan(1);
                tree.find(Lblk(0), |status| status.is_reclaimable())
                    .map(|e| e.lblk.0)
            })
            .collect();
        assert_eq!(left, [Some(0), Some(0), Some(0), None]);
    }
}

#[test]
fn used_extents_get_a_second_chance_from_mainline() {
    let room = room(Mainline);
    let tree = scattered(&room, 3);
    tree.lookup(Lblk(2)).unwrap();
    assert_eq!(room.scan(3), 2);
    assert_eq!(tree.extents(), [hole(2, 1)]);
    tree.lookup(Lblk(2)).unwrap();
    assert_eq!((room.scan(3), room.scan(3)), (0, 1));
    assert_eq!(tree.lookup(Lblk(2)), None);
}

#[test]
fn mainline_goes_round_a_tree_from_where_it_left() {
    let room = room(Mainline);
    let tree = scattered(&room, 6);
    assert_eq!(room.scan(2), 2);
    let rest = [4, 6, 8, 10].map(|lblk| hole(lblk, 1));
    assert_eq!(tree.extents(), rest);
    // New ones before the cursor wait until it comes round.
    tree.cache(hole(0, 1));
    assert_eq!(room.scan(2), 2);
    assert_eq!(tree.extents(), [0, 8, 10].map(|lblk| hole(lblk, 1)));
    assert_eq!(room.scan(3), 3);
}

#[test]
fn trees_take_turns() {
    for policy in [RoundRobin, Mainline] {
        let room = room(policy);
        let trees = [10, 10, 10].map(|holes| scattered(&room, holes));
        let left = || trees.each_ref().map(|tree| tree.extents().len());
        room.scan(4);
        assert_eq!(left(), [6, 10, 10]);
        room.scan(4);
        assert_eq!(left(), [6, 6, 10]);
        room.scan(4);
        assert_eq!(left(), [6, 6, 6]);
        room.scan(12);
        assert_eq!(left(), [0, 0, 6]);
        assert_eq!(room.stats().s_es_nr_inode, 1);
    }
}

#[test]
fn the_tree_not_used_for_longest_goes_first() {
    for policy in [Vanilla, Lru] {
        let room = room(policy);
        let trees = [10, 10, 10].map(|holes| scattered(&room, holes));
        trees[0].lookup(Lblk(0)).unwrap();
        let left = || trees.each_ref().map(|tree| tree.extents().len());
        let scan = room.scan_recorded(4);
        assert_eq!((scan.trees, left()), (4, [10, 6, 10]));
        assert!(scan.compares >= 2);
        // The list is still as it was sorted; nothing was used since.
        let scan = room.scan_recorded(8);
        assert_eq!((scan.trees, scan.compares, left()), (2, 0, [10, 0, 8]));
        // All but the first were used since.
        trees[2].lookup(Lblk(18)).unwrap();
        room.scan(4);
        assert_eq!(left(), [6, 0, 8]);
    }
}

#[test]
fn vanilla_goes_over_all_trees_and_lists_idle_ones() {
    let steps = |trees: u32| {
        let room = room(Vanilla);
        let trees: Vec<Tree> = (0..trees).map(|_| scattered(&room, 4)).collect();
        let scan = room.scan_recorded(8);
        assert_eq!(scan.freed, 8);
        (scan.trees, trees.len() as u64)
    };
    for count in [100, 400] {
        let (visited, trees) = steps(count);
        // Once over all that are too young, and two after the sort.
        assert_eq!(visited, trees + 2);
    }
    let room = room(Vanilla);
    let tree = Tree::new(&room);
    assert_eq!(room.stats().s_es_nr_inode, 0);
    assert_eq!(tree.lookup(Lblk(0)), None);
    assert_eq!(room.stats().s_es_nr_inode, 1);
    drop(tree);
    assert_eq!(room.stats().s_es_nr_inode, 0);
}

#[test]
fn one_scan_of_mainline_looks_at_nothing_twice() {
    let room = room(Mainline);
    let trees = [5, 7].map(|holes| scattered(&room, holes));
    for tree in &trees {
        for at in 0..7 {
            tree.lookup(Lblk(at * 2));
        }
    }
    // All are marked: one turn takes the marks and drops nothing.
    let scan = room.scan_recorded(1000);
    assert_eq!((scan.freed, scan.visited, room.count()), (0, 12, 12));
    assert_eq!(room.scan(1000), 12);
}

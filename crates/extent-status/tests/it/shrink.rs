//! What the shrinker drops, in which order, and what it counts.

use uext4_extent_status::{BATCH, Room, Tree};
use uext4_ondisk::Lblk;

use crate::{delayed, hole, room, written};

/// Holes of one block with gaps between them, so that they do not merge.
fn scattered(room: &std::sync::Arc<Room>, holes: u32) -> Tree {
    let tree = Tree::new(room);
    for at in 0..holes {
        tree.cache(hole(at * 2, 1));
    }
    tree
}

/// Scans until everything that may go is gone; answers the scans it took.
fn scan_all(room: &Room) -> usize {
    let mut scans = 0;
    while room.count() > 0 {
        room.scan(BATCH);
        scans += 1;
        assert!(scans < 1000, "{:?}", room.stats());
    }
    scans
}

#[test]
fn delayed_extents_stay() {
    let room = room();
    let tree = scattered(&room, 100);
    tree.insert(delayed(7, 50));
    scan_all(&room);
    assert_eq!(tree.extents(), [delayed(7, 50)]);
    assert_eq!(room.scan(BATCH), 0);
    assert_eq!(room.stats().es_stats_all_cnt, 1);
}

#[test]
fn the_budget_counts_what_is_looked_at() {
    let room = room();
    let tree = Tree::new(&room);
    for at in 0..90 {
        tree.insert(delayed(at * 2, 1));
    }
    tree.insert(hole(1000, 1));
    assert_eq!((room.scan(50), room.scan(50)), (0, 1));
    let stats = room.stats();
    assert_eq!((stats.visited, stats.delayed_seen), (100, 99));
    assert_eq!((stats.scans, stats.freed), (2, 1));
    // Nothing is left, so the tree is not looked at any more.
    assert_eq!(room.scan(50), 0);
    assert_eq!(room.stats().visited, 100);
}

#[test]
fn used_extents_get_a_second_chance() {
    let room = room();
    let tree = scattered(&room, 3);
    tree.lookup(Lblk(2)).unwrap();
    assert_eq!(room.scan(3), 2);
    assert_eq!(tree.extents(), [hole(2, 1)]);
    tree.lookup(Lblk(2)).unwrap();
    assert_eq!((room.scan(3), room.scan(3)), (0, 1));
    assert_eq!(tree.lookup(Lblk(2)), None);
}

#[test]
fn a_tree_is_gone_round_from_where_it_was_left() {
    let room = room();
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
    let room = room();
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

#[test]
fn one_scan_looks_at_nothing_twice() {
    let room = room();
    let trees = [5, 7].map(|holes| scattered(&room, holes));
    for tree in &trees {
        for at in 0..7 {
            tree.lookup(Lblk(at * 2));
        }
    }
    // All are marked: one turn takes the marks and drops nothing.
    assert_eq!(room.scan(1000), 0);
    assert_eq!((room.stats().visited, room.count()), (12, 12));
    assert_eq!(room.scan(1000), 12);
}

#[test]
fn a_dropped_tree_leaves_the_room() {
    let room = room();
    let empty = room.memory();
    assert_eq!(empty, 0);
    let trees = [10, 20].map(|holes| scattered(&room, holes));
    trees[0].insert(delayed(100, 3));
    assert_eq!((room.count(), room.stats().s_es_nr_inode), (30, 2));
    assert!(room.memory() > 31 * 16);
    drop(trees);
    let stats = room.stats();
    assert_eq!((room.count(), stats.s_es_nr_inode), (0, 0));
    assert_eq!((stats.es_stats_all_cnt, room.memory()), (0, 0));
    assert_eq!(room.scan(BATCH), 0);
}

#[test]
fn look_ups_and_scans_are_counted_unless_switched_off() {
    let room = room();
    let tree = Tree::new(&room);
    tree.cache(written(0, 8, 50));
    tree.lookup(Lblk(7)).unwrap();
    assert_eq!(tree.lookup(Lblk(8)), None);
    room.scan(BATCH);
    let stats = room.stats();
    assert_eq!(stats.es_stats_cache_hits, 1);
    assert_eq!(stats.es_stats_cache_misses, 1);
    // The clock of these tests moves by a microsecond whenever it is read.
    assert_eq!(stats.es_stats_scan_time, 1000);
    assert_eq!(stats.es_stats_max_scan_time, 1000);
    room.scan(BATCH);
    let stats = room.stats();
    assert_eq!((stats.scans, stats.freed, stats.es_stats_shrunk), (2, 1, 0));

    room.set_stats(false);
    tree.cache(written(0, 8, 50));
    tree.lookup(Lblk(7)).unwrap();
    assert_eq!(room.count(), 1);
    scan_all(&room);
    assert_eq!(room.stats().es_stats_all_cnt, 0);
    room.set_stats(true);
    assert_eq!(room.stats(), stats_without_extents(stats));
}

/// The same counters with nothing in the room.
fn stats_without_extents(stats: uext4_extent_status::Stats) -> uext4_extent_status::Stats {
    uext4_extent_status::Stats {
        es_stats_all_cnt: 0,
        es_stats_shk_cnt: 0,
        s_es_nr_inode: 0,
        ..stats
    }
}

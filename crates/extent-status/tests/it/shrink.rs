//! What every shrinker drops and what it must keep, and what it counts.

use std::sync::Arc;

use uext4_extent_status::{BATCH, Room, Shrinker, Stats, StatsMode, Tree};
use uext4_ondisk::Lblk;

use crate::{delayed, hole, in_each_room, room, written};

/// Holes of one block with gaps between them, so that they do not merge.
pub(crate) fn scattered(room: &Arc<Room>, holes: u32) -> Tree {
    let tree = Tree::new(room);
    for at in 0..holes {
        tree.cache(hole(at * 2, 1));
    }
    tree
}

/// Scans until everything that may go is gone; answers the scans it took.
pub(crate) fn scan_all(room: &Room) -> usize {
    let mut scans = 0;
    while room.count() > 0 {
        room.scan(BATCH);
        scans += 1;
        assert!(scans < 10_000, "{:?}", room.stats());
    }
    scans
}

#[test]
fn delayed_extents_stay() {
    in_each_room(|room| {
        let tree = scattered(room, 100);
        tree.insert(delayed(7, 50));
        scan_all(room);
        assert_eq!(tree.extents(), [delayed(7, 50)]);
        assert_eq!(room.scan(BATCH), 0);
        assert_eq!(room.stats().es_stats_all_cnt, 1);
    });
}

#[test]
fn a_scan_of_nothing_does_nothing() {
    in_each_room(|room| {
        let tree = scattered(room, 100);
        assert_eq!(room.scan_recorded(0).freed, 0);
        assert_eq!(tree.extents().len(), 100);
    });
}

#[test]
fn trees_loaded_in_advance_go_last() {
    in_each_room(|room| {
        let trees = [(); 2].map(|()| scattered(room, 100));
        trees[0].set_precached(true);
        // Of the tree that is not spared, a part at a time.
        while room.count() > 100 {
            assert!(room.scan(50) > 0 || room.options().shrinker == Shrinker::Vanilla);
        }
        assert_eq!(trees[0].extents().len(), 100);
        assert_eq!(trees[1].extents().len(), 0);
        let scan = room.scan_recorded(BATCH);
        assert_eq!((scan.freed, scan.second_rounds), (100, 1));
    });
}

#[test]
fn the_mark_may_come_and_go() {
    in_each_room(|room| {
        let trees = [(); 2].map(|()| scattered(room, 100));
        trees[0].set_precached(true);
        trees[0].set_precached(false);
        trees[1].set_precached(true);
        trees[1].clear_cache();
        assert!(!trees[1].is_precached());
        assert_eq!(room.count(), 100);
        scan_all(room);
        assert_eq!(trees.map(|tree| tree.extents().len()), [0, 0]);
    });
}

#[test]
fn clearing_keeps_what_is_delayed() {
    in_each_room(|room| {
        let tree = scattered(room, 200);
        for at in 0..100 {
            tree.insert(delayed(at * 4 + 1, 1));
        }
        let seq = tree.seq();
        tree.clear_cache();
        let expected: Vec<_> = (0..100).map(|at| delayed(at * 4 + 1, 1)).collect();
        assert_eq!(tree.extents(), expected);
        assert_eq!((tree.seq(), tree.delayed_blocks()), (seq, 100));
        assert_eq!((room.count(), room.scan(BATCH)), (0, 0));
    });
}

#[test]
fn a_dropped_tree_leaves_the_room() {
    in_each_room(|room| {
        assert_eq!(room.memory(), 0);
        let trees = [10, 20].map(|holes| scattered(room, holes));
        trees[0].insert(delayed(100, 3));
        assert_eq!((room.count(), room.stats().s_es_nr_inode), (30, 2));
        assert!(room.memory() > 31 * 16);
        drop(trees);
        let stats = room.stats();
        assert_eq!((room.count(), stats.s_es_nr_inode), (0, 0));
        assert_eq!((stats.es_stats_all_cnt, room.memory()), (0, 0));
        assert_eq!(room.scan(BATCH), 0);
    });
}

#[test]
fn look_ups_are_counted_with_their_locks() {
    in_each_room(|room| {
        let tree = Tree::new(room);
        tree.cache(written(0, 8, 50));
        tree.insert(delayed(20, 4));
        for lblk in [0, 7, 20, 23] {
            tree.lookup(Lblk(lblk)).unwrap();
        }
        assert_eq!(tree.lookup(Lblk(8)), None);
        let stats = room.stats();
        assert_eq!(stats.es_stats_cache_hits, 4);
        assert_eq!(stats.es_stats_cache_misses, 1);
        let locks = if room.options().shrinker.drops_leaves() {
            0
        } else {
            4
        };
        assert_eq!(stats.lookup_hit_locks, locks);
    });
}

#[test]
fn sampled_look_ups_add_up() {
    in_each_room(|room| {
        room.set_stats(StatsMode::Sampled);
        let tree = Tree::new(room);
        tree.cache(written(0, 8, 50));
        for _ in 0..6400 {
            tree.lookup(Lblk(3)).unwrap();
        }
        // Of 6400 look-ups one after the other, each 64th was counted for 64.
        assert_eq!(room.stats().es_stats_cache_hits, 6400);
    });
}

#[test]
fn scans_are_counted_unless_switched_off() {
    in_each_room(|room| {
        let tree = scattered(room, 300);
        let mut freed = 0;
        let mut steps = 0;
        while room.count() > 0 {
            let scan = room.scan_recorded(BATCH);
            (freed, steps) = (freed + scan.freed, steps + scan.steps());
            assert!(scan.steps() >= scan.leaves_evicted + scan.visited as u64);
            assert!(scan.max_steps_under_lock > 0 && scan.list_locks > 0);
        }
        let stats = room.stats();
        assert_eq!((stats.freed, stats.steps), (freed as u64, steps));
        assert!(stats.scans >= 3 && stats.es_stats_max_scan_time >= 1000);
        room.set_stats(StatsMode::Off);
        tree.cache(written(0, 8, 50));
        tree.lookup(Lblk(7)).unwrap();
        assert_eq!(room.count(), 1);
        scan_all(room);
        assert_eq!(room.stats(), without_extents(stats));
    });
}

/// The same counters with nothing in the room; vanilla keeps what is empty on its list.
fn without_extents(stats: Stats) -> Stats {
    Stats {
        es_stats_all_cnt: 0,
        es_stats_shk_cnt: 0,
        ..stats
    }
}

#[test]
fn times_are_averaged() {
    let room = room(Shrinker::LeafQueue);
    let _tree = scattered(&room, 3);
    // The clock of these tests moves by a microsecond whenever it is read.
    assert_eq!((room.scan(BATCH), room.scan(BATCH)), (3, 0));
    let stats = room.stats();
    assert_eq!((stats.scans, stats.freed, stats.es_stats_shrunk), (2, 3, 2));
    assert_eq!(stats.es_stats_scan_time, 1000);
    assert_eq!(stats.es_stats_max_scan_time, 1000);
}

//! What every design drops and what must stay, and what is counted.

use std::sync::Arc;
use std::time::Duration;

use uext4_extent_status::{BATCH, Counters, ExtentStatusCache, Stats, StatsMode, Tree};
use uext4_ondisk::Lblk;

use super::{delayed, for_each_design, hole, with_each, written};

/// Holes of one block with gaps between them, so that they do not merge.
pub fn scattered(room: &Arc<ExtentStatusCache>, holes: u32) -> Tree {
    let tree = Tree::new(room);
    for at in 0..holes {
        tree.cache(hole(at * 2, 1));
    }
    tree
}

/// Scans until everything that may go is gone; answers the scans it took.
pub fn scan_all(room: &ExtentStatusCache) -> usize {
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
    for_each_design(|room| {
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
    for_each_design(|room| {
        let tree = scattered(room, 100);
        assert_eq!(room.scan_recorded(0).freed, 0);
        assert_eq!(tree.extents().len(), 100);
    });
}

#[test]
fn trees_loaded_in_advance_go_last() {
    with_each(|subject| {
        let room = &subject.room;
        let trees = [(); 2].map(|()| scattered(room, 100));
        trees[0].set_precached();
        // Of the tree that is not spared, a part at a time.
        while room.count() > 100 {
            assert!(room.scan(50) > 0 || subject.design.lists_idle_trees);
        }
        assert_eq!(trees[0].extents().len(), 100);
        assert_eq!(trees[1].extents().len(), 0);
        let scan = room.scan_recorded(BATCH);
        assert_eq!((scan.freed, scan.second_rounds), (100, 1));
    });
}

#[test]
fn the_mark_may_come_and_go() {
    for_each_design(|room| {
        let trees = [(); 2].map(|()| scattered(room, 100));
        trees[0].set_precached();
        trees[0].clear_cache();
        assert!(!trees[0].is_precached());
        assert_eq!(room.count(), 100);
        trees[0].cache(hole(0, 1));
        scan_all(room);
        assert_eq!(trees.map(|tree| tree.extents().len()), [0, 0]);
    });
}

/// An iterator of extents runs while the tree is locked that they go into.
#[test]
fn a_tree_in_use_is_passed_over_and_tried_once_more() {
    with_each(|subject| {
        let (name, shrinker) = (subject.design.name, &subject.shrinker);
        let counters = Counters::new(StatsMode::On, || Duration::ZERO);
        let trees = [(); 2].map(|()| shrinker.tree());
        for tree in &trees {
            tree.cache(&counters, &hole(3, 1));
        }
        let (mut freed, mut passed_over) = (0, 0);
        let mut none = std::iter::from_fn(|| {
            for _ in 0..4 {
                let scan = shrinker.scan(&counters, 10);
                freed += scan.freed;
                passed_over += scan.trylock_failed;
            }
            None
        });
        trees[0].cache_all(&counters, &mut none);
        // What is not in use goes all the same.
        assert_eq!((freed, counters.reclaimable()), (1, 1), "{name}");
        assert!(passed_over > 0, "{name}");
        assert_eq!(trees[0].extents(), [hole(3, 1)], "{name}");
        assert_eq!(shrinker.scan(&counters, 10).freed, 1, "{name}");
        for tree in &trees {
            tree.close(&counters);
        }
    });
}

/// As the engine does when all is to go: as many batches as a mark of use may take.
#[test]
fn what_was_used_often_goes_if_all_is_asked_for() {
    for_each_design(|room| {
        let trees: Vec<Tree> = (0..300).map(|_| scattered(room, 1)).collect();
        let passing = Tree::new(room);
        for _ in 0..4 {
            // Lookups count once as time passes: as leaves come and go.
            for _ in 0..100 {
                passing.cache(hole(0, 1));
                passing.remove(Lblk(0), 1);
            }
            for tree in &trees {
                assert!(tree.lookup(Lblk(0)).is_some());
            }
        }
        for _ in 0..5 * room.count().div_ceil(BATCH) {
            room.scan(BATCH);
        }
        assert_eq!(room.count(), 0);
    });
}

#[test]
fn clearing_preserves_delayed_extents() {
    for_each_design(|room| {
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
fn a_dropped_tree_leaves_the_cache() {
    for_each_design(|room| {
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
    with_each(|subject| {
        let room = &subject.room;
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
        let locks = if subject.design.has_leaves { 0 } else { 4 };
        assert_eq!(stats.lookup_hit_locks, locks);
    });
}

#[test]
fn sampled_look_ups_add_up() {
    for_each_design(|room| {
        room.set_stats(StatsMode::Sampled);
        let tree = Tree::new(room);
        tree.cache(written(0, 8, 50));
        for _ in 0..6400 {
            tree.lookup(Lblk(3)).unwrap();
        }
        // Of 6400 lookups one after the other, each 64th was counted for 64.
        assert_eq!(room.stats().es_stats_cache_hits, 6400);
    });
}

#[test]
fn scans_are_counted_unless_switched_off() {
    for_each_design(|room| {
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

/// The same counters with nothing in the cache; trees may still be on a list.
fn without_extents(stats: Stats) -> Stats {
    Stats {
        es_stats_all_cnt: 0,
        es_stats_shk_cnt: 0,
        ..stats
    }
}

#[test]
fn times_are_averaged() {
    with_each(|subject| {
        let room = &subject.room;
        let _tree = scattered(room, 3);
        assert_eq!((room.scan(BATCH), room.scan(BATCH)), (3, 0));
        let stats = room.stats();
        assert_eq!((stats.scans, stats.freed, stats.es_stats_shrunk), (2, 3, 2));
        // The clock of these tests moves by a microsecond whenever it is read, as some designs do.
        assert!(
            (1000..=2000).contains(&stats.es_stats_scan_time),
            "{stats:?}"
        );
        assert!((1000..=2000).contains(&stats.es_stats_max_scan_time));
    });
}

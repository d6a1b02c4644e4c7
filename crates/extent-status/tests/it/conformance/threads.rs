//! Readers, writers and the shrinker at the same trees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use uext4_extent_status::{BATCH, Extent, ExtentStatusCache, Status, Tree};
use uext4_ondisk::Lblk;

use super::{Subject, delayed, for_each_design, with_each, written};

const BLOCKS: u32 = 2000;

/// Where the block lies once it is written: scattered, so that few extents merge.
fn place(lblk: u32) -> u64 {
    u64::from(lblk) * 3 + 1000
}

fn delayed_in(extents: &[Extent]) -> u64 {
    let is_delayed = |e: &&Extent| e.status == Status::Delayed;
    let of = extents.iter().filter(is_delayed);
    of.map(|e| u64::from(e.len)).sum()
}

/// Makes every block of the tree delayed, then written, then writes it anew, some rounds long.
/// Answers the delayed blocks that must be left.
fn write(tree: &Tree, rounds: u32) -> u64 {
    let mut reserved = 0_u64;
    for round in 0..rounds {
        for lblk in 0..BLOCKS {
            reserved += 1;
            reserved -= u64::from(tree.insert(delayed(lblk, 1)));
            if lblk % 3 != round % 3 {
                reserved -= u64::from(tree.insert(written(lblk, 1, place(lblk))));
            }
            assert_eq!(tree.delayed_blocks(), reserved);
        }
        reserved -= u64::from(tree.remove(Lblk(BLOCKS / 2), 10));
    }
    reserved
}

/// Reads until it is stopped: a block is delayed or written at its place, or not known.
fn read(trees: &[Tree], stop: &AtomicBool, mut at: u32) {
    while !stop.load(Relaxed) {
        at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let lblk = Lblk((at >> 8) % BLOCKS);
        let tree = &trees[(at >> 4) as usize % trees.len()];
        let seq = tree.seq();
        let Some(found) = tree.lookup(lblk) else {
            continue;
        };
        assert!(found.lblk <= lblk && lblk.0 < found.end());
        match found.status {
            Status::Written => {
                assert_eq!(found.pblk_at(lblk).map(|p| p.0), Some(place(lblk.0)));
            }
            Status::Delayed => assert_eq!(found.pblk_at(lblk), None),
            status => panic!("{status:?} was never noted"),
        }
        let again = tree.find(lblk, |_| true);
        if tree.seq() == seq
            && let Some(again) = again
        {
            // Only the shrinker came between: the same, or forgotten.
            assert!(again.status == found.status || again.lblk > lblk);
        }
    }
}

#[test]
fn nothing_delayed_is_lost_and_nothing_known_changes() {
    for_each_design(write_read_and_shrink);
}

fn write_read_and_shrink(room: &Arc<ExtentStatusCache>) {
    let trees: Vec<Tree> = (0..3).map(|_| Tree::new(room)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in [1, 2] {
            let (trees, stop) = (&trees, &stop);
            scope.spawn(move || read(trees, stop, seed));
        }
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                room.scan(BATCH);
                assert!(room.count() <= 3 * BLOCKS as usize);
            }
        });
        let writers: Vec<_> = trees
            .iter()
            .map(|tree| scope.spawn(|| write(tree, 6)))
            .collect();
        let left: Vec<_> = writers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, Relaxed);
        for (tree, left) in trees.iter().zip(left) {
            let left = left.unwrap();
            assert_eq!(tree.delayed_blocks(), left);
            assert_eq!(delayed_in(&tree.extents()), left);
        }
    });
    let all: Vec<Extent> = trees.iter().flat_map(Tree::extents).collect();
    assert_eq!(room.stats().es_stats_all_cnt, all.len() as u64);
    let reclaimable = all.iter().filter(|e| e.status.is_reclaimable());
    assert_eq!(room.count(), reclaimable.count());
}

#[test]
fn trees_may_go_while_they_are_shrunk() {
    with_each(drop_and_shrink);
}

fn drop_and_shrink(subject: &Subject) {
    let room = &subject.room;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                room.scan(BATCH);
            }
        });
        let makers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for round in 0..2000 {
                        let tree = Tree::new(room);
                        for at in 0..20 {
                            tree.cache(written(at * 2, 1, place(at)));
                        }
                        tree.insert(delayed(round, 5));
                    }
                })
            })
            .collect();
        let done: Vec<_> = makers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, Relaxed);
        assert!(done.iter().all(Result::is_ok));
    });
    let stats = room.stats();
    assert_eq!((stats.es_stats_all_cnt, stats.es_stats_shk_cnt), (0, 0));
    assert_eq!(stats.s_es_nr_inode, 0);
    assert_eq!(room.memory(), subject.memory_without_trees());
}

//! The shrinkers that drop leaves: their queues, what stays, and that no lock is held for long.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use uext4_extent_status::{BATCH, Extent, LEAF_EXTENTS, Options, Room, Shrinker, Status, Tree};
use uext4_ondisk::Lblk;

use crate::shrink::{scan_all, scattered};
use crate::{delayed, hole, room, room_with, written};

use Shrinker::{Clock, LeafQueue};

/// A room with one shard, so that the order is plain.
fn one_queue(shrinker: Shrinker) -> Arc<Room> {
    let reads = std::sync::atomic::AtomicU64::new(0);
    let options = Options {
        shards: 1,
        ..shrinker.into()
    };
    Room::with_options(options, move || {
        let read = reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Duration::from_micros(read)
    })
}

/// Trees of one leaf each.
fn trees(room: &Arc<Room>, count: usize) -> Vec<Tree> {
    (0..count).map(|_| scattered(room, 4)).collect()
}

fn known(trees: &[Tree]) -> Vec<usize> {
    let is_known = |at: &usize| !trees[*at].extents().is_empty();
    (0..trees.len()).filter(is_known).collect()
}

#[test]
fn a_scan_meets_no_delayed_extent() {
    for shrinker in [LeafQueue, Clock] {
        let room = room(shrinker);
        let tree = Tree::new(&room);
        for at in 0..10_000 {
            tree.insert(delayed(at * 2, 1));
        }
        for at in 0..100 {
            tree.cache(hole(at * 200 + 1, 1));
        }
        let mut steps = 0;
        while room.count() > 0 {
            steps += room.scan_recorded(BATCH).steps();
        }
        assert!(steps < 20, "{steps}");
        assert_eq!(room.stats().delayed_seen, 0);
        assert_eq!(tree.delayed_blocks(), 10_000);
    }
}

#[test]
fn no_lock_is_held_for_long() {
    for shrinker in [LeafQueue, Clock] {
        let room = room(shrinker);
        let small = trees(&room, 2000);
        let large = scattered(&room, 200_000);
        scan_all(&room);
        let stats = room.stats();
        assert!(stats.max_steps_under_lock <= 256, "{stats:?}");
        assert_eq!(stats.freed, 208_000);
        // Well below one step an extent.
        assert!(stats.steps < stats.freed, "{stats:?}");
        assert_eq!((known(&small).len(), large.extents().len()), (0, 0));
    }
}

#[test]
fn what_was_used_later_stays() {
    for shrinker in [LeafQueue, Clock] {
        let room = one_queue(shrinker);
        let trees = trees(&room, 8);
        trees[1].lookup(Lblk(0)).unwrap();
        trees[4].lookup(Lblk(0)).unwrap();
        // The six others; the used ones go round.
        assert_eq!(room.scan(24), 24);
        assert_eq!(known(&trees), [1, 4]);
        scan_all(&room);
    }
}

/// Brings the tree's leaf in if it is not known, as a reader of the file would. Answers whether it
/// was known.
fn read(tree: &Tree) -> bool {
    let known = tree.lookup(Lblk(0)).is_some();
    if !known {
        tree.cache_all(&[0, 2, 4, 6].map(|lblk| hole(lblk, 1)));
    }
    // Going on through the file: this is no other use.
    for lblk in [2, 4, 6] {
        tree.lookup(Lblk(lblk)).unwrap();
    }
    known
}

#[test]
fn a_sweep_does_not_drive_out_what_is_in_use() {
    let room = one_queue(LeafQueue);
    let hot: Vec<Tree> = (0..100).map(|_| Tree::new(&room)).collect();
    let swept: Vec<Tree> = (0..3000).map(|_| Tree::new(&room)).collect();
    let mut known = 0;
    for (step, tree) in swept.iter().enumerate() {
        known += usize::from(read(&hot[step % 100]));
        assert!(!read(tree));
        // Room for little more than what is in use.
        while room.count() > 130 * 4 {
            room.scan(4);
        }
    }
    // The first hundred bring it in; by age alone none of it would stay.
    assert!(known > 2600, "{known}");
}

#[test]
fn a_leaf_that_comes_back_soon_is_no_longer_on_probation() {
    let room = one_queue(LeafQueue);
    let trees = trees(&room, 20);
    assert_eq!(room.scan(4), 4);
    assert_eq!(known(&trees).len(), 19);
    trees[0].cache(hole(0, 1));
    assert_eq!(room.stats().ghost_hits, 1);
    // Probation goes before it, down to its tenth.
    assert_eq!(room.scan(4 * 16), 4 * 16);
    assert_eq!(known(&trees)[0], 0);
}

#[test]
fn leaves_come_back_where_they_were() {
    let room = room(LeafQueue);
    let tree = Tree::new(&room);
    let extents: Vec<_> = (0..640)
        .map(|at| written(at, 1, u64::from(at) * 2))
        .collect();
    tree.cache_all(&extents);
    room.scan(LEAF_EXTENTS);
    let hits = room.stats().ghost_hits;
    let gone = 640 - room.count();
    assert_eq!((hits, gone), (0, LEAF_EXTENTS));
    tree.cache_all(&extents);
    assert_eq!((room.count(), room.stats().ghost_hits), (640, 1));
    assert_eq!(tree.extents(), extents);
}

#[test]
fn queues_and_what_they_remember_are_counted() {
    for shards in [1, 2, 256] {
        let options = Options {
            shards,
            ..LeafQueue.into()
        };
        let room = Room::with_options(options, || Duration::ZERO);
        let trees: Vec<Tree> = (0..20_000).map(|_| Tree::new(&room)).collect();
        trees.iter().for_each(|tree| tree.cache(hole(0, 1)));
        let (count, kept) = (room.count(), trees.len() - 10);
        let all = room.memory();
        // The oldest ones stay, so that no queue is ever empty.
        let (oldest, others) = trees.split_at(10);
        for tree in others {
            tree.remove(Lblk(0), 1);
        }
        assert_eq!((count, room.count()), (20_000, oldest.len()));
        let left = room.memory() - trees.len() * Tree::MEMORY as usize;
        // The queues have as many slots as before, of sixteen bytes.
        assert!(shards == 256 || left >= kept * 16, "{left} of {all}");
        for tree in &trees {
            tree.cache(hole(0, 1));
        }
        scan_all(&room);
        let left = room.memory() - trees.len() * Tree::MEMORY as usize;
        assert_eq!(left, room.ghost_memory());
    }
}

#[test]
fn memory_follows_what_is_known() {
    let room = room(LeafQueue);
    let tree = scattered(&room, 64_000);
    let full = room.memory();
    // Sixteen bytes an extent and little beside.
    assert!((64_000 * 16..64_000 * 24).contains(&full), "{full}");
    assert!(
        (16..24).contains(&room.extent_bytes()),
        "{}",
        room.extent_bytes()
    );
    for at in 0..64_000 {
        if at % 32 != 0 {
            tree.remove(Lblk(at * 2), 1);
        }
    }
    assert_eq!(room.count(), 2000);
    // Neighbours with few extents became one, so leaves are not left behind.
    assert!(room.memory() < full / 8, "{} of {full}", room.memory());
    tree.remove(Lblk(0), u32::MAX);
    assert_eq!(room.memory() as u64, Tree::MEMORY);
}

#[test]
fn a_million_extents_are_no_burden() {
    let room = room_with(Options {
        merge: false,
        ..LeafQueue.into()
    });
    let tree = Tree::new(&room);
    // From the end to the beginning, so that nothing is appended.
    for at in (0..300_000).rev() {
        tree.cache(written(at, 1, u64::from(at)));
        tree.insert(delayed(1_000_000 + at, 1));
    }
    assert_eq!((room.count(), tree.delayed_blocks()), (300_000, 300_000));
    for at in (0..300_000).step_by(1000) {
        assert_eq!(tree.lookup(Lblk(at)), Some(written(at, 1, u64::from(at))));
    }
    assert_eq!(room.stats().lookup_hit_locks, 0);
    assert_eq!(tree.remove(Lblk(0), u32::MAX), 300_000);
    assert_eq!(room.stats().es_stats_all_cnt, 0);
}

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
        merge in any::<bool>(),
        ops in prop::collection::vec((0..12_u32, 0..3000_u32, 1..400_u32, any::<bool>()), 1..25),
    ) {
        let rooms = [LeafQueue, Shrinker::Mainline].map(|shrinker| room_with(Options {
            merge,
            ..shrinker.into()
        }));
        let trees = rooms.each_ref().map(Tree::new);
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
        prop_assert_eq!(rooms[0].count(), rooms[1].count());
        scan_all(&rooms[0]);
        prop_assert!(trees[0].extents().iter().all(|extent| extent.status == Status::Delayed));
    }
}

/// The key of the first leaf lies behind all that is left in it when the others come.
#[test]
fn leaves_that_come_behind_a_small_first_leaf_are_found() {
    for shrinker in [LeafQueue, Clock] {
        let tree = Tree::new(&room(shrinker));
        tree.insert(written(1000, 1, 5000));
        tree.insert(written(10, 1, 6000));
        tree.remove(Lblk(1000), 1);
        let leaf: Vec<Extent> = (0..20)
            .map(|at| written(20 + 2 * at, 1, 7000 + 9 * u64::from(at)))
            .collect();
        tree.cache_all(&leaf);
        assert_eq!(tree.extents().len(), 21);
        tree.remove(Lblk(15), u32::MAX - 15);
        assert_eq!(tree.extents(), [written(10, 1, 6000)]);
        assert_eq!(tree.lookup(Lblk(20)), None);
        assert_eq!(tree.lookup(Lblk(58)), None);
    }
}

#[test]
fn what_is_dropped_and_read_again_is_one_leaf() {
    let room = one_queue(LeafQueue);
    let tree = Tree::new(&room);
    let leaves: Vec<Vec<Extent>> = (0..30).map(|at| map_leaf(at * 120, 40, false)).collect();
    leaves.iter().for_each(|leaf| tree.cache_all(leaf));
    for _ in 0..3 {
        assert_eq!(room.scan(1), 40);
        assert_eq!(room.count(), 29 * 40);
        leaves.iter().for_each(|leaf| tree.cache_all(leaf));
        assert_eq!(room.count(), 30 * 40);
    }
    assert_eq!(room.stats().ghost_hits, 3);
}

//! The leaves: their queues, what stays, and that no lock is held for long.

use std::sync::Arc;

use uext4_extent_status::{
    BATCH, Extent, ExtentStatusCache, LEAF_EXTENTS, LeafQueue, LeafQueueOptions, Shrinker, Tree,
};
use uext4_ondisk::Lblk;

use crate::conformance::shrink::{scan_all, scattered};
use crate::conformance::{Merge, delayed, hole, room, written};
use crate::leaf_queue;

/// A cache with so many shards, and its queues.
fn shards(shards: usize) -> (Arc<ExtentStatusCache>, Arc<LeafQueue>) {
    let queue = Arc::new(LeafQueue::new(LeafQueueOptions {
        shards,
        ..LeafQueueOptions::default()
    }));
    let shrinker: Arc<dyn Shrinker> = Arc::<LeafQueue>::clone(&queue);
    (room(shrinker), queue)
}

/// A cache with one shard, so that the order is plain.
fn one_queue() -> Arc<ExtentStatusCache> {
    shards(1).0
}

fn two_queues() -> Arc<ExtentStatusCache> {
    shards(2).0
}

/// Trees of one leaf each.
fn trees(room: &Arc<ExtentStatusCache>, count: usize) -> Vec<Tree> {
    (0..count).map(|_| scattered(room, 4)).collect()
}

fn known(trees: &[Tree]) -> Vec<usize> {
    let is_known = |at: &usize| !trees[*at].extents().is_empty();
    (0..trees.len()).filter(is_known).collect()
}

#[test]
fn a_scan_meets_no_delayed_extent() {
    let room = two_queues();
    let tree = Tree::new(&room);
    for at in 0..10_000 {
        tree.insert(delayed(at * 2, 1));
    }
    for at in 0..100 {
        tree.cache(hole(at * 200 + 1, 1));
    }
    let mut steps = 0;
    while room.count() > 0 {
        let scan = room.scan_recorded(BATCH);
        assert_eq!(scan.delayed_seen, 0);
        steps += scan.steps();
    }
    assert!(steps < 20, "{steps}");
    assert_eq!(tree.delayed_blocks(), 10_000);
}

#[test]
fn no_lock_is_held_for_long() {
    let room = two_queues();
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

#[test]
fn what_was_used_later_stays() {
    let room = one_queue();
    let trees = trees(&room, 8);
    trees[1].lookup(Lblk(0)).unwrap();
    trees[4].lookup(Lblk(0)).unwrap();
    // The six others; the used ones go round.
    assert_eq!(room.scan(24), 24);
    assert_eq!(known(&trees), [1, 4]);
    scan_all(&room);
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
fn a_sweep_does_not_evict_used_extents() {
    let room = one_queue();
    let hot: Vec<Tree> = (0..100).map(|_| Tree::new(&room)).collect();
    let swept: Vec<Tree> = (0..3000).map(|_| Tree::new(&room)).collect();
    let mut known = 0;
    for (step, tree) in swept.iter().enumerate() {
        known += usize::from(read(&hot[step % 100]));
        assert!(!read(tree));
        // Space for little more than what is in use.
        while room.count() > 130 * 4 {
            room.scan(4);
        }
    }
    // The first hundred bring it in; by age alone none of it would stay.
    assert!(known > 2600, "{known}");
}

#[test]
fn a_leaf_that_comes_back_soon_is_no_longer_on_probation() {
    let room = one_queue();
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
    let room = two_queues();
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
        let (room, _) = self::shards(shards);
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
        assert!(left <= shards * (128 << 10));
    }
}

#[test]
fn memory_follows_the_number_of_extents() {
    let room = two_queues();
    let tree = scattered(&room, 64_000);
    let full = room.memory();
    // Sixteen bytes an extent and little at the same time.
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
    let room = room(leaf_queue(Merge::Off));
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

/// The key of the first leaf lies behind all that is left in it when the others come.
#[test]
fn leaves_that_come_behind_a_small_first_leaf_are_found() {
    let tree = Tree::new(&two_queues());
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

#[test]
fn dropped_extents_that_are_read_again_form_one_leaf() {
    let room = one_queue();
    let tree = Tree::new(&room);
    let of_a_leaf = |leaf: u32| {
        let lblks = (0..40).map(|at| leaf * 120 + at * 3);
        lblks
            .map(|lblk| written(lblk, 2, 1_000_000 - u64::from(lblk) * 4))
            .collect()
    };
    let leaves: Vec<Vec<Extent>> = (0..30).map(of_a_leaf).collect();
    leaves.iter().for_each(|leaf| tree.cache_all(leaf));
    for _ in 0..3 {
        assert_eq!(room.scan(1), 40);
        assert_eq!(room.count(), 29 * 40);
        leaves.iter().for_each(|leaf| tree.cache_all(leaf));
        assert_eq!(room.count(), 30 * 40);
    }
    assert_eq!(room.stats().ghost_hits, 3);
}

//! What a lookup, an insert and a scan cost; lookups also next to a second thread, and next to a
//! scan.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use uext4_extent_status::{BATCH, Extent, ExtentStatusCache, Status, Tree};
use uext4_ondisk::{Lblk, Pblk};

fn room() -> Arc<ExtentStatusCache> {
    ExtentStatusCache::new(|| Duration::ZERO)
}

fn extent(lblk: u32, len: u32, status: Status) -> Extent {
    Extent {
        lblk: Lblk(lblk),
        len,
        // Twice as far apart as logically: nothing merges.
        pblk: Pblk(u64::from(lblk) * 2),
        status,
    }
}

/// A tree of `extents` extents of 8 blocks.
fn tree(room: &Arc<ExtentStatusCache>, extents: u32) -> Tree {
    let tree = Tree::new(room);
    for at in 0..extents {
        tree.cache(extent(at * 8, 8, Status::Written));
    }
    tree
}

/// One lookup of some block of `extents` extents.
fn step(tree: &Tree, at: &mut u32, extents: u32) {
    *at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let lblk = (u64::from(*at) * u64::from(extents * 8)) >> 32;
    black_box(tree.lookup(Lblk(lblk as u32)));
}

fn lookup(c: &mut Criterion) {
    for extents in [1, 4, 340, 100_000] {
        let tree = tree(&room(), extents);
        let mut at = 1;
        c.bench_function(&format!("lookup_hit_of_{extents}"), |b| {
            b.iter(|| step(&tree, &mut at, extents));
        });
    }
    let tree = Tree::new(&room());
    tree.insert(extent(0, 8, Status::Delayed));
    let mut at = 1;
    c.bench_function("lookup_delayed", |b| {
        b.iter(|| step(&tree, &mut at, 1));
    });
    let empty = Tree::new(&room());
    c.bench_function("lookup_miss", |b| {
        b.iter(|| empty.lookup(Lblk(black_box(7))));
    });
}

/// Looks up while a second thread does something over and over.
fn with_other(c: &mut Criterion, name: &str, tree: &Tree, other: impl Fn() + Send) {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !stop.load(Relaxed) {
                other();
            }
        });
        let mut at = 1;
        c.bench_function(name, |b| b.iter(|| step(tree, &mut at, 340)));
        stop.store(true, Relaxed);
    });
}

fn lookup_during(c: &mut Criterion) {
    let room = room();
    let trees = [tree(&room, 340), tree(&room, 340)];
    for (name, other) in [("same_tree", &trees[0]), ("other_tree", &trees[1])] {
        let name = format!("2_threads_lookup_{name}");
        with_other(c, &name, &trees[0], || {
            let mut at = 2;
            (0..1000).for_each(|_| step(other, &mut at, 340));
        });
    }
    let name = "lookup_during_scan_and_refill";
    let leaf: Vec<Extent> = (0..340)
        .map(|at| extent(at * 8, 8, Status::Written))
        .collect();
    with_other(c, name, &trees[0], || {
        room.scan(BATCH);
        trees.iter().for_each(|tree| tree.cache_all(&leaf));
    });
}

fn insert(c: &mut Criterion) {
    let appended = Tree::new(&room());
    let mut at = 0;
    c.bench_function("insert_delayed_append", |b| {
        b.iter(|| {
            at = (at + 1) % (u32::MAX - 1);
            appended.insert(extent(at, 1, Status::Delayed))
        });
    });
    let known = tree(&room(), 100_000);
    let mut at = 1_u32;
    c.bench_function("insert_over_of_100000", |b| {
        b.iter(|| {
            at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let lblk = ((at >> 8) % 100_000) * 8;
            known.insert(extent(lblk, 8, Status::Written));
            known.insert(extent(lblk, 8, Status::Unwritten))
        });
    });
    let leaf: Vec<Extent> = (0..340)
        .map(|at| extent(at * 8, 8, Status::Written))
        .collect();
    c.bench_function("cache_leaf_of_340", |b| {
        let room = room();
        b.iter(|| Tree::new(&room).cache_all(&leaf));
    });
    c.bench_function("cache_4_in_a_new_tree", |b| {
        let room = room();
        b.iter(|| Tree::new(&room).cache_all(&leaf[..4]));
    });
}

fn scan(c: &mut Criterion) {
    for (name, trees, extents) in [("1_tree", 1, 2048), ("512_trees", 512, 4)] {
        c.bench_function(&format!("scan_128_of_{name}"), |b| {
            b.iter_batched_ref(
                || {
                    let room = room();
                    let trees: Vec<Tree> = (0..trees).map(|_| tree(&room, extents)).collect();
                    (room, trees)
                },
                |(room, _)| room.scan(BATCH),
                BatchSize::LargeInput,
            );
        });
    }
}

criterion_group!(benches, lookup, lookup_during, insert, scan);
criterion_main!(benches);

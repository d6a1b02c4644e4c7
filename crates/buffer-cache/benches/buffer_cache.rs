//! What a lookup costs: from the thread's LRU, from the table, from the device; alone and with a
//! second thread at the same blocks.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use criterion::{Criterion, criterion_group, criterion_main};
use uext4_blockdev::MemoryDevice;
use uext4_buffer_cache::{BufferCache, Options, VerifyTag};
use uext4_ondisk::{BlockSize, Pblk};

const BLOCKS: u64 = 4096;

fn cache(memory_max: usize) -> BufferCache {
    let block_size = BlockSize::from_log2(12).unwrap();
    let device = Arc::new(MemoryDevice::new(BLOCKS << block_size.log2()));
    let options = Options {
        memory_max,
        ..Options::default()
    };
    BufferCache::new(device, block_size, options)
}

/// One `bread` of the next of `blocks` blocks, round and round.
fn step(cache: &BufferCache, at: &mut u64, blocks: u64) {
    *at = (*at + 1) % blocks;
    let buffer = cache.bread(Pblk(*at), VerifyTag(1), |_| Ok(()));
    black_box(buffer.unwrap().data());
}

fn single(c: &mut Criterion) {
    for blocks in [4, 8, 16, BLOCKS] {
        let cache = cache(64 << 20);
        let mut at = 0;
        let name = format!("{blocks}_blocks");
        c.bench_function(&name, |b| b.iter(|| step(&cache, &mut at, blocks)));
    }
    let cache = cache(1 << 20);
    let mut at = 0;
    c.bench_function("miss", |b| b.iter(|| step(&cache, &mut at, BLOCKS)));
}

fn two_threads(c: &mut Criterion) {
    for (name, blocks) in [("2_threads_lru_hit", 8), ("2_threads_table_hit", BLOCKS)] {
        let cache = cache(64 << 20);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut at = 0;
                while !stop.load(Relaxed) {
                    step(&cache, &mut at, blocks);
                }
            });
            let mut at = 0;
            c.bench_function(name, |b| b.iter(|| step(&cache, &mut at, blocks)));
            stop.store(true, Relaxed);
        });
    }
}

criterion_group!(benches, single, two_threads);
criterion_main!(benches);

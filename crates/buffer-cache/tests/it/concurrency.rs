//! Many threads on few blocks.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier};
use std::thread;

use uext4_ondisk::Pblk;
use uext4_testkit::SplitMix64;

use crate::device::TestDevice;
use crate::{SIZE, cache, get};

#[test]
fn concurrent_misses_of_a_block_read_it_once() {
    let device = Arc::new(TestDevice::new(10));
    device.slow.store(true, SeqCst);
    let cache = cache(device.clone(), 16);
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                for block in 0..10 {
                    assert_eq!(get(&cache, block).data()[SIZE - 1], block as u8);
                }
            });
        }
    });
    assert_eq!(device.reads.load(SeqCst), 10);
    assert_eq!(device.read_bytes.load(SeqCst), 10 * SIZE as u64);
}

/// Each thread adds to a counter in random blocks while the cache is much too small and others
/// write back, drop and read ahead. A lost update shows as a wrong sum on the device.
#[test]
fn no_update_is_lost() {
    const BLOCKS: u64 = 64;
    const ROUNDS: u64 = 20_000;
    let device = Arc::new(TestDevice::new(BLOCKS));
    let cache = cache(device.clone(), 16);
    for block in 0..BLOCKS {
        cache.getblk_zeroed(Pblk(block));
    }
    thread::scope(|scope| {
        for seed in 1..=4u64 {
            let cache = &cache;
            scope.spawn(move || {
                let mut numbers = SplitMix64::new(seed);
                for round in 0..ROUNDS {
                    let random = numbers.next_u64();
                    get(cache, random % BLOCKS).modify(|data| {
                        let sum = u32::from_le_bytes(data[..4].try_into().unwrap()) + 1;
                        data[..4].copy_from_slice(&sum.to_le_bytes());
                        data[4..8].copy_from_slice(&sum.to_le_bytes());
                    });
                    let snapshot = get(cache, random % 61).data();
                    assert_eq!(snapshot[..4], snapshot[4..8], "half a change is never seen");
                    match round % 64 {
                        7 => cache.write_dirty().unwrap(),
                        23 => drop(cache.scan(8)),
                        40 => cache.readahead(Pblk(random % BLOCKS), 16),
                        _ => {}
                    }
                }
            });
        }
    });
    cache.write_dirty().unwrap();
    let bytes = device.memory.to_bytes();
    let sum: u64 = bytes
        .chunks(SIZE)
        .map(|block| u64::from(u32::from_le_bytes(block[..4].try_into().unwrap())))
        .sum();
    assert_eq!(sum, 4 * ROUNDS);
}

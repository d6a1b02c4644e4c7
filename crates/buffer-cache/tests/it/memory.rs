//! The bound on memory, and what a cache leaves behind.

use std::sync::Arc;

use uext4_ondisk::Pblk;

use crate::device::TestDevice;
use crate::{cache, get};

#[test]
fn clean_blocks_never_pass_the_bound() {
    let cache = cache(Arc::new(TestDevice::new(2000)), 100);
    for block in 0..2000 {
        get(&cache, block);
        assert!(cache.stats().nr_buffers <= 100);
    }
    assert_eq!(cache.stats().evictions, 1900);
    cache.readahead(Pblk(0), 2000);
    assert!(cache.stats().nr_buffers <= 100);
}

#[test]
fn pinned_and_dirty_blocks_pass_it_and_come_back() {
    let cache = cache(Arc::new(TestDevice::new(1000)), 50);
    let pins: Vec<_> = (0..200).map(|block| get(&cache, block)).collect();
    for block in 200..600 {
        get(&cache, block).modify(|data| data[0] = 1);
    }
    assert!(cache.stats().nr_buffers >= 600);
    cache.write_dirty().unwrap();
    assert_eq!(cache.stats().nr_dirty, 0);
    assert_eq!(cache.stats().nr_buffers, 200, "all that is not pinned went");
    drop(pins);
    cache.scan(usize::MAX);
    assert_eq!(cache.stats().nr_buffers, 0);
}

#[test]
fn used_blocks_survive_a_scan_of_the_device() {
    let cache = cache(Arc::new(TestDevice::new(4000)), 200);
    for block in 0..4000 {
        get(&cache, block);
        // Twenty hot blocks: too many for the LRU of 8, so the clock must see their use.
        for hot in 0..20 {
            get(&cache, hot);
        }
    }
    let reads = cache.stats().reads;
    assert!(reads < 4000 + 200, "hot blocks were read again: {reads}");
}

#[test]
fn the_table_serves_a_block_the_lru_saw_dropped() {
    let device = Arc::new(TestDevice::new(10));
    let cache = cache(device.clone(), 16);
    assert_eq!(get(&cache, 3).data()[0], 3);
    assert_eq!(cache.scan(usize::MAX), 1);
    // Changed below while no thread holds it: the thread's LRU must not know the old content.
    uext4_blockdev::BlockDevice::write_at(&*device, 3 * 1024, &[9; 1024]).unwrap();
    assert_eq!(get(&cache, 3).data()[0], 9);
    assert_eq!(cache.stats().lru_hits, 0);
}

#[test]
fn a_dropped_cache_frees_its_blocks_and_device() {
    let device = Arc::new(TestDevice::new(10));
    let first = cache(device.clone(), 16);
    let pin = get(&first, 1);
    let data = Arc::downgrade(&get(&first, 2).data());
    assert!(data.upgrade().is_some());
    drop(first);
    assert!(data.upgrade().is_none(), "the thread's LRU keeps nothing");
    assert_eq!(pin.data()[0], 1);
    assert_eq!(Arc::strong_count(&device), 1);
    let second = cache(device, 16);
    get(&second, 1);
    assert_eq!(second.stats().misses, 1, "a new cache shares nothing");
}

#[test]
fn readahead_reads_runs_at_once() {
    let device = Arc::new(TestDevice::new(100));
    let cache = cache(device.clone(), 1000);
    let reads = || device.reads.load(std::sync::atomic::Ordering::SeqCst);
    get(&cache, 10);
    get(&cache, 11);
    cache.readahead(Pblk(5), 20);
    assert_eq!(reads(), 2 + 2, "blocks 5 to 9 and 12 to 24");
    for block in 5..25 {
        assert_eq!(get(&cache, block).data()[0], block as u8);
    }
    assert_eq!(reads(), 4);
    assert_eq!(cache.stats().readahead, 18);
    cache.readahead(Pblk(90), u32::MAX);
    assert_eq!(reads(), 5, "cut at the end of the device");
    cache.readahead(Pblk(u64::MAX - 3), 100);
    assert_eq!(reads(), 5);
}

#[test]
fn a_cache_of_pinned_blocks_is_not_walked_for_each_that_is_not() {
    let cache = cache(Arc::new(TestDevice::new(40_000)), 10_000);
    let pins: Vec<_> = (0..10_000).map(|block| get(&cache, block)).collect();
    let started = cache.stats().clock_steps;
    for block in 10_000..20_000 {
        get(&cache, block);
    }
    let steps = cache.stats().clock_steps - started;
    assert!(steps < 20 * 10_000, "{steps}");
    assert!(cache.stats().nr_buffers < 12_000);
    drop(pins);
}

//! Dirty blocks and the device.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use uext4_ondisk::Pblk;

use crate::device::TestDevice;
use crate::{SIZE, cache, get};

#[test]
fn a_failed_write_keeps_its_blocks_dirty() {
    let device = Arc::new(TestDevice::new(100));
    let cache = cache(device.clone(), 16);
    for block in (0..100).rev() {
        cache.getblk_zeroed(Pblk(block)).modify(|d| d.fill(0xAB));
    }
    assert_eq!(device.reads.load(SeqCst), 0);
    device.fail.store(true, SeqCst);
    cache.write_dirty().unwrap_err();
    assert_eq!(cache.dirty_count(), 100);
    device.fail.store(false, SeqCst);
    cache.write_dirty().unwrap();
    assert_eq!(cache.dirty_count(), 0);
    assert_eq!(device.memory.to_bytes(), vec![0xAB; 100 * SIZE]);
    let before = device.write_batches.load(SeqCst);
    cache.write_dirty().unwrap();
    assert_eq!(device.write_batches.load(SeqCst), before);
}

#[test]
fn batches_are_bounded() {
    let device = Arc::new(TestDevice::new(10_000));
    let cache = cache(device.clone(), 16);
    for block in 0..10_000 {
        cache.getblk_zeroed(Pblk(block));
    }
    cache.write_dirty().unwrap();
    assert_eq!(device.write_batches.load(SeqCst), 3, "4 MiB each");
    assert_eq!(device.memory.to_bytes(), vec![0; 10_000 * SIZE]);
}

#[test]
fn forgotten_changes_are_not_written() {
    let device = Arc::new(TestDevice::new(10));
    let cache = cache(device.clone(), 16);
    get(&cache, 5).modify(|data| data.fill(0xFF));
    cache.forget(Pblk(5));
    cache.forget(Pblk(6));
    cache.write_dirty().unwrap();
    assert_eq!(get(&cache, 5).data()[0], 5);
    assert_eq!(device.memory.to_bytes()[5 * SIZE], 5);
}

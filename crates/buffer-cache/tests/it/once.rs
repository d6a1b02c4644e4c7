//! Verified once, and again only as something else.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use uext4_blockdev::MemoryDevice;
use uext4_buffer_cache::{Error, VerifyTag};
use uext4_ondisk::{Damage, Pblk};

use crate::device::TestDevice;
use crate::{TAG, cache, get};

#[test]
fn a_block_is_verified_once_for_each_tag_in_turn() {
    let cache = cache(Arc::new(TestDevice::new(10)), 16);
    let calls = Cell::new(0);
    let read = |tag| {
        cache
            .bread(Pblk(4), VerifyTag(tag), |data| {
                assert_eq!(data[0], 4);
                calls.set(calls.get() + 1);
                Ok(())
            })
            .unwrap()
    };
    read(1);
    read(1);
    assert_eq!(calls.get(), 1);
    read(1).modify(|data| data[1] = 7);
    read(1);
    assert_eq!(calls.get(), 1, "what we changed ourselves is not verified");
    read(2);
    assert_eq!(calls.get(), 2);
    read(1);
    assert_eq!(calls.get(), 3);
    cache.write_dirty().unwrap();
    cache.scan(usize::MAX);
    read(1);
    assert_eq!(calls.get(), 4, "it came in anew");
}

#[test]
fn damage_is_found_again_without_another_read() {
    let device = Arc::new(TestDevice::new(10));
    let cache = cache(device.clone(), 16);
    for _ in 0..3 {
        let result = cache.bread(Pblk(4), TAG, |_| Err(Damage::Acl { why: "test" }));
        assert!(matches!(result, Err(Error::Damage(Damage::Acl { .. }))));
    }
    assert_eq!(device.reads.load(SeqCst), 1);
    get(&cache, 4);
}

#[test]
fn a_failed_read_is_tried_again() {
    let device = Arc::new(TestDevice::new(10));
    let cache = cache(device.clone(), 16);
    device.fail.store(true, SeqCst);
    cache.readahead(Pblk(0), 10);
    let result = cache.bread(Pblk(4), TAG, |_| panic!("there is nothing to verify"));
    assert!(matches!(result, Err(Error::Device(_))));
    device.fail.store(false, SeqCst);
    assert_eq!(get(&cache, 4).data()[0], 4);
}

#[test]
fn blocks_past_the_device_are_errors() {
    let cache = cache(Arc::new(MemoryDevice::new(8 << 10)), 16);
    for block in [8, 1 << 53] {
        let result = cache.bread(Pblk(block), TAG, |_| Ok(()));
        assert!(matches!(result, Err(Error::Device(_))), "{result:?}");
    }
    let result = cache.bread(Pblk(u64::MAX), TAG, |_| Ok(()));
    assert!(matches!(result, Err(Error::BlockNumber { .. })));
}

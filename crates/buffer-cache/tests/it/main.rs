//! Tests of the cache as its users see it.

mod concurrency;
mod device;
mod memory;
mod model;
mod once;
mod write;

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_buffer_cache::{Buffer, BufferCache, OVERHEAD, Options, VerifyTag};
use uext4_ondisk::{BlockSize, Pblk};

const SIZE: usize = 1024;
const TAG: VerifyTag = VerifyTag(1);

/// A cache of 1 KiB blocks that may hold `blocks` of them.
fn cache(device: Arc<dyn BlockDevice>, blocks: usize) -> BufferCache {
    let options = Options {
        memory_max: blocks * (SIZE + OVERHEAD),
        ..Options::default()
    };
    BufferCache::new(device, BlockSize::MIN, options)
}

fn get(cache: &BufferCache, block: u64) -> Buffer {
    cache.bread(Pblk(block), TAG, |_| Ok(())).unwrap()
}

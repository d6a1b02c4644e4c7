//! The rooms of other crates, in bytes.

use uext4_buffer_cache::BufferCache;
use uext4_extent_status::{BATCH, EXTENT_BYTES, Room};
use uext4_mballoc::Allocator;
use uext4_writeback::{MappingError, PageCache};

use super::Shrinker;

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Shrinker for BufferCache {
    fn memory(&self) -> u64 {
        BufferCache::memory(self) as u64
    }

    fn count(&self) -> u64 {
        BufferCache::count(self) as u64 * self.block_memory() as u64
    }

    fn scan(&self, bytes: u64) -> u64 {
        let each = self.block_memory() as u64;
        let blocks = bytes.div_ceil(each);
        BufferCache::scan(self, size(blocks)) as u64 * each
    }

    fn set_limit(&self, bytes: u64) {
        BufferCache::set_limit(self, size(bytes));
    }
}

impl Shrinker for Room {
    fn memory(&self) -> u64 {
        Room::memory(self) as u64
    }

    fn count(&self) -> u64 {
        Room::count(self) as u64 * EXTENT_BYTES
    }

    fn scan(&self, bytes: u64) -> u64 {
        let want = size(bytes.div_ceil(EXTENT_BYTES));
        let mut freed = 0;
        // Each extent twice: the first visit may only clear its mark.
        let batches = Room::count(self) / BATCH * 2 + 2;
        for _ in 0..batches {
            if freed >= want {
                break;
            }
            freed += Room::scan(self, BATCH);
        }
        freed as u64 * EXTENT_BYTES
    }
}

/// What is kept for files holds its groups: they are counted, and do not go.
impl Shrinker for Allocator {
    fn memory(&self) -> u64 {
        u64::from(self.loaded_groups()) * self.group_memory()
    }

    fn count(&self) -> u64 {
        Shrinker::memory(self)
    }

    fn scan(&self, bytes: u64) -> u64 {
        let each = self.group_memory();
        let most = u32::try_from(bytes.div_ceil(each)).unwrap_or(u32::MAX);
        u64::from(self.shrink(most)) * each
    }
}

impl<E: MappingError> Shrinker for PageCache<E> {
    fn memory(&self) -> u64 {
        self.resident()
    }

    fn count(&self) -> u64 {
        let stats = self.stats();
        let bound = stats.nr_dirty + stats.nr_writeback;
        self.resident().saturating_sub(bound)
    }

    fn scan(&self, bytes: u64) -> u64 {
        PageCache::scan(self, bytes)
    }

    fn set_limit(&self, bytes: u64) {
        PageCache::set_limit(self, bytes);
    }
}

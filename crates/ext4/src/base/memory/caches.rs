//! The subsystems of other crates, in bytes.

use uext4_buffer_cache::BufferCache;
use uext4_extent_status::{BATCH, ExtentStatusCache};
use uext4_mballoc::Allocator;
use uext4_writeback::{MappingError, PageCache};

use super::Shrinker;

/// Visits of an extent before it goes, at most.
const VISITS: usize = 5;

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

impl Shrinker for ExtentStatusCache {
    fn memory(&self) -> u64 {
        ExtentStatusCache::memory(self) as u64
    }

    fn count(&self) -> u64 {
        ExtentStatusCache::count(self) as u64 * self.extent_bytes()
    }

    fn scan(&self, bytes: u64) -> u64 {
        let each = self.extent_bytes();
        let want = size(bytes.div_ceil(each));
        let mut freed = 0;
        // A visit may only clear a mark of use. In queues of leaves there are up to three, and the
        // change of queues.
        let batches = ExtentStatusCache::count(self).div_ceil(BATCH) * VISITS;
        for _ in 0..batches {
            if freed >= want {
                break;
            }
            freed += ExtentStatusCache::scan(self, BATCH);
        }
        freed as u64 * each
    }
}

/// What is reserved for files holds its groups: they are counted, and do not go.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uext4_extent_status::{Extent, Status, Tree};
    use uext4_ondisk::{Lblk, Pblk};

    use super::*;

    #[test]
    fn what_was_used_often_goes_if_all_is_asked_for() {
        let room = ExtentStatusCache::new(|| Duration::ZERO);
        let trees: Vec<Tree> = (0..1000).map(|_| Tree::new(&room)).collect();
        let hole = |lblk| Extent {
            lblk: Lblk(lblk),
            len: 1,
            pblk: Pblk(0),
            status: Status::Hole,
        };
        // Lookups count once as time passes: as leaves come and go.
        let passing: Vec<Tree> = (0..200).map(|_| Tree::new(&room)).collect();
        for tree in &trees {
            tree.cache(hole(0));
        }
        for _ in 0..4 {
            for tree in &passing {
                for _ in 0..100 {
                    tree.cache(hole(0));
                    tree.remove(Lblk(0), 1);
                }
            }
            for tree in &trees {
                assert!(tree.lookup(Lblk(0)).is_some());
            }
        }
        Shrinker::scan(&*room, u64::MAX);
        assert_eq!(room.count(), 0);
    }
}

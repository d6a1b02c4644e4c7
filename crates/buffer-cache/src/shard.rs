//! One part of the table: the blocks whose numbers hash to it, and the clock hand over them.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hashbrown::HashTable;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use uext4_ondisk::Pblk;

use crate::buffer::Inner;
use crate::dirty_set::DirtySet;
use crate::stats::Counters;

/// Bytes of memory a block takes in addition to its data: the buffer, its places in the table.
pub const OVERHEAD: usize = 160;

/// Parts of the table; a power of two.
pub(crate) const SHARDS: usize = 64;

/// One part of the table.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) counters: Counters,
    pub(crate) dirty: Arc<DirtySet>,
    pub(crate) table: Mutex<Table>,
}

/// The buffers of a shard by block. The clock visits them in the order in which they happen to lie
/// there.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: HashTable<Arc<Inner>>,
    /// Slot the clock looks at next.
    hand: usize,
}

/// Where a block lies among those of its shard: other bits than those that chose the shard.
fn hash_of(block: Pblk) -> u64 {
    FxBuildHasher.hash_one(block.0)
}

/// The shard of a block: the high bits of a multiplicative hash, so that neighbours, which are
/// used together, lie in different shards.
pub(crate) fn shard_of(block: Pblk) -> usize {
    let hash = block.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (64 - SHARDS.trailing_zeros())) as usize
}

impl Table {
    pub(crate) fn get(&self, block: Pblk) -> Option<&Arc<Inner>> {
        self.slots
            .find(hash_of(block), |buffer| buffer.block == block)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds a buffer whose block is not there yet.
    pub(crate) fn insert(&mut self, buffer: Arc<Inner>) {
        let again = |buffer: &Arc<Inner>| hash_of(buffer.block);
        let hash = hash_of(buffer.block);
        self.slots.insert_unique(hash, buffer, again);
    }

    /// Moves the hand over at most `steps` slots and drops up to `want` clean, unpinned blocks
    /// that were not used since it last came by. Returns how many went, and how many steps it
    /// took.
    pub(crate) fn reclaim(&mut self, want: usize, steps: usize) -> (usize, usize) {
        let (mut gone, mut step) = (0, 0);
        // Slots without a buffer cost nothing worth counting, but end the walk after two rounds.
        let mut left = 2 * self.slots.num_buckets();
        while gone < want && step < steps && left > 0 {
            left -= 1;
            if self.hand >= self.slots.num_buckets() {
                self.hand = 0;
            }
            let slot = self.hand;
            self.hand += 1;
            let Some(buffer) = self.slots.get_bucket(slot) else {
                continue;
            };
            step += 1;
            let stays = Arc::strong_count(buffer) > 1
                || buffer.state.lock().dirty
                || buffer.referenced.swap(false, Relaxed);
            if !stays && self.evict(slot) {
                gone += 1;
            }
        }
        (gone, step)
    }

    /// Takes a block out unless a thread's LRU brings it back to life at this moment.
    fn evict(&mut self, slot: usize) -> bool {
        let Ok(entry) = self.slots.get_bucket_entry(slot) else {
            return false;
        };
        match Arc::try_unwrap(entry.remove().0) {
            // No thread can reach it any more. It may have been pinned, changed and let go since
            // the hand looked at it.
            Ok(inner) if inner.state.lock().dirty => {
                self.insert(Arc::new(inner));
                false
            }
            Ok(_) => true,
            Err(pinned) => {
                self.insert(pinned);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(blocks: u64) -> Table {
        let mut table = Table::default();
        for block in 0..blocks {
            table.insert(Arc::new(Inner::new(Pblk(block), Arc::default())));
        }
        table
    }

    #[test]
    fn the_hand_gives_a_second_chance() {
        let mut table = table(8);
        assert_eq!(table.reclaim(3, 8), (0, 8));
        table.get(Pblk(0)).unwrap().touch();
        let (gone, steps) = table.reclaim(1, 8);
        assert!(gone == 1 && (1..=2).contains(&steps));
        assert!(table.get(Pblk(0)).is_some());
        assert_eq!(table.reclaim(8, 16).0, 7);
        assert_eq!((table.len(), table.reclaim(8, 8)), (0, (0, 0)));
    }

    #[test]
    fn pinned_and_dirty_blocks_stay() {
        let mut table = table(6);
        let pinned = Arc::clone(table.get(Pblk(2)).unwrap());
        let dirty = Arc::clone(table.get(Pblk(4)).unwrap());
        dirty.set_dirty(&mut dirty.state.lock());
        drop(dirty);
        assert_eq!(table.reclaim(100, 100).0, 4);
        assert_eq!(table.len(), 2);
        assert!(Arc::ptr_eq(table.get(Pblk(2)).unwrap(), &pinned));
        assert!(table.get(Pblk(4)).is_some());
    }

    #[test]
    fn neighbours_spread_over_the_shards() {
        let mut counts = [0; SHARDS];
        for block in 1000..1000 + 64 * 100 {
            counts[shard_of(Pblk(block))] += 1;
        }
        assert!(counts.iter().all(|n| (50..150).contains(n)), "{counts:?}");
    }
}

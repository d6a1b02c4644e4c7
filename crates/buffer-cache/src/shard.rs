//! One part of the table: the blocks whose numbers hash to it, and the clock hand over them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use uext4_ondisk::Pblk;

use crate::buffer::Inner;
use crate::stats::Counters;

/// Bytes of memory a block takes beside its data: the buffer, its places in the table.
pub const OVERHEAD: usize = 160;

/// Parts of the table; a power of two.
pub(crate) const SHARDS: usize = 64;

/// Numbers of the dirty blocks of one shard.
#[derive(Debug, Default)]
pub(crate) struct DirtySet(Mutex<FxHashSet<u64>>);

impl DirtySet {
    pub(crate) fn insert(&self, block: Pblk) {
        self.0.lock().insert(block.0);
    }

    pub(crate) fn remove(&self, block: Pblk) {
        self.0.lock().remove(&block.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Appends all numbers to `to`.
    pub(crate) fn collect(&self, to: &mut Vec<u64>) {
        to.extend(self.0.lock().iter());
    }
}

/// One part of the table.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) counters: Counters,
    pub(crate) dirty: Arc<DirtySet>,
    pub(crate) table: Mutex<Table>,
}

/// The buffers of a shard, in the order the clock visits them.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slot_of: FxHashMap<u64, usize>,
    slots: Vec<Arc<Inner>>,
    /// Slot the clock looks at next.
    hand: usize,
}

/// The shard of a block: the high bits of a multiplicative hash, so that neighbours, which are
/// used together, lie in different shards.
pub(crate) fn shard_of(block: Pblk) -> usize {
    let hash = block.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (64 - SHARDS.trailing_zeros())) as usize
}

impl Table {
    pub(crate) fn get(&self, block: Pblk) -> Option<&Arc<Inner>> {
        self.slots.get(*self.slot_of.get(&block.0)?)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds a buffer whose block is not there yet.
    pub(crate) fn insert(&mut self, buffer: Arc<Inner>) {
        self.slot_of.insert(buffer.block.0, self.slots.len());
        self.slots.push(buffer);
    }

    fn take(&mut self, slot: usize) -> Arc<Inner> {
        let buffer = self.slots.swap_remove(slot);
        self.slot_of.remove(&buffer.block.0);
        if let Some(moved) = self.slots.get(slot) {
            self.slot_of.insert(moved.block.0, slot);
        }
        buffer
    }

    /// Moves the hand over at most `steps` slots and drops up to `want` clean, unpinned blocks
    /// that were not used since it last came by. Returns how many went, and how many steps it
    /// took.
    pub(crate) fn reclaim(&mut self, want: usize, steps: usize) -> (usize, usize) {
        let (mut gone, mut step) = (0, 0);
        while gone < want && step < steps && !self.slots.is_empty() {
            step += 1;
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let buffer = &self.slots[self.hand];
            let stays = Arc::strong_count(buffer) > 1
                || buffer.state.lock().dirty
                || buffer.referenced.swap(false, Relaxed);
            if !stays && self.evict(self.hand) {
                // The last slot's buffer stands here now; it is visited next.
                gone += 1;
            } else {
                self.hand += 1;
            }
        }
        (gone, step)
    }

    /// Takes a block out unless a thread's LRU brings it back to life at this moment.
    fn evict(&mut self, slot: usize) -> bool {
        match Arc::try_unwrap(self.take(slot)) {
            // Nobody can reach it any more. It may have been pinned, changed and let go since the
            // hand looked at it.
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
        assert_eq!(table.reclaim(1, 8), (1, 2));
        assert!(table.get(Pblk(0)).is_some());
        assert!(table.get(Pblk(1)).is_none());
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

//! The small array in front of the table: the last blocks a thread used, newest first.
//!
//! The policy is that of today's kernel: exact LRU, a linear scan, a hit moves to the front, an
//! install is in place and stops where the block itself stood. The difference: slots are weak.
//! They pin nothing, so a block may leave the cache while it stands here, and the slot is then
//! found dead and dropped; an install stops at such a slot. There is one array per thread, used by all its caches, as the kernel
//! has one per CPU for all devices; entries carry the number of their cache, which is never used
//! twice. A cache with a smaller size sees only the first slots.
//!
//! | tunable | unit | range | default |
//! |---|---|---|---|
//! | `bh_lru_size` | slots | 1…64 | 16 |

use std::cell::RefCell;
use std::mem;
use std::sync::{Arc, Weak};

use crate::buffer::Inner;

/// Most slots a thread has.
pub(crate) const BH_LRU_SIZE_MAX: usize = 64;

/// What a slot stands for: the number of a cache (0: an empty slot) and the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) cache: u64,
    pub(crate) block: u64,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    buffer: Weak<Inner>,
}

const EMPTY: Slot = Slot {
    key: Key { cache: 0, block: 0 },
    buffer: Weak::new(),
};

/// The array of one thread.
#[derive(Debug)]
struct BhLru {
    slots: [Slot; BH_LRU_SIZE_MAX],
}

thread_local! {
    static BH_LRU: RefCell<BhLru> = const { RefCell::new(BhLru::new()) };
}

impl BhLru {
    const fn new() -> Self {
        Self {
            slots: [EMPTY; BH_LRU_SIZE_MAX],
        }
    }

    /// The buffer if it stands in the first `size` slots and is still in its cache; moves it to
    /// the front.
    fn lookup(&mut self, key: Key, size: usize) -> Option<Arc<Inner>> {
        let slots = self.slots.get_mut(..size)?;
        let at = slots.iter().position(|slot| slot.key == key)?;
        let Some(found) = slots[at].buffer.upgrade() else {
            slots[at] = EMPTY;
            return None;
        };
        if at > 0 {
            slots[..=at].rotate_right(1);
        }
        Some(found)
    }

    /// Puts a buffer in front; the oldest of the first `size` slots drops out unless this one
    /// stood there already.
    fn install(&mut self, key: Key, buffer: &Arc<Inner>, size: usize) {
        let mut carry = Slot {
            key,
            buffer: Arc::downgrade(buffer),
        };
        for slot in self.slots.iter_mut().take(size) {
            mem::swap(slot, &mut carry);
            // An empty slot ends the shift too: what stands behind it may stay where it is.
            if carry.key == key || carry.key.cache == 0 {
                return;
            }
        }
    }
}

/// Looks in this thread's array. `None` also while the thread is being torn down.
pub(crate) fn lookup(key: Key, size: usize) -> Option<Arc<Inner>> {
    BH_LRU
        .try_with(|lru| lru.borrow_mut().lookup(key, size))
        .ok()
        .flatten()
}

/// Puts a buffer in front of this thread's array.
pub(crate) fn install(key: Key, buffer: &Arc<Inner>, size: usize) {
    // A thread that is being torn down goes without.
    let _ = BH_LRU.try_with(|lru| lru.borrow_mut().install(key, buffer, size));
}

#[cfg(test)]
mod tests {
    use super::*;
    use uext4_ondisk::Pblk;

    fn key(block: u64) -> Key {
        Key { cache: 1, block }
    }

    /// Hits of a cyclic stream of `k` blocks over an LRU of `size`, after one warm-up round.
    fn hits_of_cycle(k: u64, size: usize, rounds: u64) -> u64 {
        let buffers: Vec<_> = (0..k)
            .map(|b| Arc::new(Inner::new(Pblk(b), Arc::default())))
            .collect();
        let mut lru = Box::new(BhLru::new());
        let mut hits = 0;
        for round in 0..=rounds {
            for (block, buffer) in (0..).zip(&buffers) {
                match lru.lookup(key(block), size) {
                    Some(found) => {
                        assert!(Arc::ptr_eq(&found, buffer));
                        hits += u64::from(round > 0);
                    }
                    None => lru.install(key(block), buffer, size),
                }
            }
        }
        hits
    }

    #[test]
    fn cliff_of_strict_lru() {
        for size in [1, 2, 8, 16, 64] {
            for k in 1..=70 {
                let expected = if k <= size as u64 { 5 * k } else { 0 };
                assert_eq!(
                    hits_of_cycle(k, size, 5),
                    expected,
                    "{k} blocks, {size} slots"
                );
            }
        }
    }

    #[test]
    fn install_of_a_present_block_keeps_the_others() {
        let buffers: Vec<_> = (0..4)
            .map(|b| Arc::new(Inner::new(Pblk(b), Arc::default())))
            .collect();
        let mut lru = Box::new(BhLru::new());
        for (block, buffer) in (0..).zip(&buffers) {
            lru.install(key(block), buffer, 4);
        }
        lru.install(key(1), &buffers[1], 4);
        let order: Vec<u64> = lru.slots[..4].iter().map(|s| s.key.block).collect();
        assert_eq!(order, [1, 3, 2, 0]);
    }

    #[test]
    fn dead_buffers_are_not_found_and_not_kept() {
        let mut lru = Box::new(BhLru::new());
        let buffer = Arc::new(Inner::new(Pblk(7), Arc::default()));
        lru.install(key(7), &buffer, 16);
        assert!(Arc::try_unwrap(buffer).is_ok());
        assert!(lru.lookup(key(7), 16).is_none());
        assert_eq!(lru.slots[0].key.cache, 0);
    }

    #[test]
    fn caches_do_not_mix() {
        let mut lru = Box::new(BhLru::new());
        let buffer = Arc::new(Inner::new(Pblk(7), Arc::default()));
        lru.install(key(7), &buffer, 16);
        assert!(lru.lookup(Key { cache: 2, block: 7 }, 16).is_none());
    }
}

//! What crates of every level share: state with a slot for each thread, in place of the kernel's
//! per-CPU variables, the queue [`Ring`], in place of its lists, ranges of bits ([`bits`]), and
//! tables that become longer while they are read ([`Growing`], [`Replaced`]).
//!
//! Threads that write the same cache line wait for one another, whether or not they work on the
//! same thing: a counter of operations costs two threads more than the operations. A
//! [`PerThread`] value has [`SLOTS`] slots on cache lines of their own, and a thread always uses
//! the same slot. [`Counter`] is the kernel's `percpu_counter` (`lib/percpu_counter.c`): each
//! slot collects up to a batch before it is added to the total, so reading the total is cheap and
//! nearly right, and the exact sum takes one read of each slot. A [`Tally`] is a table of numbers
//! that only grow, such as the counters that [`counters!`] declares: an addition is never handed
//! over, and the sum is read from all slots.
//!
//! Threads are numbered in the order in which they first ask ([`thread_number`]); thread `SLOTS`
//! shares the slot of thread 0. So a slot is shared in the worst case, and everything in it must
//! be safe to share.
//!
//! Units: a counter counts whatever its owner counts. Locks: none. Cost: an addition is one atomic
//! instruction on a line of the thread's own; a value takes `SLOTS` × 128 bytes, so it belongs to
//! a file system, not to an inode.

pub mod bits;
mod counter;
mod growing;
pub mod ring;
mod tally;

use std::slice;

use crossbeam_utils::CachePadded;

pub use counter::Counter;
pub use growing::{Growing, Replaced};
pub use ring::Ring;
pub use tally::Tally;

/// Slots of each value: a power of two, no less than the processors of most machines.
#[cfg(not(feature = "shuttle"))]
pub const SLOTS: usize = 16;
/// Slots of each value, few so that the model checker's threads also meet in one.
#[cfg(feature = "shuttle")]
pub const SLOTS: usize = 2;

/// A value for each slot, on cache lines of its own.
#[derive(Debug, Default)]
pub struct PerThread<T>([CachePadded<T>; SLOTS]);

impl<T> PerThread<T> {
    /// Makes the value of each slot.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self(std::array::from_fn(|_| CachePadded::new(make())))
    }

    /// The value of the calling thread's slot.
    #[inline]
    pub fn get(&self) -> &T {
        &self.0[slot()]
    }

    /// All values, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a PerThread<T> {
    type Item = &'a T;
    type IntoIter = std::iter::Map<slice::Iter<'a, CachePadded<T>>, fn(&CachePadded<T>) -> &T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|value| &**value)
    }
}

/// A number of the calling thread, more than 0, that no other thread of the process has.
#[inline]
pub fn thread_number() -> u64 {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        /// The number of this thread; 0 until it has one.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Relaxed));
    }
    NUMBER.get()
}

/// The slot of the calling thread, less than [`SLOTS`].
#[cfg(not(feature = "shuttle"))]
#[inline]
pub fn slot() -> usize {
    // OK to truncate: of the number only the lower bits count.
    thread_number() as usize % SLOTS
}

/// The slot of the calling thread, less than [`SLOTS`]: threads of the model checker run on one
/// thread of the system, one after the other.
#[cfg(feature = "shuttle")]
pub fn slot() -> usize {
    shuttle::current::try_get_current_task().map_or(0, usize::from) % SLOTS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::{PerThread, SLOTS, slot, thread_number};

    #[test]
    fn a_thread_uses_one_slot_and_threads_in_a_row_use_different_ones() {
        assert_eq!(slot(), slot());
        // Other tests of this process may start threads in between, which take numbers too: so
        // that threads differ is seen by their numbers.
        let threads: Vec<(u64, usize)> = thread::scope(|scope| {
            let one = || (thread_number(), slot());
            let threads: Vec<_> = (0..SLOTS).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let numbers: HashSet<u64> = threads.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers.len(), SLOTS, "{threads:?}");
        for (number, slot) in threads {
            assert_eq!(slot as u64, number % SLOTS as u64);
        }
    }

    #[test]
    fn slots_lie_on_cache_lines_of_their_own() {
        let values = PerThread::new(|| 0u8);
        let at: Vec<usize> = values
            .iter()
            .map(|v| std::ptr::from_ref(v).addr())
            .collect();
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 64), "{at:?}");
        assert_eq!(at.len(), SLOTS);
    }
}

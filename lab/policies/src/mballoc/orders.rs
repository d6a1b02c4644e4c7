//! Which groups stand under which order: that of their largest free chunk, or of their average
//! free run.
//!
//! One set of groups an order, each a bitmap with a summary bit for every 64 groups, so that
//! finding the next group in a set reads a handful of words however many groups there are. Sets
//! are changed under the lock of the group concerned and read without any lock: an answer is a
//! hint, to be tested under the group's lock.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use uext4_mballoc::{GroupState, Index, Layout};

/// A set of groups.
#[derive(Debug)]
struct GroupSet {
    words: Box<[AtomicU64]>,
    /// Bit w: `words[w]` may have a bit set; never clear while it lastingly has one.
    summary: Box<[AtomicU64]>,
}

impl GroupSet {
    fn new(groups: u32) -> Self {
        let zeroes = |bits: usize| (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let words: Box<[AtomicU64]> = zeroes(groups as usize);
        Self {
            summary: zeroes(words.len()),
            words,
        }
    }

    fn insert(&self, group: u32) {
        let word = (group / 64) as usize;
        self.words[word].fetch_or(1 << (group % 64), Relaxed);
        self.summary[word / 64].fetch_or(1 << (word % 64), Relaxed);
    }

    fn remove(&self, group: u32) {
        let word = (group / 64) as usize;
        let bit = 1 << (group % 64);
        if self.words[word].fetch_and(!bit, Relaxed) == bit {
            let summary = &self.summary[word / 64];
            summary.fetch_and(!(1 << (word % 64)), Relaxed);
            // Another group of the same word may have come in between.
            if self.words[word].load(Relaxed) != 0 {
                summary.fetch_or(1 << (word % 64), Relaxed);
            }
        }
    }

    /// First group of the set at or after `from`.
    fn next(&self, from: u32) -> Option<u32> {
        let word = (from / 64) as usize;
        let here = self.words.get(word)?.load(Relaxed) & (!0 << (from % 64));
        if here != 0 {
            return Some(word as u32 * 64 + here.trailing_zeros());
        }
        let mut at = word + 1;
        loop {
            let summary = self.summary.get(at / 64)?.load(Relaxed) & (!0 << (at % 64));
            if summary == 0 {
                at = (at / 64 + 1) * 64;
                continue;
            }
            let word = at / 64 * 64 + summary.trailing_zeros() as usize;
            let bits = self.words[word].load(Relaxed);
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            at = word + 1;
        }
    }
}

/// The sets of all orders.
#[derive(Debug)]
pub(super) struct OrderIndex {
    sets: Vec<GroupSet>,
    /// Order of each group and one, 0 for none. Changed under the group's lock.
    orders: Box<[AtomicU8]>,
}

impl OrderIndex {
    /// Of `groups` groups, none of them in a set.
    fn new(groups: u32, order_max: u32) -> Self {
        Self {
            sets: (0..=order_max).map(|_| GroupSet::new(groups)).collect(),
            orders: (0..groups).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// The first group of this order at or after `from`.
    pub(super) fn next(&self, order: u32, from: u32) -> Option<u32> {
        self.sets.get(order as usize)?.next(from)
    }

    /// The group is of order `new` now (`None`: nothing is free).
    fn change(&self, group: u32, new: Option<u32>) {
        let stored = new.map_or(0, |order| order as u8 + 1);
        let old = self.orders[group as usize].swap(stored, Relaxed);
        if old == stored {
            return;
        }
        if let Some(set) = new.and_then(|order| self.sets.get(order as usize)) {
            set.insert(group);
        }
        let old = old.checked_sub(1);
        if let Some(set) = old.and_then(|order| self.sets.get(usize::from(order))) {
            set.remove(group);
        }
    }
}

/// Both indexes of a file system.
#[derive(Debug)]
pub(super) struct Orders {
    /// By order of the largest chunk: `largest_free_orders`.
    pub(super) largest: OrderIndex,
    /// By order of the average free run: `avg_fragment_size`.
    pub(super) average: OrderIndex,
    order_max: u32,
}

impl Orders {
    /// Of a file system none of whose groups is in a set.
    pub(super) fn new(layout: Layout) -> Self {
        let Layout { groups, order_max } = layout;
        Self {
            largest: OrderIndex::new(groups, order_max),
            average: OrderIndex::new(groups, order_max),
            order_max,
        }
    }
}

impl Index for Orders {
    fn update(&self, group: u32, state: &GroupState) {
        self.largest.change(group, state.largest_order);
        let average = average_order(state.average_run(), self.order_max);
        self.average
            .change(group, (state.free > 0).then_some(average));
    }
}

/// Order under which a group with free runs of `average` blocks stands, as the kernel counts it:
/// one less than the binary logarithm.
pub(super) fn average_order(average: u32, order_max: u32) -> u32 {
    average.max(1).ilog2().saturating_sub(1).min(order_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_skips_empty_words() {
        let set = GroupSet::new(100_000);
        for group in [3, 64, 9_000, 99_999] {
            set.insert(group);
        }
        assert_eq!(set.next(0), Some(3));
        assert_eq!(set.next(4), Some(64));
        assert_eq!(set.next(65), Some(9_000));
        assert_eq!(set.next(9_001), Some(99_999));
        set.remove(9_000);
        assert_eq!(set.next(65), Some(99_999));
        set.remove(99_999);
        assert_eq!(set.next(65), None);
        assert_eq!(set.next(99_999), None);
    }

    #[test]
    fn a_group_is_in_the_set_of_its_order_alone() {
        let index = OrderIndex::new(200, 5);
        index.change(150, Some(4));
        assert_eq!((index.next(4, 0), index.next(4, 151)), (Some(150), None));
        index.change(150, Some(2));
        assert_eq!((index.next(4, 0), index.next(2, 100)), (None, Some(150)));
        index.change(150, None);
        assert_eq!(index.next(2, 0), None);
    }
}

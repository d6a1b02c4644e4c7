//! Which groups stand under which order: that of their largest free chunk, or of their average free run.
//!
//! One set of groups an order, each a bitmap with a summary bit for every 64 groups, so that finding
//! the next group in a set reads a handful of words however many groups there are. Sets are changed
//! under the lock of the group concerned and read without any lock: an answer is a hint, to be
//! tested under the group's lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

    /// Groups in the set.
    fn count(&self) -> u32 {
        let words = self.words.iter();
        words.map(|word| word.load(Relaxed).count_ones()).sum()
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
pub(crate) struct OrderIndex {
    sets: Vec<GroupSet>,
    groups: u32,
}

impl OrderIndex {
    /// Of `groups` groups, none of them in a set.
    pub(crate) fn new(groups: u32, order_max: u32) -> Self {
        Self {
            sets: (0..=order_max).map(|_| GroupSet::new(groups)).collect(),
            groups,
        }
    }

    /// Groups in the set of each order.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u32> {
        self.sets.iter().map(GroupSet::count)
    }

    /// The first group of this order at or after `from`.
    pub(crate) fn next(&self, order: u32, from: u32) -> Option<u32> {
        self.sets.get(order as usize)?.next(from)
    }

    /// The group's largest chunk was of order `old` and is of order `new` (`None`: nothing free).
    pub(crate) fn change(&self, group: u32, old: Option<u32>, new: Option<u32>) {
        if old == new {
            return;
        }
        if let Some(set) = new.and_then(|order| self.sets.get(order as usize)) {
            set.insert(group);
        }
        if let Some(set) = old.and_then(|order| self.sets.get(order as usize)) {
            set.remove(group);
        }
    }

    /// The nearest group at or after `from`, then from the first on, whose largest chunk is of one of
    /// `orders`; `skip` groups after `from` do not count (with 0 all do).
    pub(crate) fn nearest(
        &self,
        orders: std::ops::RangeInclusive<u32>,
        from: u32,
        skip: u32,
    ) -> Option<u32> {
        if skip >= self.groups {
            return None;
        }
        // Distances go once round, so that the caller can continue after what it was given.
        let first = |start: u32, end: u32| {
            orders
                .clone()
                .filter_map(|order| self.sets.get(order as usize)?.next(start))
                .filter(|&group| group < end)
                .min()
        };
        let start = u64::from(from) + u64::from(skip);
        if start < u64::from(self.groups) {
            first(start as u32, self.groups).or_else(|| first(0, from))
        } else {
            first((start - u64::from(self.groups)) as u32, from)
        }
    }

    /// How far `group` is after `from`, going once round.
    pub(crate) fn distance(&self, from: u32, group: u32) -> u32 {
        if group >= from {
            group - from
        } else {
            self.groups - from + group
        }
    }
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
    fn nearest_goes_once_round() {
        let index = OrderIndex::new(200, 5);
        index.change(10, None, Some(2));
        index.change(150, None, Some(4));
        assert_eq!(index.nearest(2..=5, 100, 0), Some(150));
        assert_eq!(index.distance(100, 150), 50);
        assert_eq!(index.nearest(2..=5, 100, 51), Some(10));
        assert_eq!(index.distance(100, 10), 110);
        assert_eq!(index.nearest(2..=5, 100, 111), None);
        assert_eq!(index.nearest(3..=5, 0, 0), Some(150));
        assert_eq!(index.nearest(0..=1, 0, 0), None);
        index.change(150, Some(4), None);
        assert_eq!(index.nearest(2..=5, 100, 0), Some(10));
        assert_eq!(index.nearest(2..=5, 10, 0), Some(10));
    }
}

//! A number for every group, and the next group whose number is large enough.
//!
//! A tree of maxima, 64 numbers to one above, so that finding a group reads a few rows of 64
//! numbers however many groups there are. A group's number is set under that group's lock;
//! searches take no lock, and what they find is a hint to be tested under the lock of the group
//! found.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Numbers under one of the next level.
const FAN: usize = 64;

/// See the file's head. All numbers are 0 at first.
#[derive(Debug)]
pub(crate) struct Maxima {
    /// The groups' own numbers first; the last level has at most 64.
    levels: Vec<Box<[AtomicU32]>>,
}

impl Maxima {
    pub(crate) fn new(groups: u32) -> Self {
        let zeroes = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        let mut count = groups as usize;
        let mut levels: Vec<Box<[AtomicU32]>> = vec![zeroes(count)];
        while count > FAN {
            count = count.div_ceil(FAN);
            levels.push(zeroes(count));
        }
        Self { levels }
    }

    /// The numbers of `smaller`, and 0 for the groups that it does not have. What is set there
    /// meanwhile may be missing.
    pub(crate) fn larger(smaller: &Self, groups: u32) -> Self {
        let larger = Self::new(groups);
        for (group, number) in smaller.levels[0].iter().enumerate() {
            larger.set(group as u32, number.load(SeqCst));
        }
        larger
    }

    /// A group's number; 0 for one that was added since this was made.
    pub(crate) fn get(&self, group: u32) -> u32 {
        let number = self.levels[0].get(group as usize);
        number.map_or(0, |number| number.load(SeqCst))
    }

    /// The largest number of all.
    pub(crate) fn largest(&self) -> u32 {
        let top = self.levels.last().into_iter().flatten();
        top.map(|number| number.load(SeqCst)).max().unwrap_or(0)
    }

    /// Sets a group's number; to be called under its lock.
    pub(crate) fn set(&self, group: u32, number: u32) {
        let mut at = group as usize;
        let old = self.levels[0][at].swap(number, SeqCst);
        if number > old {
            for level in &self.levels[1..] {
                at /= FAN;
                if level[at].fetch_max(number, SeqCst) >= number {
                    return;
                }
            }
        } else if number < old {
            for pair in self.levels.windows(2) {
                at /= FAN;
                // Another thread has more; who takes that away reads the row again after it.
                if pair[1][at].load(SeqCst) > old || !lower(&pair[0], &pair[1][at], at) {
                    return;
                }
            }
        }
    }

    /// The next group at or after `from` whose number is at least `least`, which is more than 0.
    pub(crate) fn next(&self, least: u32, from: u32) -> Option<u32> {
        let (mut level, mut at) = (0, from as usize);
        loop {
            let numbers = self.levels.get(level)?;
            let row_end = ((at / FAN + 1) * FAN).min(numbers.len());
            let mut row = at..row_end;
            match row.find(|&at| numbers[at].load(SeqCst) >= least) {
                Some(found) if level == 0 => return Some(found as u32),
                Some(found) => (level, at) = (level - 1, found * FAN),
                None => (level, at) = (level + 1, at / FAN + 1),
            }
        }
    }

    /// Whether any group has `least`, looking at each: for when a search found none, as it may
    /// while others change numbers.
    pub(crate) fn any(&self, least: u32) -> Option<u32> {
        let found = self.levels[0].iter().position(|n| n.load(SeqCst) >= least);
        found.map(|group| group as u32)
    }
}

/// Brings `above`, the maximum of row `row` of `below`, down to what it is now. False if it stays.
fn lower(below: &[AtomicU32], above: &AtomicU32, row: usize) -> bool {
    let numbers = &below[row * FAN..((row + 1) * FAN).min(below.len())];
    let first = above.load(SeqCst);
    loop {
        let was = above.load(SeqCst);
        let now = numbers.iter().map(|n| n.load(SeqCst)).max().unwrap_or(0);
        // A caller that raised a number of the row after it was read here found `above` high
        // enough, and left it: so the row is read once more after every change.
        if was == now {
            return now != first;
        }
        let _ = above.compare_exchange(was, now, SeqCst, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn next_is_what_a_walk_finds(
            groups in 1u32..9000,
            sets in prop::collection::vec((any::<u32>(), 0u32..50), 1..200),
            asks in prop::collection::vec((any::<u32>(), 1u32..60), 1..20),
        ) {
            let maxima = Maxima::new(groups);
            let mut naive = vec![0; groups as usize];
            for (group, number) in sets {
                let group = group % groups;
                maxima.set(group, number);
                naive[group as usize] = number;
                prop_assert_eq!(maxima.largest(), naive.iter().copied().max().unwrap_or(0));
            }
            for (from, least) in asks {
                let from = from % groups;
                let found = (from..groups).find(|&g| naive[g as usize] >= least);
                prop_assert_eq!(maxima.next(least, from), found);
                prop_assert_eq!(maxima.any(least).is_some(), naive.iter().any(|&n| n >= least));
            }
        }
    }

    #[test]
    fn threads_leave_true_maxima() {
        let maxima = Maxima::new(200);
        std::thread::scope(|scope| {
            for worker in 0..4u32 {
                let maxima = &maxima;
                scope.spawn(move || {
                    for step in 0..20_000u32 {
                        let group = worker * 50 + step % 50;
                        maxima.set(group, step.wrapping_mul(2_654_435_761) >> 24);
                    }
                });
            }
        });
        let all = (0..200).map(|group| maxima.get(group)).max();
        assert_eq!(Some(maxima.largest()), all);
    }
}

//! What it costs to count users: the kernel's way, or gathered until the commit as our engine does.
//!
//! The kernel locks the block's buffer and changes it in the transaction, each time. Our engine
//! does that with the first change and at the commit: between them who comes and the thread that
//! goes shares the lock of a part of all counts and changes one word. A thread that may be the
//! last user, and the thread that fills a block, takes that lock alone, and only then the buffer.

use std::collections::BTreeMap;

use uext4_mbcache::Counts;

use super::cost::{Costs, Place};

/// What stores the counts.
const COMMIT: usize = usize::MAX;

/// The counts of a run, which is one transaction: no run takes 5 s of modelled time.
#[derive(Debug)]
pub struct Counting {
    gathers: bool,
    /// Blocks whose count was changed in memory, and their users as stored.
    stored: BTreeMap<u64, u32>,
}

/// What is left to do under the lock of a count, or of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Others have the block: it may not be changed.
    Others,
    /// Nothing: it went, or is full, or has been found.
    Alone,
}

impl Counting {
    /// Gathered or not.
    pub fn new(gathers: bool) -> Self {
        Self {
            gathers,
            stored: BTreeMap::new(),
        }
    }

    fn part(block: u64) -> u64 {
        Counts::<()>::part(block) as u64
    }

    /// Takes the lock of a block's count, after a look that has not reported enough.
    fn alone(costs: &mut Costs, task: usize, block: u64) {
        let part = Self::part(block);
        costs.share(Place::CountsShared(part), task);
        costs.lock(Place::Counts(part), task, 1, 0.0);
    }

    /// A user came or went; there were so many before. `shared`: the block keeps users, and had
    /// room for more than one.
    pub fn change(
        &mut self,
        costs: &mut Costs,
        task: usize,
        (block, users): (u64, u32),
        shared: bool,
    ) {
        if !self.gathers {
            costs.buffer(block, task, 1);
        } else if shared && self.stored.contains_key(&block) {
            costs.share(Place::CountsShared(Self::part(block)), task);
            costs.share(Place::Count(block), task);
        } else {
            Self::alone(costs, task, block);
            self.stored.entry(block).or_insert(users);
        }
    }

    /// A thread looks at a count and changes nothing.
    pub fn look(&self, costs: &mut Costs, task: usize, block: u64, look: Look) {
        match (self.gathers, look) {
            (false, _) => costs.buffer(block, task, 0),
            (true, Look::Others) => costs.share(Place::CountsShared(Self::part(block)), task),
            (true, Look::Alone) => Self::alone(costs, task, block),
        }
    }

    /// The only user changes the block in place.
    pub fn edit(&mut self, costs: &mut Costs, task: usize, block: u64) {
        if self.gathers {
            Self::alone(costs, task, block);
            self.stored.entry(block).and_modify(|stored| *stored = 1);
        }
        costs.buffer(block, task, 1);
    }

    /// The last user goes: bitmap and descriptor change.
    pub fn free(&mut self, costs: &mut Costs, task: usize, block: u64) {
        if self.gathers {
            Self::alone(costs, task, block);
            self.stored.remove(&block);
        }
        costs.buffer(block, task, 2);
    }

    /// Stores the counts that are not as stored.
    pub fn commit(&mut self, costs: &mut Costs, users: impl Fn(u64) -> u32) {
        for (block, stored) in std::mem::take(&mut self.stored) {
            if users(block) != stored {
                costs.buffer(block, COMMIT, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_are_one_update_and_two_that_undo_each_other_none() {
        let (mut ours, mut theirs) = (Costs::default(), Costs::default());
        let (mut gathered, mut written) = (Counting::new(true), Counting::new(false));
        for task in 0..10 {
            for block in [1, 2] {
                gathered.change(&mut ours, task, (block, 5), true);
                written.change(&mut theirs, task, (block, 5), true);
            }
        }
        assert_eq!((ours.updates, ours.buffer_locks, ours.handoffs), (0, 0, 0));
        gathered.commit(&mut ours, |block| if block == 1 { 6 } else { 5 });
        assert_eq!((ours.updates, ours.buffer_locks), (1, 1));
        assert_eq!((theirs.updates, theirs.handoffs), (20, 18));
        gathered.commit(&mut ours, |_| 9);
        assert_eq!(ours.updates, 1);
    }
}

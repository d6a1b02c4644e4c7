//! A hash table of chains, each with a lock of its own; the number of chains is fixed, as the kernel's.

use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::cache::Created;
use crate::entry::Entry;
use crate::lock::Lock;
use crate::options::OptionError;
use crate::stats::{Counter, Counters};

/// 2⁶⁴ divided by the golden ratio: spreads hashes over chains.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The table.
#[derive(Debug)]
pub(crate) struct Chains {
    chains: Vec<Lock<Chain>>,
    bits: u32,
}

impl Chains {
    /// 2^`bits` empty chains, less than 2⁶⁴.
    pub(crate) fn new(bits: u32) -> Result<Self, OptionError> {
        let mut chains = Vec::new();
        let reserved = chains.try_reserve_exact(1 << bits);
        reserved.map_err(|_| OptionError::NoMemory { bits })?;
        chains.resize_with(1 << bits, Lock::default);
        Ok(Self { chains, bits })
    }

    /// What the heads of the chains take.
    pub(crate) fn bytes(&self) -> usize {
        self.chains.len() * size_of::<Lock<Chain>>()
    }

    /// Locks the chain of a hash.
    pub(crate) fn lock(&self, counters: &Counters, hash: u64) -> MutexGuard<'_, Chain> {
        let at = hash.wrapping_mul(GOLDEN) >> (64 - self.bits);
        self.chains[at as usize].lock(counters, Counter::BucketLocks)
    }

    /// The newest entry of a hash's chain that is wanted; of those after `after`, if that is still there.
    /// It is asked for under the chain's lock.
    pub(crate) fn find(
        &self,
        counters: &Counters,
        hash: u64,
        after: Option<&Arc<Entry>>,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Option<Arc<Entry>> {
        let mut steps = 0;
        let chain = self.lock(counters, hash);
        let found = chain.walk(after.map(|after| &**after)).find(|entry| {
            steps += 1;
            is_wanted(entry)
        });
        let found = found.map(Arc::clone);
        drop(chain);
        counters.chain(steps);
        found
    }

    /// Puts an entry into the chain of its hash on disk, unless its pair is there.
    pub(crate) fn create(&self, counters: &Counters, entry: &Arc<Entry>) -> Created {
        let mut steps = 0;
        let mut chain = self.lock(counters, entry.key.hash.into());
        let is_there = chain.walk(None).any(|other| {
            steps += 1;
            other.is(entry.key, entry.value)
        });
        let created = match is_there {
            true => Created::Present,
            false if chain.insert(entry) => Created::Inserted,
            false => Created::Refused,
        };
        drop(chain);
        counters.chain(steps);
        created
    }
}

/// A chain: its newest entry comes first.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// By age, the oldest first. Looked for by binary search where the kernel has a pointer.
    entries: Vec<Arc<Entry>>,
}

impl Chain {
    fn place(&self, entry: &Entry) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&entry.seq, |e| e.seq)
    }

    /// Entries from the newest on; after `from`, if it is still in the chain.
    pub(crate) fn walk(&self, from: Option<&Entry>) -> impl Iterator<Item = &Arc<Entry>> {
        let end = from.and_then(|from| self.place(from).ok());
        let end = end.unwrap_or(self.entries.len());
        self.entries[..end].iter().rev()
    }

    /// `false` if there is no memory.
    pub(crate) fn insert(&mut self, entry: &Arc<Entry>) -> bool {
        if self.entries.try_reserve(1).is_err() {
            return false;
        }
        if let Err(place) = self.place(entry) {
            self.entries.insert(place, Arc::clone(entry));
        }
        true
    }

    /// `false` if it is not in the chain.
    pub(crate) fn remove(&mut self, entry: &Entry) -> bool {
        let place = self.place(entry);
        place.is_ok_and(|place| {
            self.entries.remove(place);
            if self.entries.capacity() > 64 && self.entries.len() < self.entries.capacity() / 4 {
                self.entries.shrink_to(self.entries.len() * 2);
            }
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_chains_than_there_is_memory_for_are_refused() {
        let error = Chains::new(62).unwrap_err();
        assert_eq!(error, OptionError::NoMemory { bits: 62 });
        assert_eq!(Chains::new(3).unwrap().chains.len(), 8);
    }
}

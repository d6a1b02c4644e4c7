//! A hash table of chains, each with a lock of its own; the number of chains is fixed, as the
//! kernel's.

use std::sync::Arc;

use parking_lot::MutexGuard;

use uext4_mbcache::{Created, Entry, Key};

use super::lock::Lock;
use super::stats::{Counter, Counters};

/// 2⁶⁴ divided by the golden ratio: spreads hashes over chains.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The table.
#[derive(Debug)]
pub(super) struct Chains {
    chains: Vec<Lock<Chain>>,
    bits: u32,
}

impl Chains {
    /// 2^`bits` empty chains; 1 to 20 bits.
    pub(super) fn new(bits: u32) -> Self {
        Self {
            chains: (0..1 << bits).map(|_| Lock::default()).collect(),
            bits,
        }
    }

    /// What the heads of the chains take.
    pub(super) fn bytes(&self) -> usize {
        self.chains.len() * size_of::<Lock<Chain>>()
    }

    /// Locks the chain of a hash.
    pub(super) fn lock(&self, counters: &Counters, hash: u64) -> MutexGuard<'_, Chain> {
        let at = hash.wrapping_mul(GOLDEN) >> (64 - self.bits);
        self.chains[at as usize].lock(counters, Counter::BucketLocks)
    }

    /// The newest entry of a hash's chain that is wanted; of those after `after`, if that is still
    /// there. It is asked for under the chain's lock.
    pub(super) fn find(
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
    pub(super) fn create(&self, counters: &Counters, entry: &Arc<Entry>) -> Created {
        let mut steps = 0;
        let mut chain = self.lock(counters, entry.key.hash.into());
        let is_there = chain.walk(None).any(|other| {
            steps += 1;
            is(other, entry.key, entry.value)
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

/// Whether a pair is this entry's, as far as the hash on disk says.
pub(super) fn is(entry: &Entry, key: Key, value: u64) -> bool {
    entry.value == value && entry.key.hash == key.hash
}

/// A chain: its newest entry comes first.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// By age, the oldest first. Looked for by binary search where the kernel has a pointer.
    entries: Vec<Arc<Entry>>,
}

impl Chain {
    fn place(&self, entry: &Entry) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&entry.seq, |e| e.seq)
    }

    /// Entries from the newest on; after `from`, if it is still in the chain.
    pub(super) fn walk(&self, from: Option<&Entry>) -> impl Iterator<Item = &Arc<Entry>> {
        let end = from.and_then(|from| self.place(from).ok());
        let end = end.unwrap_or(self.entries.len());
        self.entries[..end].iter().rev()
    }

    /// `false` if there is no memory.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> bool {
        if self.entries.try_reserve(1).is_err() {
            return false;
        }
        if let Err(place) = self.place(entry) {
            self.entries.insert(place, Arc::clone(entry));
        }
        true
    }

    /// `false` if it is not in the chain.
    pub(super) fn remove(&mut self, entry: &Entry) -> bool {
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

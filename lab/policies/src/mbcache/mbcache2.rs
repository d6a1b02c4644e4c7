//! `mbcache2` and `mbcache2-touch-fixed`: the rewrite without handles.
//!
//! Source: Jan Kara, "\[PATCH 1/7\] mbcache2: Reimplement mbcache", 15 December 2015, and the
//! replies of Andreas Grünbacher and Andreas Dilger.
//!
//! One hash table by key, one list by use. No thread excludes another: a thread that has found an
//! entry asks, under the lock of its block's count, whether it is still in the table, and a thread
//! that changes or frees the block has taken it out under that lock. So a removal never fails, and
//! a candidate may be stale.
//!
//! As posted, a touch hands the two ends of the list to the wrong sides: the list then begins with
//! the touched entry, which is the next to go. The two spellings differ in that alone.
//!
//! Differences: an entry that is removed before it is on the list does not get on it. In that patch
//! only lack of memory bounds the number of entries; here `mb_max_entries` does, and 2²².

use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Number, AtomicUsize, Ordering::Relaxed};

use uext4_mbcache::{Created, End, Entry, Index, Key, Stale, Usage};

use super::chains::{Chains, is};
use super::list::List;
use super::lock::Lock;
use super::policy::Options;
use super::stats::{Counter, Counters, Stats};
use super::{CHAINED_ENTRY_BYTES, ENTRIES_MAX, Measured};

/// In `flags`: it is in the table.
const HASHED: u32 = 1;

/// Where a touched entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// To the front.
    AsPosted,
    /// To the end.
    Fixed,
}

/// The index. `state` of an entry is not used: `Arc` counts its holders.
#[derive(Debug)]
pub(super) struct Mbcache2 {
    counters: Counters,
    chains: Chains,
    /// `c_lru_list` under `c_lru_list_lock`.
    list: Lock<List>,
    touch: Touch,
    max: usize,
    len: AtomicUsize,
    next_seq: Number,
}

impl Mbcache2 {
    pub(super) fn new(options: &Options, touch: Touch) -> Self {
        Self {
            counters: Counters::default(),
            chains: Chains::new(options.chain_bits()),
            list: Lock::default(),
            touch,
            max: options.max_entries as usize,
            len: AtomicUsize::new(0),
            next_seq: Number::new(0),
        }
    }

    fn unhash(&self, entry: &Entry) -> bool {
        let mut chain = self.chains.lock(&self.counters, entry.key.hash.into());
        entry.flags.store(0, Relaxed);
        chain.remove(entry)
    }
}

impl Measured for Mbcache2 {
    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl Index for Mbcache2 {
    fn usage(&self) -> Usage {
        Usage {
            entries: self.len.load(Relaxed),
            max: self.max,
            entry_bytes: CHAINED_ENTRY_BYTES,
            fixed_bytes: self.chains.bytes(),
        }
    }

    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        let has_hash = |entry: &Entry| entry.key.hash == key.hash;
        self.chains
            .find(&self.counters, key.hash.into(), after, has_hash)
    }

    fn end(&self, found: &Arc<Entry>, how: End) -> Result<(), Stale> {
        if how == End::Unused {
            return Ok(());
        }
        if found.flags.load(Relaxed) & HASHED == 0 {
            return Err(Stale);
        }
        let mut list = self.list.lock(&self.counters, Counter::ListLocks);
        match self.touch {
            Touch::AsPosted => list.begin_with(found),
            Touch::Fixed => list.move_to_back(found),
        }
        Ok(())
    }

    fn create(&self, key: Key, value: u64, _: u32) -> Created {
        let full = match self.max {
            0 => ENTRIES_MAX,
            max => max,
        };
        if self.len.load(Relaxed) >= full {
            let freed = self.scan(1);
            self.counters.add(Counter::ShrunkSync, freed as u64);
            if freed == 0 {
                return Created::Refused;
            }
        }
        let seq = self.next_seq.fetch_add(1, Relaxed);
        let entry = Entry::new(key, value, seq, 0, HASHED);
        let created = self.chains.create(&self.counters, &entry);
        if created != Created::Inserted {
            return created;
        }
        let mut list = self.list.lock(&self.counters, Counter::ListLocks);
        if entry.flags.load(Relaxed) & HASHED == 0 {
            return Created::Inserted;
        }
        if list.push_back(&entry) {
            self.len.fetch_add(1, Relaxed);
            return Created::Inserted;
        }
        drop(list);
        self.unhash(&entry);
        Created::Refused
    }

    fn remove(&self, key: Key, value: u64, _: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>> {
        let mut steps = 0;
        let mut chain = self.chains.lock(&self.counters, key.hash.into());
        let found = chain.walk(None).find(|entry| {
            steps += 1;
            is(entry, key, value)
        });
        let found = found.map(Arc::clone);
        if let Some(entry) = &found {
            entry.flags.store(0, Relaxed);
            chain.remove(entry);
        }
        drop(chain);
        self.counters.chain(steps);
        if let Some(entry) = found {
            let mut list = self.list.lock(&self.counters, Counter::ListLocks);
            if list.remove(&entry) {
                self.len.fetch_sub(1, Relaxed);
            }
        }
        Ok(())
    }

    fn scan(&self, nr: usize) -> usize {
        let mut freed = 0;
        for _ in 0..nr {
            let mut list = self.list.lock(&self.counters, Counter::ListLocks);
            let Some(entry) = list.front().map(Arc::clone) else {
                break;
            };
            list.remove(&entry);
            self.len.fetch_sub(1, Relaxed);
            drop(list);
            self.counters.one(Counter::Scanned);
            self.unhash(&entry);
            freed += 1;
        }
        freed
    }
}

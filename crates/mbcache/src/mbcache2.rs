//! Policies `mbcache2` and `mbcache2-touch-fixed`: the rewrite without handles.
//!
//! Source: Jan Kara, "[PATCH 1/7] mbcache2: Reimplement mbcache", 15 December 2015, and the replies of
//! Andreas Grünbacher and Andreas Dilger. One hash table by key, one list by use. Nobody excludes anybody:
//! who has found an entry asks, under the lock of its block's count, whether it is still in the table,
//! and who changes or frees the block has taken it out under that lock.
//!
//! As posted, a touch hands the two ends of the list to the wrong sides: the list then begins with the
//! touched entry, which is the next to go. The two spellings differ in that alone.
//!
//! Differences: an entry that somebody removes before it is on the list does not get on it. In that
//! patch nothing bounds the number of entries but lack of memory; here `mb_max_entries` does, and 2²².

use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Number, AtomicUsize, Ordering::Relaxed};

use crate::cache::Created;
use crate::chains::Chains;
use crate::entry::{Entry, Key};
use crate::list::List;
use crate::lock::Lock;
use crate::options::{ENTRIES_MAX, OptionError, Options};
use crate::policy::Mechanism;
use crate::stats::{Counter, Counters};

/// In `flags`: it is in the table.
const HASHED: u32 = 1;

/// Where a touched entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// To the front.
    AsPosted,
    /// To the end.
    Fixed,
}

/// The cache. `state` of an entry is not used: `Arc` counts who has it.
#[derive(Debug)]
pub(crate) struct Mbcache2 {
    counters: Arc<Counters>,
    chains: Chains,
    /// `c_lru_list` under `c_lru_list_lock`.
    list: Lock<List>,
    touch: Touch,
    max: usize,
    len: AtomicUsize,
    next_seq: Number,
}

impl Mbcache2 {
    pub(crate) fn new(
        options: &Options,
        counters: Arc<Counters>,
        touch: Touch,
    ) -> Result<Self, OptionError> {
        Ok(Self {
            counters,
            chains: Chains::new(options.bucket_bits)?,
            list: Lock::default(),
            touch,
            max: options.max_entries as usize,
            len: AtomicUsize::new(0),
            next_seq: Number::new(0),
        })
    }

    fn unhash(&self, entry: &Entry) -> bool {
        let mut chain = self.chains.lock(&self.counters, entry.key.hash.into());
        entry.flags.store(0, Relaxed);
        chain.remove(entry)
    }
}

impl Mechanism for Mbcache2 {
    fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    fn max(&self) -> usize {
        self.max
    }

    fn entry_bytes(&self) -> usize {
        crate::CHAINED_ENTRY_BYTES
    }

    fn fixed_bytes(&self) -> usize {
        self.chains.bytes()
    }

    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        let has_hash = |entry: &Entry| entry.key.hash == key.hash;
        self.chains
            .find(&self.counters, key.hash.into(), after, has_hash)
    }

    fn put(&self, _: &Arc<Entry>) {}

    fn take(&self, entry: &Arc<Entry>, _: u32) -> bool {
        if entry.flags.load(Relaxed) & HASHED == 0 {
            return false;
        }
        self.counters.one(Counter::Touches);
        let mut list = self.list.lock(&self.counters, Counter::ListLocks);
        match self.touch {
            Touch::AsPosted => list.begin_with(entry),
            Touch::Fixed => list.move_to_back(entry),
        }
        true
    }

    fn create(&self, key: Key, value: u64, _: u32) -> Created {
        let full = match self.max {
            0 => ENTRIES_MAX as usize,
            max => max,
        };
        if self.len() >= full && self.scan(1, Counter::ShrunkSync) == 0 {
            return Created::Refused;
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
            entry.is(key, value)
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
            self.counters.one(Counter::Deletes);
        }
        Ok(())
    }

    fn scan(&self, nr: usize, why: Counter) -> usize {
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
        self.counters.add(why, freed as u64);
        freed
    }
}

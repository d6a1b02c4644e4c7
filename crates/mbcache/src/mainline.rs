//! Policy `mainline`: what Linux does today.
//!
//! Source: commits of Linux 4.6 to 6.x as the mailing lists tell them: the limit and the mark of use
//! (Jan Kara, 2015), the mark of room (`e_reusable`, Andreas Grünbacher and Tahsin Erdogan, 2017), flags
//! as single bits, `delete_or_get` and `wait_unused` (Jan Kara, 2022).
//!
//! An entry counts whoever holds it: the hash table one, each who has found it one, and who makes it
//! one more until it is on the list. Who wants it gone swaps "the table and me" for nothing; if somebody
//! else has found it that fails, and he waits, holding nothing. With `mb_max_entries` the worker is asked to drop a
//! sixteenth, with twice that whoever makes an entry drops 64 himself. Entries in use, or used since the
//! last look, go to the end of the list instead.
//!
//! Differences: the worker runs when the caller asks ([`crate::Cache::work`]); who waits is woken with
//! all who wait in this cache. In the kernel who waits still holds the entry, so that two of them, whom
//! only a damaged count of users brings there, wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64 as Number, AtomicUsize, Ordering::Relaxed};
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire};

use crate::cache::Created;
use crate::chains::Chains;
use crate::entry::{Entry, Key};
use crate::list::List;
use crate::lock::Lock;
use crate::options::{OptionError, Options};
use crate::policy::Mechanism;
use crate::stats::{Counter, Counters};
use crate::wait::WaitQueue;

/// `MBE_REFERENCED_B`: used since the list was scanned last.
const REFERENCED: u32 = 1;
/// `MBE_REUSABLE_B`: has room for a user.
const REUSABLE: u32 = 2;
/// What the hash table holds alone.
const HASHED: u64 = 1;
/// Entries that who makes one drops beyond twice the limit.
const SYNC_SHRINK: usize = 64;
/// Part of the entries that the worker drops.
const WORKER_PART: usize = 16;

/// The cache. `state` of an entry counts who holds it; it leaves the table when that becomes 0.
#[derive(Debug)]
pub(crate) struct Mainline {
    counters: Arc<Counters>,
    chains: Chains,
    /// `c_list` under `c_list_lock`.
    list: Lock<List>,
    unused: WaitQueue,
    max: usize,
    users_max: u32,
    len: AtomicUsize,
    next_seq: Number,
    work: AtomicBool,
}

impl Mainline {
    pub(crate) fn new(options: &Options, counters: Arc<Counters>) -> Result<Self, OptionError> {
        Ok(Self {
            counters,
            chains: Chains::new(options.bucket_bits)?,
            list: Lock::default(),
            unused: WaitQueue::default(),
            max: options.max_by_buckets(),
            users_max: options.users_max,
            len: AtomicUsize::new(0),
            next_seq: Number::new(0),
            work: AtomicBool::new(false),
        })
    }

    /// The entry of a pair, held.
    fn get(&self, key: Key, value: u64) -> Option<Arc<Entry>> {
        let is_held = |entry: &Entry| entry.is(key, value) && hold(entry);
        self.chains
            .find(&self.counters, key.hash.into(), None, is_held)
    }

    /// Takes an entry that nobody holds any more out of the table.
    fn unhash(&self, entry: &Entry) {
        self.chains
            .lock(&self.counters, entry.key.hash.into())
            .remove(entry);
    }

    /// Whether the table's and the caller's hold became none. Then nobody puts it, so that who waits is
    /// told here.
    fn end_held(&self, entry: &Entry) -> bool {
        let ended = end(entry, HASHED + 1);
        if ended {
            self.unused.wake_all(&self.counters);
        }
        ended
    }

    fn unlist(&self, entry: &Entry) {
        let mut list = self.list.lock(&self.counters, Counter::ListLocks);
        if list.remove(entry) {
            self.len.fetch_sub(1, Relaxed);
        }
    }
}

/// One holder more, unless the entry is on its way out.
fn hold(entry: &Entry) -> bool {
    let more = |held: u64| (held > 0).then_some(held + 1);
    entry.state.fetch_update(AcqRel, Acquire, more).is_ok()
}

/// Whether `from` holders became none.
fn end(entry: &Entry, from: u64) -> bool {
    let swapped = entry.state.compare_exchange(from, 0, AcqRel, Acquire);
    swapped.is_ok()
}

impl Mechanism for Mainline {
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
        self.chains
            .find(&self.counters, key.hash.into(), after, |entry| {
                let has_room = entry.flags.load(Relaxed) & REUSABLE != 0;
                entry.key.hash == key.hash && has_room && hold(entry)
            })
    }

    fn put(&self, entry: &Arc<Entry>) {
        // As long as others than the table hold it nobody is told.
        if entry.state.fetch_sub(1, AcqRel) <= HASHED + 1 {
            self.unused.wake_all(&self.counters);
        }
    }

    fn take(&self, entry: &Arc<Entry>, users: u32) -> bool {
        if users >= self.users_max {
            entry.flags.fetch_and(!REUSABLE, Relaxed);
        }
        self.counters.one(Counter::Touches);
        entry.flags.fetch_or(REFERENCED, Relaxed);
        self.put(entry);
        true
    }

    fn create(&self, key: Key, value: u64, users: u32) -> Created {
        let len = self.len();
        if len >= self.max {
            self.work.store(true, Relaxed);
        }
        if len >= self.max.saturating_mul(2) {
            self.scan(SYNC_SHRINK, Counter::ShrunkSync);
        }
        let flags = match users < self.users_max {
            true => REUSABLE,
            false => 0,
        };
        let seq = self.next_seq.fetch_add(1, Relaxed);
        // The second holder keeps it until it is on the list.
        let entry = Entry::new(key, value, seq, HASHED + 1, flags);
        let created = self.chains.create(&self.counters, &entry);
        if created != Created::Inserted {
            return created;
        }
        let listed = {
            let mut list = self.list.lock(&self.counters, Counter::ListLocks);
            let listed = list.push_back(&entry);
            self.len.fetch_add(usize::from(listed), Relaxed);
            listed
        };
        if !listed && self.end_held(&entry) {
            self.unhash(&entry);
            return Created::Refused;
        }
        self.put(&entry);
        Created::Inserted
    }

    fn remove(&self, key: Key, value: u64, _: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>> {
        let Some(entry) = self.get(key, value) else {
            return Ok(());
        };
        if !self.end_held(&entry) {
            // Not held while waiting: two who remove it would wait for each other.
            self.put(&entry);
            return Err(entry);
        }
        self.unlist(&entry);
        self.unhash(&entry);
        self.counters.one(Counter::Deletes);
        Ok(())
    }

    fn left(&self, key: Key, value: u64, _: u32) {
        if let Some(entry) = self.get(key, value) {
            entry.flags.fetch_or(REUSABLE, Relaxed);
            self.put(&entry);
        }
    }

    fn wait_unused(&self, entry: &Arc<Entry>) {
        let is_unused = || entry.state.load(Acquire) <= HASHED;
        self.unused.wait_until(&self.counters, is_unused);
    }

    fn scan(&self, nr: usize, why: Counter) -> usize {
        let mut freed = 0;
        let mut list = self.list.lock(&self.counters, Counter::ListLocks);
        for _ in 0..nr {
            let Some(entry) = list.front().map(Arc::clone) else {
                break;
            };
            self.counters.one(Counter::Scanned);
            if entry.flags.load(Relaxed) & REFERENCED != 0 || !end(&entry, HASHED) {
                entry.flags.fetch_and(!REFERENCED, Relaxed);
                list.move_to_back(&entry);
                self.counters.one(Counter::SecondChances);
                continue;
            }
            list.remove(&entry);
            self.len.fetch_sub(1, Relaxed);
            drop(list);
            self.unhash(&entry);
            freed += 1;
            list = self.list.lock(&self.counters, Counter::ListLocks);
        }
        drop(list);
        self.counters.add(why, freed as u64);
        freed
    }

    fn work(&self) -> usize {
        match self.work.swap(false, Relaxed) {
            true => self.scan(self.max / WORKER_PART, Counter::ShrunkWorker),
            false => 0,
        }
    }

    fn is_work_due(&self) -> bool {
        self.work.load(Relaxed)
    }
}

//! `mainline`: what Linux does today.
//!
//! Source: commits of Linux 4.6 to 6.x as the mailing lists describe them: the limit and the mark
//! of use (Jan Kara, 2015), the mark of room (`e_reusable`, Andreas Grünbacher and Tahsin Erdogan,
//! 2017), flags as single bits, `delete_or_get` and `wait_unused` (Jan Kara, 2022).
//!
//! An entry counts its holders: the hash table is one, each thread that has found it one, and the
//! thread that makes it one more until it is on the list. A thread that wants it gone swaps "the
//! table and me" for nothing; if another thread has found it that fails, and it waits, holding
//! nothing. With `mb_max_entries` the worker is asked to drop a sixteenth; with twice that, a
//! thread that makes an entry drops 64 itself. Entries in use, or used since the last look, go to
//! the end of the list instead.
//!
//! Differences: the worker runs in the thread that asks for it, or when the caller says; all
//! threads that wait in this cache are woken at once. In the kernel a waiting thread still holds
//! the entry, so that two of them, which only a damaged count of users brings there, wait for each
//! other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64 as Number, AtomicUsize, Ordering::Relaxed};
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire};

use uext4_mbcache::{Created, End, Entry, Index, Key, Stale, Usage};

use super::chains::{Chains, is};
use super::list::List;
use super::lock::Lock;
use super::policy::Options;
use super::stats::{Counter, Counters, Stats};
use super::wait::WaitQueue;
use super::{CHAINED_ENTRY_BYTES, Measured};

/// `MBE_REFERENCED_B`: used since the list was scanned last.
const REFERENCED: u32 = 1;
/// `MBE_REUSABLE_B`: has room for a user.
const REUSABLE: u32 = 2;
/// Held by the hash table alone.
const HASHED: u64 = 1;
/// Entries that a thread which makes one drops beyond twice the limit.
const SYNC_SHRINK: usize = 64;
/// Part of the entries that the worker drops.
const WORKER_PART: usize = 16;

/// When the worker runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Worker {
    /// After the creation that asks for it, in the same thread.
    #[default]
    InCreate,
    /// When the caller says so ([`Measured::work`]).
    ByCaller,
}

/// The index. `state` of an entry counts its holders; it leaves the table when that becomes 0.
#[derive(Debug)]
pub(super) struct Mainline {
    counters: Counters,
    chains: Chains,
    /// `c_list` under `c_list_lock`.
    list: Lock<List>,
    unused: WaitQueue,
    max: usize,
    users_max: u32,
    len: AtomicUsize,
    next_seq: Number,
    worker: Worker,
    /// The worker has something to do.
    work: AtomicBool,
}

impl Mainline {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            counters: Counters::default(),
            chains: Chains::new(options.chain_bits()),
            list: Lock::default(),
            unused: WaitQueue::default(),
            max: options.max_by_chains(),
            users_max: options.users_max,
            len: AtomicUsize::new(0),
            next_seq: Number::new(0),
            worker: options.worker,
            work: AtomicBool::new(false),
        }
    }

    /// The entry of a pair, held.
    fn get(&self, key: Key, value: u64) -> Option<Arc<Entry>> {
        let is_held = |entry: &Entry| is(entry, key, value) && hold(entry);
        self.chains
            .find(&self.counters, key.hash.into(), None, is_held)
    }

    /// One holder less.
    fn put(&self, entry: &Entry) {
        // As long as others than the table hold it none is woken.
        if entry.state.fetch_sub(1, AcqRel) <= HASHED + 1 {
            self.unused.wake_all();
        }
    }

    fn insert(&self, key: Key, value: u64, users: u32) -> Created {
        let len = self.len.load(Relaxed);
        if len >= self.max {
            self.work.store(true, Relaxed);
        }
        if len >= self.max.saturating_mul(2) {
            let freed = self.scan(SYNC_SHRINK);
            self.counters.add(Counter::ShrunkSync, freed as u64);
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

    /// Takes an entry without holders out of the table.
    fn unhash(&self, entry: &Entry) {
        self.chains
            .lock(&self.counters, entry.key.hash.into())
            .remove(entry);
    }

    /// Whether the table's and the caller's hold became none. Then no thread puts it, so that those
    /// that wait are woken here.
    fn end_held(&self, entry: &Entry) -> bool {
        let ended = end(entry, HASHED + 1);
        if ended {
            self.unused.wake_all();
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

impl Measured for Mainline {
    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }

    fn work(&self) -> usize {
        if !self.work.swap(false, Relaxed) {
            return 0;
        }
        let freed = self.scan(self.max / WORKER_PART);
        self.counters.add(Counter::ShrunkWorker, freed as u64);
        freed
    }
}

impl Index for Mainline {
    fn usage(&self) -> Usage {
        Usage {
            entries: self.len.load(Relaxed),
            max: self.max,
            entry_bytes: CHAINED_ENTRY_BYTES,
            fixed_bytes: self.chains.bytes(),
        }
    }

    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        self.chains
            .find(&self.counters, key.hash.into(), after, |entry| {
                let has_room = entry.flags.load(Relaxed) & REUSABLE != 0;
                entry.key.hash == key.hash && has_room && hold(entry)
            })
    }

    fn end(&self, found: &Arc<Entry>, how: End) -> Result<(), Stale> {
        if let End::Taken(users) = how {
            if users >= self.users_max {
                found.flags.fetch_and(!REUSABLE, Relaxed);
            }
            found.flags.fetch_or(REFERENCED, Relaxed);
        }
        self.put(found);
        Ok(())
    }

    fn create(&self, key: Key, value: u64, users: u32) -> Created {
        let created = self.insert(key, value, users);
        if self.worker == Worker::InCreate {
            self.work();
        }
        created
    }

    fn remove(&self, key: Key, value: u64, _: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>> {
        let Some(entry) = self.get(key, value) else {
            return Ok(());
        };
        if !self.end_held(&entry) {
            // Not held while waiting: two that remove it would wait for each other.
            self.put(&entry);
            return Err(entry);
        }
        self.unlist(&entry);
        self.unhash(&entry);
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
        self.unused.wait_until(is_unused);
    }

    fn scan(&self, nr: usize) -> usize {
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
        freed
    }
}

//! `mb1`: handles, exclusive or shared.
//!
//! Source: the kernel's mbcache of versions 3.15 to 4.5, after T. Makphaibulchoke's decoupling of
//! 2014, as "mbcache2: Reimplement mbcache" (Jan Kara, 15 December 2015) and the list describe it.
//!
//! Two hash tables, by key and by number. A thread that finds an entry has a shared handle while it
//! reads and compares. A thread that releases or changes a block needs its exclusive handle, and
//! sleeps until all others are gone, on the one queue there is: each wake-up is for all threads. An
//! entry in use is off the list of all entries, so each handle takes that list's lock twice. With
//! `mb_max_entries`, a thread that makes an entry walks the list, under its lock, to the first that
//! is not used, and drops that.
//!
//! Both kinds of handle are waited for: a search sleeps while another thread has the exclusive
//! handle, and that one has finished its own search and waits for no other handle. A thread that
//! goes on to the next entry has two handles for a moment: it gets the next before it gives the
//! last back.
//!
//! Differences: the kernel's list, its lock and the queue are one for all file systems, here one
//! for each cache. Making the subsystem and making the entry are two steps, so a few more may
//! come in between. A thread that had no handle because the entry was not there looks again
//! before the block goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Number, AtomicUsize, Ordering::Relaxed};

use parking_lot::MutexGuard;

use uext4_mbcache::{Created, End, Entry, Index, Key, Stale, Usage};

use super::chains::Chains;
use super::list::List;
use super::lock::Lock;
use super::policy::Options;
use super::stats::{Counter, Counters, Stats};
use super::wait::WaitQueue;
use super::{CHAINED_ENTRY_BYTES, Measured};

/// In `flags`: it is in both tables.
const HASHED: u32 = 1;
/// In `state`: a thread has the exclusive handle. Below, the number of handles.
const WRITER: u64 = 1 << 31;
/// In `state`: one thread that waits for a handle.
const QUEUED: u64 = 1 << 32;
/// `MB_CACHE_BG_LOCK`: locks for the states of entries.
const ENTRY_LOCKS: usize = 128;

/// A kind of handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handle {
    Shared,
    Exclusive,
}

impl Handle {
    fn weight(self) -> u64 {
        match self {
            Self::Shared => 1,
            Self::Exclusive => 1 + WRITER,
        }
    }

    /// Whether it can be had next to those that are out.
    fn is_free(self, used: u64) -> bool {
        match self {
            Self::Shared => used < WRITER,
            Self::Exclusive => used == 0,
        }
    }
}

fn used(state: u64) -> u64 {
    state % QUEUED
}

/// The cache. Locks: the list's, then a number's chain, a key's chain, an entry's; and the queue's
/// before an entry's.
#[derive(Debug)]
pub(super) struct Mb1 {
    counters: Counters,
    /// `c_index_hash`, by key.
    index: Chains,
    /// `c_block_hash`, by number.
    blocks: Chains,
    /// `mb_cache_lru_list` under `mb_cache_spinlock`.
    lru: Lock<List>,
    /// `mb_cache_bg_lock`.
    entry_locks: Box<[Lock<()>]>,
    /// `mb_cache_queue`.
    queue: WaitQueue,
    max: usize,
    len: AtomicUsize,
    next_seq: Number,
}

impl Mb1 {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            counters: Counters::default(),
            index: Chains::new(options.chain_bits()),
            blocks: Chains::new(options.chain_bits()),
            lru: Lock::default(),
            entry_locks: (0..ENTRY_LOCKS).map(|_| Lock::default()).collect(),
            queue: WaitQueue::default(),
            max: options.max_by_chains(),
            len: AtomicUsize::new(0),
            next_seq: Number::new(0),
        }
    }

    fn lock_entry(&self, entry: &Entry) -> MutexGuard<'_, ()> {
        let at = entry.seq as usize % ENTRY_LOCKS;
        self.entry_locks[at].lock(&self.counters, Counter::EntryLocks)
    }

    fn lock_lru(&self) -> MutexGuard<'_, List> {
        self.lru.lock(&self.counters, Counter::ListLocks)
    }

    /// Sleeps until the handle can be had. `false`, and nothing is had: the entry has gone
    /// meanwhile.
    fn acquire(&self, entry: &Arc<Entry>, handle: Handle) -> bool {
        let mut is_queued = false;
        self.queue.wait_until(|| {
            let _locked = self.lock_entry(entry);
            let mut state = entry.state.load(Relaxed);
            if is_queued {
                state -= QUEUED;
            }
            let is_free = handle.is_free(used(state));
            state += match is_free {
                true => handle.weight(),
                false => QUEUED,
            };
            is_queued = !is_free;
            entry.state.store(state, Relaxed);
            is_free
        });
        self.lock_lru().remove(entry);
        let is_hashed = entry.flags.load(Relaxed) & HASHED != 0;
        if !is_hashed {
            self.let_go_of(entry, handle);
        }
        is_hashed
    }

    /// Gives a handle back: all threads that wait for any handle are woken if one waits for this
    /// entry's, and an entry that is not used any more goes to the end of the list.
    fn let_go_of(&self, entry: &Arc<Entry>, handle: Handle) {
        let state = {
            let _locked = self.lock_entry(entry);
            let state = entry.state.load(Relaxed) - handle.weight();
            entry.state.store(state, Relaxed);
            state
        };
        if state >= QUEUED {
            self.queue.wake_all();
        }
        if used(state) == 0 {
            let mut lru = self.lock_lru();
            // A thread that takes a handle from here on takes the entry off the list after this.
            let is_idle = used(entry.state.load(Relaxed)) == 0;
            let is_hashed = entry.flags.load(Relaxed) & HASHED != 0;
            if is_idle && is_hashed {
                lru.remove(entry);
                // Without memory it stays off the list: only its removal makes it go.
                lru.push_back(entry);
            }
        }
    }

    /// Takes the first entry that is not used out of the tables and off the list, which is locked.
    fn evict_first(&self, lru: &mut List, walked: &mut u64) -> bool {
        let mut next = lru.front().map(Arc::clone);
        while let Some(entry) = next {
            *walked += 1;
            next = lru.after(&entry).map(Arc::clone);
            if self.unhash_idle(&entry) {
                lru.remove(&entry);
                self.len.fetch_sub(1, Relaxed);
                return true;
            }
        }
        false
    }

    /// Takes an entry out of both tables, if it is not used.
    fn unhash_idle(&self, entry: &Arc<Entry>) -> bool {
        let mut block = self.blocks.lock(&self.counters, entry.value);
        let mut index = self.index.lock(&self.counters, entry.key.hash.into());
        {
            let _locked = self.lock_entry(entry);
            if used(entry.state.load(Relaxed)) != 0 {
                return false;
            }
            entry.flags.store(0, Relaxed);
        }
        block.remove(entry);
        index.remove(entry);
        true
    }

    /// The entry of a number, without a handle.
    fn by_number(&self, value: u64) -> Option<Arc<Entry>> {
        let has_number = |entry: &Entry| entry.value == value;
        self.blocks.find(&self.counters, value, None, has_number)
    }

    /// An entry for which there is a handle; entries that go meanwhile are not it.
    fn find_after(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        loop {
            let has_hash = |entry: &Entry| entry.key.hash == key.hash;
            let entry = self
                .index
                .find(&self.counters, key.hash.into(), after, has_hash)?;
            if self.acquire(&entry, Handle::Shared) {
                return Some(entry);
            }
        }
    }
}

impl Measured for Mb1 {
    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl Index for Mb1 {
    fn usage(&self) -> Usage {
        Usage {
            entries: self.len.load(Relaxed),
            max: self.max,
            // One more chain.
            entry_bytes: CHAINED_ENTRY_BYTES + 16,
            fixed_bytes: self.index.bytes() + self.blocks.bytes(),
        }
    }

    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        self.find_after(key, after)
    }

    fn end(&self, found: &Arc<Entry>, _: End) -> Result<(), Stale> {
        // The handle is the caller's: if it is exclusive there is no other, else none is exclusive.
        let handle = match used(found.state.load(Relaxed)) >= WRITER {
            true => Handle::Exclusive,
            false => Handle::Shared,
        };
        self.let_go_of(found, handle);
        Ok(())
    }

    fn create(&self, key: Key, value: u64, _: u32) -> Created {
        if self.len.load(Relaxed) >= self.max {
            let mut walked = 0;
            let evicted = self.evict_first(&mut self.lock_lru(), &mut walked);
            self.counters.add(Counter::AllocWalk, walked);
            self.counters.add(Counter::ShrunkSync, evicted.into());
        }
        let seq = self.next_seq.fetch_add(1, Relaxed);
        // Born with its exclusive handle.
        let entry = Entry::new(key, value, seq, Handle::Exclusive.weight(), HASHED);
        let mut steps = 0;
        let mut block = self.blocks.lock(&self.counters, value);
        let is_there = block.walk(None).any(|other| {
            steps += 1;
            other.value == value
        });
        let mut inserted = false;
        if !is_there && block.insert(&entry) {
            let mut index = self.index.lock(&self.counters, key.hash.into());
            inserted = index.insert(&entry);
            if !inserted {
                block.remove(&entry);
            }
        }
        drop(block);
        self.counters.chain(steps);
        if !inserted {
            return match is_there {
                true => Created::Present,
                false => Created::Refused,
            };
        }
        self.len.fetch_add(1, Relaxed);
        self.let_go_of(&entry, Handle::Exclusive);
        Created::Inserted
    }

    fn hold(&self, _: Key, value: u64) -> Option<Arc<Entry>> {
        self.by_number(value)
            .filter(|entry| self.acquire(entry, Handle::Exclusive))
    }

    fn remove(&self, _: Key, value: u64, held: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>> {
        let Some(entry) = held else {
            // Another user may have read the thing and let it in since `hold`, and another thread
            // may have found it then. The caller waits for nothing, and comes back with a handle.
            return self.by_number(value).map_or(Ok(()), Err);
        };
        let mut block = self.blocks.lock(&self.counters, entry.value);
        let mut index = self.index.lock(&self.counters, entry.key.hash.into());
        entry.flags.store(0, Relaxed);
        block.remove(entry);
        index.remove(entry);
        drop((block, index));
        self.len.fetch_sub(1, Relaxed);
        self.let_go_of(entry, Handle::Exclusive);
        Ok(())
    }

    fn scan(&self, nr: usize) -> usize {
        let mut freed = 0;
        for _ in 0..nr {
            let mut walked = 0;
            let evicted = self.evict_first(&mut self.lock_lru(), &mut walked);
            self.counters.add(Counter::Scanned, walked);
            if !evicted {
                break;
            }
            freed += 1;
        }
        freed
    }
}

//! A cache: what its users call, and what happens whatever the index.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use uext4_tunables::TunableError;

use crate::content::Content;
use crate::entry::{Entry, Key};
use crate::index::{Created, End, Index, Stale};
use crate::one_donor::OneDonor;
use crate::options::Options;
use crate::stats::{Counter, Counters, Stats};
use crate::trace;

/// The batch in which callers ask [`Cache::scan`], in entries.
pub const BATCH: usize = 128;

/// Things with equal content, by the hash of that: blocks of attributes, or inodes of values.
pub struct Cache {
    users_max: u32,
    counters: Arc<Counters>,
    /// Entries for which there is memory.
    cap: AtomicUsize,
    index: Arc<dyn Index>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("entries", &self.count())
            .finish_non_exhaustive()
    }
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`TunableError`] for an option out of its range.
    pub fn new(options: &Options) -> Result<Self, TunableError> {
        options.check()?;
        let counters = Arc::new(Counters::new());
        let index = Arc::new(OneDonor::new(options, Arc::clone(&counters)));
        Ok(Self::on(index, options.users_max, counters))
    }

    /// A cache with another index, which is empty and has no other cache; a thing has at most this
    /// many users.
    pub fn with_index(index: Arc<dyn Index>, users_max: u32) -> Self {
        Self::on(index, users_max, Arc::new(Counters::new()))
    }

    fn on(index: Arc<dyn Index>, users_max: u32, counters: Arc<Counters>) -> Self {
        Self {
            users_max,
            counters,
            cap: AtomicUsize::new(usize::MAX),
            index,
        }
    }

    /// The key of a content: `hash` is the one on disk, `body` all that must be equal.
    pub fn key<'a>(&self, hash: u32, body: impl Into<Content<'a>>) -> Key {
        self.index.key(hash, body.into(), None)
    }

    /// A thing that may have this content and room for a user. Called without the lock of any
    /// count.
    pub fn find(&self, key: Key) -> Option<Candidate<'_>> {
        self.counters.one(Counter::Finds);
        let found = self.candidate(self.index.find(key, None));
        self.counters.add(Counter::Hits, u64::from(found.is_some()));
        found
    }

    fn candidate(&self, entry: Option<Arc<Entry>>) -> Option<Candidate<'_>> {
        let entry = entry?;
        self.counters.one(Counter::Compares);
        trace::hit(&entry);
        Some(Candidate {
            cache: self,
            entry: Some(entry),
        })
    }

    /// A thing of this content was made, and has this many users. Called by one of its users, or
    /// under the lock of its count.
    pub fn created(&self, key: Key, value: u64, users: u32) -> Created {
        let cap = self.cap.load(Relaxed);
        if self.count() >= cap {
            self.scan(BATCH);
        }
        let created = match self.count() < cap {
            true => self.index.create(key, value, users),
            false => Created::Refused,
        };
        self.counters.one(match created {
            Created::Inserted => Counter::Creates,
            Created::Present => Counter::Ebusy,
            Created::Refused => Counter::Refused,
        });
        trace::create(key, value, users, created);
        created
    }

    /// A thing was read: its hash on disk and its content, its number, and its users. Called by one
    /// of its users. A thing that is read for the first time is refused, before its content is
    /// hashed and its users are asked for.
    pub fn seen(&self, hash: u32, body: &[u8], value: u64, users: impl FnOnce() -> u32) -> Created {
        if !self.index.admits(value) {
            self.counters.one(Counter::GhostRefused);
            return Created::Refused;
        }
        self.created(self.key(hash, body), value, users())
    }

    /// A user of this thing is about to go, or to change it. Called before the lock of the thing's
    /// count is taken, by a thread that has no [`Candidate`].
    pub fn release(&self, key: Key, value: u64) -> Release<'_> {
        Release {
            cache: self,
            what: What::Known(key),
            value,
            held: self.index.hold(key, value),
        }
    }

    /// [`release`](Self::release) of a thing that was read: its hash on disk and its content, which
    /// is hashed only if it has to be.
    pub fn release_read<'a>(&'a self, hash: u32, body: &'a [u8], value: u64) -> Release<'a> {
        let key = Key { hash, content: 0 };
        Release {
            cache: self,
            what: What::Read(hash, body),
            value,
            held: self.index.hold(key, value),
        }
    }

    /// Entries.
    pub fn count(&self) -> usize {
        self.index.usage().entries
    }

    /// Looks at up to `nr` entries and drops those that may go, because memory is short. Returns
    /// how many it dropped; 0 does not mean that nothing is left.
    pub fn scan(&self, nr: usize) -> usize {
        let freed = self.index.scan(nr);
        self.counters.add(Counter::ShrunkPressure, freed as u64);
        trace::evict(freed, self.count());
        freed
    }

    /// About how many bytes it takes.
    pub fn memory(&self) -> usize {
        let usage = self.index.usage();
        let entries = usage.entries.saturating_mul(usage.entry_bytes);
        entries.saturating_add(usage.fixed_bytes)
    }

    /// About how many bytes an entry takes.
    pub fn entry_memory(&self) -> usize {
        self.index.usage().entry_bytes
    }

    /// Sets how many bytes there are for entries. With more, some entries go for each that comes;
    /// if none may go, it is refused.
    pub fn set_limit(&self, bytes: usize) {
        self.cap.store(bytes / self.entry_memory(), Relaxed);
    }

    /// The counters now. What other threads are doing may be missing.
    pub fn stats(&self) -> Stats {
        let usage = self.index.usage();
        Stats {
            entries: usage.entries as u64,
            max: usage.max as u64,
            memory: self.memory() as u64,
            ..self.counters.snapshot()
        }
    }
}

/// A thing that was found, to be read and compared. It is not freed, and its content does not
/// change, before this is dropped or [`taken`](Self::taken).
#[derive(Debug)]
#[must_use]
pub struct Candidate<'a> {
    cache: &'a Cache,
    /// `None` when its end has been reported.
    entry: Option<Arc<Entry>>,
}

impl<'a> Candidate<'a> {
    /// Its number.
    pub fn value(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.value)
    }

    /// The next thing of this key: this one has another content, is full, or cannot be read. Called
    /// without the lock of any count.
    pub fn next(mut self) -> Option<Candidate<'a>> {
        let entry = self.entry.take()?;
        let index = &self.cache.index;
        let next = index.find(entry.key, Some(&entry));
        // A thing that gets no user is never stale.
        _ = index.end(&entry, End::Unused);
        self.cache.candidate(next)
    }

    /// It has as many users as it may, or has no room for as many as come at once. Called under the
    /// lock of its count. Another of its content may be found in its place.
    pub fn set_full(&self) {
        self.cache.counters.one(Counter::FoundSaturated);
        if let Some(entry) = &self.entry {
            self.cache.index.set_full(entry);
        }
    }

    /// It has the content and gets a user: `users` now. Called under the lock of its count, before
    /// the count changes; the caller then changes it.
    ///
    /// # Errors
    /// [`Stale`]: it must not get a user. The shipped index never returns this.
    pub fn taken(mut self, users: u32) -> Result<(), Stale> {
        let entry = self.entry.take().ok_or(Stale)?;
        let cache = self.cache;
        let taken = cache.index.end(&entry, End::Taken(users));
        trace::reuse(&entry, users, taken.is_ok());
        cache.counters.one(match taken {
            Ok(()) => Counter::ReuseOk,
            Err(Stale) => Counter::ReuseRetry,
        });
        if taken.is_ok() && users >= cache.users_max {
            cache.counters.one(Counter::Saturated);
        }
        taken
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            _ = self.cache.index.end(&entry, End::Unused);
        }
    }
}

/// What is known of a thing's content.
#[derive(Clone, Copy, Debug)]
enum What<'a> {
    Known(Key),
    /// Its hash on disk and the content.
    Read(u32, &'a [u8]),
}

/// A user of a thing is about to go, or to change it.
#[derive(Debug)]
#[must_use]
pub struct Release<'a> {
    cache: &'a Cache,
    what: What<'a>,
    value: u64,
    held: Option<Arc<Entry>>,
}

impl<'a> Release<'a> {
    fn key(&self) -> Key {
        match self.what {
            What::Known(key) => key,
            What::Read(hash, body) => self.cache.index.key(hash, body.into(), Some(self.value)),
        }
    }

    /// The thing has no other user and is to be freed, or changed. Called under the lock of its
    /// count. After this no thread finds it, and none that has found it can become a user.
    ///
    /// # Errors
    /// [`InUse`]: another thread has found it and may become a user. Nothing was removed.
    pub fn remove(mut self) -> Result<(), InUse<'a>> {
        let held = self.held.take();
        let cache = self.cache;
        let (key, value) = (self.key(), self.value);
        let removed = cache.index.remove(key, value, held.as_ref());
        trace::delete(key.hash, value, removed.is_ok());
        removed.map_err(|entry| {
            cache.counters.one(Counter::DeletesLost);
            InUse { cache, entry }
        })
    }

    /// The thing has other users left, this many, at least one. Called under the lock of its count.
    pub fn left(self, users: u32) {
        // Only a thing that was full changes for the index: it has room again.
        if users.checked_add(1) == Some(self.cache.users_max) {
            let key = self.key();
            self.cache.index.left(key, self.value, users);
        }
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            _ = self.cache.index.end(&held, End::Unused);
        }
    }
}

/// Another thread has found a thing that was to be freed.
#[derive(Debug)]
#[must_use]
pub struct InUse<'a> {
    cache: &'a Cache,
    entry: Arc<Entry>,
}

impl InUse<'_> {
    /// Waits until no thread has found it, or it has another user; then its users are to be counted
    /// again. Called without the lock of its count, which the other thread may need.
    pub fn wait(self) {
        self.cache.counters.one(Counter::WaitsUnused);
        trace::wait(&self.entry);
        self.cache.index.wait_unused(&self.entry);
    }
}

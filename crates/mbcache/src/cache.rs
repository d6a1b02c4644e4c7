//! A cache: one way in for all policies.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rapidhash::v3::RapidSecrets;

use crate::content::content_hash;
use crate::entry::{Entry, Key};
use crate::mainline::Mainline;
use crate::mb1::Mb1;
use crate::mbcache2::{Mbcache2, Touch};
use crate::one_donor::OneDonor;
use crate::options::{OptionError, Options};
use crate::policy::{Mechanism, Policy};
use crate::stats::{Counter, Counters, Stats};
use crate::trace;

/// The batch in which callers ask [`Cache::scan`], in entries.
pub const BATCH: usize = 128;

/// What became of an entry that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is in the cache.
    Inserted,
    /// Another one serves: of the same thing, or, with one entry a content, of an equal one.
    Present,
    /// There is no room or no memory for it, or too little is known of it.
    Refused,
}

/// Things with equal content, by the hash of that: blocks of attributes, or inodes of values.
pub struct Cache {
    policy: Policy,
    users_max: u32,
    secrets: RapidSecrets,
    counters: Arc<Counters>,
    /// Entries for which there is memory.
    cap: AtomicUsize,
    mechanism: Box<dyn Mechanism>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("policy", &self.policy)
            .field("entries", &self.mechanism.len())
            .finish_non_exhaustive()
    }
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// [`OptionError::Tunable`], [`OptionError::NoMemory`].
    pub fn new(options: &Options) -> Result<Self, OptionError> {
        options.check()?;
        let counters = Arc::new(Counters::new());
        let shared = Arc::clone(&counters);
        let mechanism: Box<dyn Mechanism> = match options.policy {
            Policy::Mb1 => Box::new(Mb1::new(options, shared)?),
            Policy::Mbcache2 => Box::new(Mbcache2::new(options, shared, Touch::AsPosted)?),
            Policy::Mbcache2TouchFixed => Box::new(Mbcache2::new(options, shared, Touch::Fixed)?),
            Policy::Mainline => Box::new(Mainline::new(options, shared)?),
            Policy::OneDonor => Box::new(OneDonor::new(options, shared)),
        };
        Ok(Self {
            policy: options.policy,
            users_max: options.users_max,
            secrets: RapidSecrets::seed(options.seed),
            counters,
            cap: AtomicUsize::new(usize::MAX),
            mechanism,
        })
    }

    /// Its policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The key of a content: `hash` is the one on disk, `body` all that must be equal. Looks at `body`
    /// only under policies that have a hash of their own.
    pub fn key(&self, hash: u32, body: &[u8]) -> Key {
        let content = match self.mechanism.needs_content() {
            true => {
                self.counters.one(Counter::ContentHashes);
                content_hash(body, &self.secrets)
            }
            false => 0,
        };
        Key { hash, content }
    }

    /// A thing that may have this content and room for a user. May sleep, under `mb1`: until nobody
    /// holds it exclusively.
    pub fn find(&self, key: Key) -> Option<Candidate<'_>> {
        self.counters.one(Counter::Finds);
        let found = self.candidate(self.mechanism.find(key, None));
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

    /// A thing of this content was made, and has so many users. Called by who is a user, or under the
    /// lock of the thing's count.
    pub fn created(&self, key: Key, value: u64, users: u32) -> Created {
        let cap = self.cap.load(Relaxed);
        if self.mechanism.len() >= cap {
            self.scan(BATCH);
        }
        let created = match self.mechanism.len() < cap {
            true => self.mechanism.create(key, value, users),
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

    /// A thing was read: its hash on disk and its content, its number, and its users. Called by who is
    /// a user. Policies may leave it out, before they look at the body or ask for the users.
    pub fn seen(&self, hash: u32, body: &[u8], value: u64, users: impl FnOnce() -> u32) -> Created {
        if !self.mechanism.admits(value) {
            self.counters.one(Counter::GhostRefused);
            return Created::Refused;
        }
        self.created(self.key(hash, body), value, users())
    }

    /// Somebody is to be a user of this thing no more, or to change it as its only user. May sleep, under
    /// `mb1`: until nobody else has found it. So it is called before the lock of the thing's count is
    /// taken, and by nobody who has found the same thing.
    pub fn release(&self, key: Key, value: u64) -> Release<'_> {
        Release {
            cache: self,
            what: What::Known(key),
            value,
            held: self.mechanism.hold(key, value),
        }
    }

    /// The same of a thing that was read: its hash on disk and its content, which is hashed only if it
    /// has to be.
    pub fn release_read<'a>(&'a self, hash: u32, body: &'a [u8], value: u64) -> Release<'a> {
        let key = Key { hash, content: 0 };
        Release {
            cache: self,
            what: What::Read(hash, body),
            value,
            // Who has handles goes by the hash on disk and the number.
            held: self.mechanism.hold(key, value),
        }
    }

    /// Does what the kernel leaves to a worker, if there is anything; answers how many entries went.
    pub fn work(&self) -> usize {
        let freed = self.mechanism.work();
        trace::evict(freed, self.count());
        freed
    }

    /// Whether [`work`](Self::work) has something to do.
    pub fn is_work_due(&self) -> bool {
        self.mechanism.is_work_due()
    }

    /// Entries.
    pub fn count(&self) -> usize {
        self.mechanism.len()
    }

    /// Looks at up to `nr` entries and drops what may go, because memory is short. Answers how many
    /// went; 0 does not mean that nothing is left.
    pub fn scan(&self, nr: usize) -> usize {
        let freed = self.mechanism.scan(nr, Counter::ShrunkPressure);
        trace::evict(freed, self.count());
        freed
    }

    /// About how many bytes it takes.
    pub fn memory(&self) -> usize {
        let entries = self.count().saturating_mul(self.entry_memory());
        entries.saturating_add(self.mechanism.fixed_bytes())
    }

    /// About how many bytes an entry takes here.
    pub fn entry_memory(&self) -> usize {
        self.mechanism.entry_bytes()
    }

    /// Sets how many bytes there are for entries: beyond, some go for each that comes, and if none
    /// may go it does not come.
    pub fn set_limit(&self, bytes: usize) {
        self.cap.store(bytes / self.entry_memory(), Relaxed);
    }

    /// The counters now. Those of other threads' work under way may lag.
    pub fn stats(&self) -> Stats {
        Stats {
            entries: self.count() as u64,
            max: self.mechanism.max() as u64,
            memory: self.memory() as u64,
            ..self.counters.snapshot()
        }
    }

    /// Switches statistics on or off; they are on at first.
    pub fn set_stats(&self, on: bool) {
        self.counters.switch(on);
    }
}

/// A thing that was found, to be read and compared. As long as this is kept, nobody is told that it may
/// be freed — but under `mbcache2`, where [`taken`](Self::taken) says whether that has happened.
#[derive(Debug)]
#[must_use]
pub struct Candidate<'a> {
    cache: &'a Cache,
    /// `None` once it is let go.
    entry: Option<Arc<Entry>>,
}

/// The thing may be freed already: search again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was found is not in the cache any more")]
pub struct Stale;

impl<'a> Candidate<'a> {
    /// Its number.
    pub fn value(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.value)
    }

    /// The next thing of this key: this one has another content, is full, or cannot be read. May sleep,
    /// under `mb1`, as [`Cache::find`].
    pub fn next(mut self) -> Option<Candidate<'a>> {
        let entry = self.entry.take()?;
        let mechanism = &self.cache.mechanism;
        let next = mechanism.find(entry.key, Some(&entry));
        mechanism.put(&entry);
        self.cache.candidate(next)
    }

    /// It has as many users as it may, or has no room for as many as come at once; which is said under the
    /// lock of its count. Another of its content may be found in its place.
    pub fn is_full(&self) {
        self.cache.counters.one(Counter::FoundSaturated);
        if let Some(entry) = &self.entry {
            self.cache.mechanism.is_full(entry);
        }
    }

    /// It has the content and gets a user: `users` now. Called under the lock of its count, before the
    /// count changes, and the caller goes on to change it.
    ///
    /// # Errors
    /// [`Stale`]: it must not get a user.
    pub fn taken(mut self, users: u32) -> Result<(), Stale> {
        let Some(entry) = self.entry.take() else {
            return Err(Stale);
        };
        let cache = self.cache;
        let taken = cache.mechanism.take(&entry, users);
        trace::reuse(&entry, users, taken);
        if !taken {
            cache.counters.one(Counter::ReuseRetry);
            return Err(Stale);
        }
        cache.counters.one(Counter::ReuseOk);
        if users >= cache.users_max {
            cache.counters.one(Counter::Saturated);
        }
        Ok(())
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.cache.mechanism.put(&entry);
        }
    }
}

/// What is known of a thing's content.
#[derive(Clone, Copy, Debug)]
enum What<'a> {
    Known(Key),
    Read(u32, &'a [u8]),
}

/// Somebody is about to be a user of a thing no more.
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
            What::Read(hash, body) => match self.cache.mechanism.content_of(self.value) {
                Some(content) => Key { hash, content },
                None => self.cache.key(hash, body),
            },
        }
    }

    /// The thing has no other user and is to be freed, or changed. Called under the lock of its count.
    /// After this nobody finds it, and nobody who has found it can become a user.
    ///
    /// # Errors
    /// [`InUse`]: somebody has found it and may become a user. Nothing has changed.
    pub fn remove(mut self) -> Result<(), InUse<'a>> {
        let held = self.held.take();
        let cache = self.cache;
        let (key, value) = (self.key(), self.value);
        let removed = cache.mechanism.remove(key, value, held.as_ref());
        trace::delete(key.hash, value, removed.is_ok());
        removed.map_err(|entry| {
            cache.counters.one(Counter::DeletesLost);
            InUse { cache, entry }
        })
    }

    /// The thing has other users left, so many, at least one. Called under the lock of its count.
    pub fn left(self, users: u32) {
        // There is nothing to say of others: only one that was full has room again.
        if users.checked_add(1) == Some(self.cache.users_max) {
            let key = self.key();
            self.cache.mechanism.left(key, self.value, users);
        }
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.cache.mechanism.let_go(&held);
        }
    }
}

/// Somebody has found a thing that was to be freed.
#[derive(Debug)]
#[must_use]
pub struct InUse<'a> {
    cache: &'a Cache,
    entry: Arc<Entry>,
}

impl InUse<'_> {
    /// Waits until nobody has found it; then its users are to be counted again. Called without the
    /// lock of its count, which whoever has found it may need.
    pub fn wait(self) {
        self.cache.counters.one(Counter::WaitsUnused);
        trace::wait(&self.entry);
        self.cache.mechanism.wait_unused(&self.entry);
    }
}

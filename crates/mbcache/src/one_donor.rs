//! The shipped index: one thing of each content, the *donor*, serves all searches.
//!
//! ```text
//! state of an entry    GONE │ FULL │ pending: found, not yet users │ room: users it may still get
//! find                 room − 1, pending + 1      by compare-and-swap, without a lock
//! end, unused          room + 1, pending − 1
//! end, with n users               pending − 1;    room = max − n − pending: the truth
//! remove               pending = 0 → GONE         else room = max − 1 − pending; the caller waits
//!                                                 until pending = 0, or it has another user
//! no room, none found             → GONE          a spare replaces it, or the next that is created
//! ```
//!
//! The key is a hash of all of the content with 64 bits, seeded for each mount: two contents with
//! one key are not met in practice, and cannot be made on purpose. One entry of a key is the donor,
//! so a search looks at one entry, whatever the number of equal things.
//!
//! Other things of the content that have room (they were full and are not any more, or were created
//! while all room of the donor was reserved) are *spares*, 1024 of a content at most. A spare is an
//! entry like any other. When the donor has no room, the oldest spare that has some replaces it.
//!
//! A state stays GONE, and such an entry is about to leave the table. An entry that is found is not
//! dropped: so the table knows of each thread that may become a user. A search takes no lock and
//! may miss an entry while its part of the table changes, which costs sharing. A thread that
//! removes a thing must know whether it is there, and looks under the part's lock.
//!
//! What is made comes in, as a spare if there is a donor; what is read comes in when it is read for
//! the second time (`ghost.rs`). A content is hashed again for its removal only if its hash is not
//! remembered (`memo.rs`).
//!
//! Entries are in parts by key. Each part has a clock with marks of use from 0 to 3, and drops one
//! entry for each that comes when all parts together have `mb_max_entries`. A hand passes 256
//! entries at most; then the next that is not found goes.
//!
//! Why so: Linux passes over equal blocks that are full of users one by one, knows 32 bits of hash
//! before it reads a block, which can be made to collide, takes a lock a search and two or three
//! for an entry that comes or goes, and has the same number of entries whatever the file system.
//! Removal asks whether any thread has *found* the thing, not whether `room` says that it has one
//! user: `room` may lag when a thing comes in by being read, and the caller has counted the users.
//!
//! Source: of our own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Number, AtomicUsize};
use std::sync::atomic::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use parking_lot::MutexGuard;
use rapidhash::v3::RapidSecrets;
use rustc_hash::FxHashMap;

use crate::content::{Content, content_hash};
use crate::entry::{Entry, Key};
use crate::ghost::Ghost;
use crate::index::{Created, End, Index, Stale, Usage};
use crate::list::List;
use crate::lock::Lock;
use crate::memo::Memo;
use crate::options::Options;
use crate::stats::{Counter, Counters};
use crate::table::{Owned, Table};
use crate::wait::WaitQueue;

/// It takes part in nothing any more.
const GONE: u64 = 1 << 63;
/// It has as many users as it may, whatever `room` says.
const FULL: u64 = 1 << 62;
/// One thread that has found it.
const PENDING: u64 = 1 << 32;
/// Most marks of use.
const USES_MAX: u32 = 3;
/// Most parts; a power of two.
const PARTS: usize = 64;
/// Least entries a part has room for.
const PART_MIN: usize = 16;
/// Entries that a hand passes at most before it takes one that was used.
const HAND_MAX: usize = 256;
/// Spares of a content at most.
const SPARES_MAX: usize = 1024;
/// About what an entry takes: itself, its place in the table and on the clock, and what the
/// allocator of memory adds.
const ENTRY_BYTES: usize = size_of::<Entry>() + 16 + Table::ENTRY_BYTES + 24 + 2 * 16;

fn pending(state: u64) -> u64 {
    state % FULL / PENDING
}

fn room(state: u64) -> u64 {
    state % PENDING
}

/// A part: some contents' entries. They come and go under the shelf's lock.
#[derive(Debug)]
struct Part {
    donors: Table,
    shelf: Lock<Shelf>,
    /// Contents with spares: read without the lock.
    with_spares: AtomicUsize,
}

/// The donors as a thread with the lock has them, the clock of the part's entries with the hand at
/// its front, and the spares of each content by age. A content that has spares has a donor.
#[derive(Debug)]
struct Shelf {
    donors: Owned,
    clock: List,
    spares: FxHashMap<u64, Vec<Arc<Entry>>>,
}

/// The index. No other lock is taken under a part's.
#[derive(Debug)]
pub(crate) struct OneDonor {
    counters: Arc<Counters>,
    secrets: RapidSecrets,
    parts: Box<[Part]>,
    ghost: Ghost,
    memo: Memo,
    unused: WaitQueue,
    max: usize,
    users_max: u64,
    len: AtomicUsize,
    next_seq: Number,
    /// The part that is scanned next.
    hand: AtomicUsize,
}

impl Default for Part {
    fn default() -> Self {
        let (donors, owned) = Table::new();
        let shelf = Shelf {
            donors: owned,
            clock: List::default(),
            spares: FxHashMap::default(),
        };
        Self {
            donors,
            shelf: Lock::new(shelf),
            with_spares: AtomicUsize::new(0),
        }
    }
}

impl Part {
    /// The entry of a thing, if it is not gone. With the shelf's lock, so that it is not missed.
    fn entry<'a>(&self, shelf: &'a Shelf, content: u64, value: u64) -> Option<&'a Arc<Entry>> {
        let is_it = |entry: &&Arc<Entry>| entry.value == value && !is_gone(entry);
        let donor = shelf.donors.get(content)?;
        if is_it(&donor) {
            return Some(donor);
        }
        if self.with_spares.load(Relaxed) == 0 {
            return None;
        }
        shelf.spares.get(&content)?.iter().find(is_it)
    }

    /// Takes an entry from where it is; the oldest spare with room takes the donor's place.
    fn take_out(&self, shelf: &mut Shelf, entry: &Arc<Entry>) {
        let content = entry.key.content;
        let Some(spares) = shelf.spares.get_mut(&content) else {
            shelf.donors.remove(&self.donors, entry);
            return;
        };
        match spares.iter().position(|spare| Arc::ptr_eq(spare, entry)) {
            Some(at) => _ = spares.remove(at),
            None => {
                let next = spares.iter().position(|spare| has_room(state(spare)));
                let next = next.unwrap_or(0);
                // Without memory for that it stays where it is found.
                if shelf.donors.replace(&self.donors, entry, &spares[next]) {
                    spares.remove(next);
                }
            }
        }
        if spares.is_empty() {
            shelf.spares.remove(&content);
            self.with_spares.fetch_sub(1, Relaxed);
        }
    }

    /// Puts an entry on the shelf and into the table, or among the spares of its donor. `false` if
    /// there is no memory, or there are spares enough.
    fn put_in(&self, shelf: &mut Shelf, entry: &Arc<Entry>) -> bool {
        let content = entry.key.content;
        let has_donor = shelf.donors.get(content).is_some();
        let spares = shelf.spares.get(&content).map_or(0, Vec::len);
        if spares >= SPARES_MAX || !shelf.clock.push_back(entry) {
            return false;
        }
        if !has_donor {
            let is_in = shelf.donors.insert(&self.donors, entry);
            return is_in || !shelf.clock.remove(entry);
        }
        if spares == 0 {
            self.with_spares.fetch_add(1, Relaxed);
        }
        shelf
            .spares
            .entry(content)
            .or_default()
            .push(Arc::clone(entry));
        true
    }
}

fn state(entry: &Entry) -> u64 {
    entry.state.load(Acquire)
}

fn has_room(state: u64) -> bool {
    state & (GONE | FULL) == 0 && room(state) > 0
}

fn is_gone(entry: &Entry) -> bool {
    state(entry) & GONE != 0
}

impl OneDonor {
    pub(crate) fn new(options: &Options, counters: Arc<Counters>) -> Self {
        let max = options.max();
        let parts = (max / PART_MIN).clamp(1, PARTS);
        // Down to a power of two.
        let parts = 1 << parts.ilog2();
        Self {
            counters,
            secrets: RapidSecrets::seed(options.seed),
            parts: (0..parts).map(|_| Part::default()).collect(),
            ghost: Ghost::new(),
            memo: Memo::new(),
            unused: WaitQueue::default(),
            max,
            users_max: options.users_max.into(),
            len: AtomicUsize::new(0),
            next_seq: Number::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    fn part(&self, content: u64) -> &Part {
        // The bits above those that choose a place in the part's table.
        &self.parts[(content >> 56) as usize % self.parts.len()]
    }

    fn lock<'a>(&self, part: &'a Part) -> MutexGuard<'a, Shelf> {
        part.shelf.lock(&self.counters)
    }

    /// Changes a state; `None` if `f` says that it is to stay. Answers what it was and what it is.
    fn change(&self, entry: &Entry, f: impl Fn(u64) -> Option<u64>) -> Option<(u64, u64)> {
        let mut state = entry.state.load(Acquire);
        loop {
            let next = f(state)?;
            match entry.state.compare_exchange(state, next, AcqRel, Acquire) {
                Ok(_) => return Some((state, next)),
                Err(now) => {
                    self.counters.one(Counter::SwapsLost);
                    state = now;
                }
            }
        }
    }

    /// Ends that an entry is found: `f` changes its state otherwise. Answers what it is then.
    fn end_found(&self, entry: &Arc<Entry>, f: impl Fn(u64) -> u64) -> u64 {
        let changed = self.change(entry, |state| {
            let state = f(state - PENDING);
            let is_done = pending(state) == 0 && (state & FULL != 0 || room(state) == 0);
            Some(if is_done { state | GONE } else { state })
        });
        let now = changed.map_or(GONE, |(_, now)| now);
        if now & GONE != 0 {
            // Out of the table, and off its clock.
            let part = self.part(entry.key.content);
            self.unlink(part, &mut self.lock(part), entry);
        }
        now
    }

    /// Takes an entry that is gone out of its part, which is locked.
    fn unlink(&self, part: &Part, shelf: &mut Shelf, entry: &Arc<Entry>) {
        self.ghost.forget(entry.value);
        if shelf.clock.remove(entry) {
            part.take_out(shelf, entry);
            self.len.fetch_sub(1, Relaxed);
        }
    }

    /// Reserves a user's room of an entry that has some.
    fn reserve(&self, entry: &Entry) -> bool {
        let reserved = self.change(entry, |state| has_room(state).then(|| state - 1 + PENDING));
        if reserved.is_some() && entry.flags.load(Relaxed) < USES_MAX {
            // Two at once may make it one more.
            entry.flags.fetch_add(1, Relaxed);
            self.counters.one(Counter::Touches);
        }
        reserved.is_some()
    }

    /// A spare with room that `fits`, where the donor has none; it is the donor from here on.
    fn find_spare(&self, content: u64, fits: impl Fn(&Entry) -> bool) -> Option<Arc<Entry>> {
        let part = self.part(content);
        if part.with_spares.load(Relaxed) == 0 {
            return None;
        }
        let shelf = &mut *self.lock(part);
        let spares = shelf.spares.get_mut(&content)?;
        let mut steps = 0;
        let at = spares.iter().position(|spare| {
            steps += 1;
            fits(spare) && self.reserve(spare)
        });
        self.counters.chain(steps);
        let spare = Arc::clone(&spares[at?]);
        // Without memory it stays a spare: what was found is always known.
        if let Some(donor) = shelf.donors.get(content).map(Arc::clone)
            && shelf.donors.replace(&part.donors, &donor, &spare)
        {
            // By age, as those that come.
            spares.retain(|other| !Arc::ptr_eq(other, &spare));
            let place = spares.partition_point(|other| other.seq < donor.seq);
            spares.insert(place, donor);
        }
        Some(spare)
    }

    /// A thing of so many users comes in. Its part is locked, and it is not there.
    fn bring_in(
        &self,
        part: &Part,
        shelf: &mut Shelf,
        key: Key,
        value: u64,
        users: u64,
    ) -> Created {
        let Some(room) = self.users_max.checked_sub(users).filter(|&room| room > 0) else {
            return Created::Refused;
        };
        // All together: parts are not of one size. An empty one gets its first entry.
        if self.len.load(Relaxed) >= self.max && shelf.clock.len() > 0 {
            let mut any = usize::MAX;
            if !self.evict(part, shelf, &mut any, true) {
                return Created::Refused;
            }
            self.counters.one(Counter::ShrunkSync);
        }
        self.memo.note(value, key.content);
        let seq = self.next_seq.fetch_add(1, Relaxed);
        let entry = Entry::new(key, value, seq, room, 0);
        if !part.put_in(shelf, &entry) {
            return Created::Refused;
        }
        self.len.fetch_add(1, Relaxed);
        self.ghost.admitted(value);
        Created::Inserted
    }

    /// Moves a hand on to an entry that is not found, and drops it. At most `nr` entries are
    /// passed; with `must`, those in use go like others at last.
    fn evict(&self, part: &Part, shelf: &mut Shelf, nr: &mut usize, must: bool) -> bool {
        let mut passed = 0;
        let most = HAND_MAX + if must { shelf.clock.len() } else { 0 };
        while *nr > 0 && passed < most {
            let Some(entry) = shelf.clock.front().map(Arc::clone) else {
                break;
            };
            *nr -= 1;
            passed += 1;
            self.counters.one(Counter::Scanned);
            let uses = entry.flags.load(Relaxed);
            if uses > 0 && passed <= HAND_MAX {
                entry.flags.fetch_sub(1, Relaxed);
                shelf.clock.move_to_back(&entry);
                self.counters.one(Counter::SecondChances);
                continue;
            }
            let is_free = |state: u64| (pending(state) == 0).then_some(state | GONE);
            if self.change(&entry, is_free).is_some() {
                self.unlink(part, shelf, &entry);
                return true;
            }
            shelf.clock.move_to_back(&entry);
        }
        false
    }
}

impl OneDonor {
    /// What was found gets no user.
    fn put(&self, entry: &Arc<Entry>) {
        let now = self.end_found(entry, |state| state + 1);
        if pending(now) == 0 {
            self.unused.wake_all(&self.counters);
        }
    }

    /// What was found gets a user, and has `users` with it.
    fn take(&self, entry: &Arc<Entry>, users: u64) {
        self.end_found(entry, |state| {
            let others = pending(state);
            let room = self.users_max.saturating_sub(users + others);
            let full = if users >= self.users_max { FULL } else { 0 };
            full + others * PENDING + room
        });
        // A thread that was to remove it is not its last user any more.
        self.unused.wake_all(&self.counters);
    }
}

impl Index for OneDonor {
    fn usage(&self) -> Usage {
        Usage {
            entries: self.len.load(Relaxed),
            max: self.max,
            entry_bytes: ENTRY_BYTES,
            fixed_bytes: Ghost::BYTES + Memo::BYTES + self.parts.len() * size_of::<Part>(),
        }
    }

    fn key(&self, hash: u32, body: Content<'_>, of: Option<u64>) -> Key {
        let content = of.and_then(|value| self.memo.content(value));
        let content = content.unwrap_or_else(|| {
            self.counters.one(Counter::ContentHashes);
            content_hash(&body, &self.secrets)
        });
        Key { hash, content }
    }

    fn admits(&self, value: u64) -> bool {
        self.ghost.is_second(value)
    }

    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        // Any other if that is full, else an older one: so a search ends.
        let fits = |entry: &Entry| {
            after.is_none_or(|after| state(after) & FULL != 0 || entry.seq < after.seq)
        };
        let donor = self.part(key.content).donors.get(key.content)?;
        self.counters.chain(1);
        if fits(&donor) && self.reserve(&donor) {
            return Some(donor);
        }
        self.find_spare(key.content, fits)
    }

    fn set_full(&self, found: &Arc<Entry>) {
        self.change(found, |state| Some(state | FULL));
    }

    fn end(&self, found: &Arc<Entry>, how: End) -> Result<(), Stale> {
        match how {
            End::Unused => self.put(found),
            End::Taken(users) => self.take(found, users.into()),
        }
        Ok(())
    }

    fn create(&self, key: Key, value: u64, users: u32) -> Created {
        let part = self.part(key.content);
        let mut shelf = self.lock(part);
        if part.entry(&shelf, key.content, value).is_some() {
            return Created::Present;
        }
        self.bring_in(part, &mut shelf, key, value, users.into())
    }

    fn remove(&self, key: Key, value: u64, _: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>> {
        let part = self.part(key.content);
        // Under the lock: without it an entry may be missed.
        let mut shelf = self.lock(part);
        let entry = part.entry(&shelf, key.content, value).map(Arc::clone);
        let Some(entry) = entry else {
            self.ghost.forget(value);
            return Ok(());
        };
        let changed = self.change(&entry, |state| match pending(state) {
            0 => Some(state | GONE),
            // The caller is the one user: with that, `room` is the truth again.
            others => {
                let room = self.users_max.saturating_sub(1 + others);
                Some((state & FULL) + others * PENDING + room)
            }
        });
        match changed {
            Some((was, now)) if now & GONE != 0 => {
                self.unlink(part, &mut shelf, &entry);
                self.counters
                    .add(Counter::Deletes, u64::from(was & GONE == 0));
                Ok(())
            }
            _ => Err(entry),
        }
    }

    fn left(&self, key: Key, value: u64, users: u32) {
        let part = self.part(key.content);
        let mut shelf = self.lock(part);
        if let Some(entry) = part.entry(&shelf, key.content, value) {
            let changed = self.change(entry, |state| {
                let others = pending(state);
                let room = self.users_max.saturating_sub(u64::from(users) + others);
                (state & GONE == 0).then_some(others * PENDING + room)
            });
            if changed.is_some() {
                return;
            }
        }
        if self.bring_in(part, &mut shelf, key, value, users.into()) == Created::Inserted {
            self.counters.one(Counter::Creates);
        }
    }

    fn wait_unused(&self, entry: &Arc<Entry>) {
        let is_over = || {
            let state = state(entry);
            pending(state) == 0 || self.users_max > room(state) + pending(state) + 1
        };
        self.unused.wait_until(&self.counters, is_over);
    }

    fn scan(&self, nr: usize) -> usize {
        let (mut nr, mut freed) = (nr, 0);
        // Each part once; a part that has nothing to give costs a lock and no step.
        for _ in 0..self.parts.len() {
            if nr == 0 {
                break;
            }
            let at = self.hand.fetch_add(1, Relaxed) % self.parts.len();
            let part = &self.parts[at];
            let mut shelf = self.lock(part);
            let mut share = nr.min(shelf.clock.len()).min(HAND_MAX);
            nr -= share;
            while self.evict(part, &mut shelf, &mut share, false) {
                freed += 1;
            }
        }
        freed
    }
}

//! Policy `one-donor`: one thing of each content gives to all who come.
//!
//! Source: of our own, from what is left of mainline's weak points: equal blocks full of users stay in
//! one chain and are passed over one by one; a 32-bit hash that anybody can collide with is all that is
//! known before a block is read; a lock a search, two or three an entry that comes or goes; a fixed
//! number of entries.
//!
//! ```text
//! state of an entry    GONE │ FULL │ pending: found, not yet users │ room: users it may still get
//! find                 room − 1, pending + 1      by compare-and-swap, without a lock
//! put                  room + 1, pending − 1
//! take, with n users                pending − 1;  room = max − n − pending, what is there in truth
//! remove               pending = 0 → GONE         else whoever removes waits
//! no room, none found             → GONE          the next thing made of this content comes in
//! ```
//! The key is a hash of all of the content with 64 bits, seeded for each mount: two contents with one key
//! are not met in practice, and cannot be made on purpose. One entry a key, so an answer takes one look,
//! whatever the number of equal things. Once GONE a state stays so, and such an entry is on its way out of
//! the table. An entry that is found does not go: so the table knows of everyone who may become a user. A
//! search takes no lock and may miss an entry while its part of the table changes, which costs sharing; who
//! removes a thing, and must know whether it is there, looks under the part's lock.
//!
//! What is made comes in; what is read, when it is read twice (`ghost.rs`). Entries are in parts by key;
//! each part has a clock with marks of use from 0 to 3, and gives one for one beyond `mb_max_entries` of
//! all. A hand passes 256 entries at most, then the next that nobody has found goes.
//!
//! Differences from the plan: the table is in parts that grow by themselves, with whole entries behind
//! pointers that readers count (`table.rs`), not slots with versions. Removing asks whether anybody has *found* the thing, not whether `room` says
//! that it has one user: `room` may lag when a thing comes in by being read, and who removes has counted
//! the users already. Counts on disk are gathered beside it, for any policy (`counts.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use parking_lot::MutexGuard;

use crate::cache::Created;
use crate::entry::{Entry, Key};
use crate::ghost::Ghost;
use crate::list::List;
use crate::lock::Lock;
use crate::options::Options;
use crate::policy::Mechanism;
use crate::stats::{Counter, Counters};
use crate::table::Table;
use crate::wait::WaitQueue;

/// It takes part in nothing any more.
const GONE: u64 = 1 << 63;
/// It has as many users as it may, whatever `room` says.
const FULL: u64 = 1 << 62;
/// One who has found it.
const PENDING: u64 = 1 << 32;
/// Most marks of use.
const USES_MAX: u32 = 3;
/// Most parts; a power of two.
const PARTS: usize = 64;
/// Least entries a part has room for.
const PART_MIN: usize = 16;
/// Entries that a hand passes at most before it takes one that was used.
const HAND_MAX: usize = 256;
/// About what an entry takes: itself, its place in the table and on the clock, and what the allocator of
/// memory adds.
pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>() + 16 + Table::ENTRY_BYTES + 24 + 2 * 16;

fn pending(state: u64) -> u64 {
    state % FULL / PENDING
}

fn room(state: u64) -> u64 {
    state % PENDING
}

/// A part: some contents' entries, and their clock with the hand at the front. Entries come to the table
/// and go from it under the clock's lock.
#[derive(Debug, Default)]
struct Part {
    donors: Table,
    clock: Lock<List>,
}

/// The cache. A part's lock comes before nothing.
#[derive(Debug)]
pub(crate) struct OneDonor {
    counters: Arc<Counters>,
    parts: Box<[Part]>,
    ghost: Ghost,
    unused: WaitQueue,
    max: usize,
    users_max: u64,
    len: AtomicUsize,
    /// The part that is scanned next.
    hand: AtomicUsize,
}

impl Part {
    /// The entry of a content, if it is not gone.
    fn donor(&self, content: u64) -> Option<Arc<Entry>> {
        self.donors.get(content).filter(|entry| !is_gone(entry))
    }
}

fn is_gone(entry: &Entry) -> bool {
    entry.state.load(Acquire) & GONE != 0
}

impl OneDonor {
    pub(crate) fn new(options: &Options, counters: Arc<Counters>) -> Self {
        let max = options.max_by_buckets();
        let parts = (max / PART_MIN).clamp(1, PARTS);
        // Down to a power of two.
        let parts = 1 << parts.ilog2();
        Self {
            counters,
            parts: (0..parts).map(|_| Part::default()).collect(),
            ghost: Ghost::new(),
            unused: WaitQueue::default(),
            max,
            users_max: options.users_max.into(),
            len: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    fn part(&self, content: u64) -> &Part {
        // The bits above those that choose a place in the part's table.
        &self.parts[(content >> 56) as usize % self.parts.len()]
    }

    fn lock<'a>(&self, part: &'a Part) -> MutexGuard<'a, List> {
        part.clock.lock(&self.counters, Counter::ListLocks)
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

    /// Ends that an entry is found: `f` changes its state otherwise.
    fn end(&self, entry: &Arc<Entry>, f: impl Fn(u64) -> u64) {
        let changed = self.change(entry, |state| {
            let state = f(state - PENDING);
            let is_done = pending(state) == 0 && (state & FULL != 0 || room(state) == 0);
            Some(if is_done { state | GONE } else { state })
        });
        let Some((_, now)) = changed else {
            return;
        };
        if now & GONE != 0 {
            self.drop_gone(entry);
        }
        if pending(now) == 0 {
            self.unused.wake_all(&self.counters);
        }
    }

    /// Takes an entry that is gone out of the table and off its clock.
    fn drop_gone(&self, entry: &Arc<Entry>) {
        let part = self.part(entry.key.content);
        self.unlink(part, &mut self.lock(part), entry);
    }

    /// The same with the part's clock locked.
    fn unlink(&self, part: &Part, clock: &mut List, entry: &Arc<Entry>) {
        self.ghost.forget(entry.value);
        if clock.remove(entry) {
            part.donors.remove(entry);
            self.len.fetch_sub(1, Relaxed);
        }
    }

    /// Moves a hand on to an entry that nobody has found, and drops it. At most `nr` entries are passed;
    /// with `must`, those in use go like others at last.
    fn evict(&self, part: &Part, clock: &mut List, nr: &mut usize, must: bool) -> bool {
        let mut passed = 0;
        let most = HAND_MAX + if must { clock.len() } else { 0 };
        while *nr > 0 && passed < most {
            let Some(entry) = clock.front().map(Arc::clone) else {
                break;
            };
            *nr -= 1;
            passed += 1;
            self.counters.one(Counter::Scanned);
            let uses = entry.flags.load(Relaxed);
            if uses > 0 && passed <= HAND_MAX {
                entry.flags.fetch_sub(1, Relaxed);
                clock.move_to_back(&entry);
                self.counters.one(Counter::SecondChances);
                continue;
            }
            let is_free = |state: u64| (pending(state) == 0).then_some(state | GONE);
            if self.change(&entry, is_free).is_some() {
                self.unlink(part, clock, &entry);
                return true;
            }
            clock.move_to_back(&entry);
        }
        false
    }
}

impl Mechanism for OneDonor {
    fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    fn max(&self) -> usize {
        self.max
    }

    fn entry_bytes(&self) -> usize {
        ENTRY_BYTES
    }

    fn fixed_bytes(&self) -> usize {
        Ghost::BYTES + self.parts.len() * size_of::<Part>()
    }

    fn needs_content(&self) -> bool {
        true
    }

    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>> {
        if after.is_some() {
            return None;
        }
        let part = self.part(key.content);
        let entry = part.donor(key.content)?;
        self.counters.chain(1);
        self.change(&entry, |state| {
            let has_room = state & (GONE | FULL) == 0 && room(state) > 0;
            has_room.then(|| state - 1 + PENDING)
        })?;
        if entry.flags.load(Relaxed) < USES_MAX {
            // Two at once may make it one more.
            entry.flags.fetch_add(1, Relaxed);
            self.counters.one(Counter::Touches);
        }
        Some(entry)
    }

    fn put(&self, entry: &Arc<Entry>) {
        self.end(entry, |state| state + 1);
    }

    fn take(&self, entry: &Arc<Entry>, users: u32) -> bool {
        let users = u64::from(users);
        self.end(entry, |state| {
            let others = pending(state);
            let room = self.users_max.saturating_sub(users + others);
            let full = if users >= self.users_max { FULL } else { 0 };
            full + others * PENDING + room
        });
        true
    }

    fn is_full(&self, entry: &Arc<Entry>) {
        self.change(entry, |state| Some(state | FULL));
    }

    fn admits(&self, value: u64) -> bool {
        self.ghost.is_second(value)
    }

    fn create(&self, key: Key, value: u64, users: u32) -> Created {
        let Some(room) = self.users_max.checked_sub(users.into()).filter(|&r| r > 0) else {
            return Created::Refused;
        };
        let part = self.part(key.content);
        let mut clock = self.lock(part);
        if let Some(old) = part.donors.get(key.content) {
            if !is_gone(&old) {
                return Created::Present;
            }
            self.unlink(part, &mut clock, &old);
        }
        // All together: parts are not of one size. An empty one gets its first entry.
        if self.len() >= self.max && clock.len() > 0 {
            let mut any = usize::MAX;
            if !self.evict(part, &mut clock, &mut any, true) {
                return Created::Refused;
            }
            self.counters.one(Counter::ShrunkSync);
        }
        let entry = Entry::new(key, (value, 0), (room, 0));
        if !clock.push_back(&entry) {
            return Created::Refused;
        }
        if !part.donors.insert(&entry) {
            clock.remove(&entry);
            return Created::Refused;
        }
        self.len.fetch_add(1, Relaxed);
        self.ghost.admitted(value);
        Created::Inserted
    }

    fn remove(&self, key: Key, value: u64, _: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>> {
        let part = self.part(key.content);
        // Under the lock: without it an entry may be missed.
        let mut clock = self.lock(part);
        let found = part.donor(key.content);
        let Some(entry) = found.filter(|entry| entry.value == value) else {
            self.ghost.forget(value);
            return Ok(());
        };
        let free = |state: u64| (pending(state) == 0).then_some(state | GONE);
        let Some((was, _)) = self.change(&entry, free) else {
            return Err(entry);
        };
        self.unlink(part, &mut clock, &entry);
        self.counters
            .add(Counter::Deletes, u64::from(was & GONE == 0));
        Ok(())
    }

    fn left(&self, key: Key, value: u64, users: u32) {
        match self.part(key.content).donor(key.content) {
            None => {
                if self.create(key, value, users) == Created::Inserted {
                    self.counters.one(Counter::Creates);
                }
            }
            Some(entry) if entry.value == value => {
                self.change(&entry, |state| {
                    let others = pending(state);
                    let room = self.users_max.saturating_sub(u64::from(users) + others);
                    (state & GONE == 0).then_some(others * PENDING + room)
                });
            }
            Some(_) => {}
        }
    }

    fn wait_unused(&self, entry: &Arc<Entry>) {
        let is_unused = || pending(entry.state.load(Acquire)) == 0;
        self.unused.wait_until(&self.counters, is_unused);
    }

    fn scan(&self, nr: usize, why: Counter) -> usize {
        let (mut nr, mut freed) = (nr, 0);
        // Each part once; a part that has nothing to give costs a lock and no step.
        for _ in 0..self.parts.len() {
            if nr == 0 {
                break;
            }
            let at = self.hand.fetch_add(1, Relaxed) % self.parts.len();
            let part = &self.parts[at];
            let mut clock = self.lock(part);
            let mut share = nr.min(clock.len()).min(HAND_MAX);
            nr -= share;
            while self.evict(part, &mut clock, &mut share, false) {
                freed += 1;
            }
        }
        self.counters.add(why, freed as u64);
        freed
    }
}

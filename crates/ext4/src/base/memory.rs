//! The memory budget: one limit for everything a mounted file system keeps.
//!
//! # Why
//!
//! Pages of files, blocks of metadata, what is known of extents, inodes, and names are held by
//! subsystems that know nothing of one another. If each had a limit of its own, either much memory
//! would lie idle in one subsystem while another starves, or together they would exceed what the
//! user allowed. So there is one number for all of them, and each may take what the others leave.
//!
//! # Picture
//!
//! ```text
//!           low          high        direct      limit        budget
//!  ──────────┼────────────┼────────────┼───────────┼─────────────┼──▶ bytes, all caches together
//!          13/16        14/16        15/16        1 of the limit
//!            ◀── thread ──┤            │           │◀─ pressure ─┤
//!                         ◀── caller ──┤           │
//!                                      ├─ drain ───┴──▶
//! ```
//! A thread that allocates memory *looks*: adds up what the subsystems say they
//! take. Above *high* the reclaim thread is woken, and brings it down to *low*. Above *direct* it
//! grows faster than that, and the caller brings it down to *high* itself. The way is the same:
//! each subsystem is asked how much it could free ([`Shrinker::count`]) and to free its share of
//! what is needed, in proportion ([`Shrinker::scan`]). Subsystems choose what goes: each has its
//! clock or second chance.
//!
//! What cannot be freed so is not clean: dirty pages, whose flushers are woken by the lowered
//! limit of their room, and blocks of metadata and inodes that wait for the journal. If these
//! alone keep it above *direct*, the caller *drains*: it commits, and checkpoints what is
//! committed (`reclaim.rs`).
//!
//! Between two looks one call may copy gigabytes through the pages. So each look also gives pages
//! and blocks a limit of their own, what they have now and what is free below *direct*, within
//! which they evict by themselves.
//!
//! # Units and bounds
//!
//! Bytes, bookkeeping included, as the subsystems count them. The sum stays below the budget and
//! a tenth, but for what cannot go: inodes and blocks that a thread holds, and data that the
//! device does not take. Not counted: descriptors of groups, copies of blocks that change while a
//! commit writes them, what callers hold.
//!
//! The *limit* is the budget, less under pressure: every two seconds the reclaim thread reads how
//! much time tasks of the machine lost waiting for memory (`/proc/pressure/memory`). While that
//! is above 10 % of the last ten seconds the limit falls by an eighth a look, down to a quarter
//! of the budget; below 5 % it rises by a 64th of the budget.
//!
//! # Locks
//!
//! One, held while subsystems are scanned. Under it only leaf locks of the subsystems are taken,
//! and those of single trees and parts of tables are only tried; so a look may be made under any
//! lock of the engine, handles included. Draining waits for a commit, so it is done only where a
//! handle could be started.
//!
//! # Cost
//!
//! A look below *high*: about fifty loads, no lock, one store to the thread's slot. It is made once
//! a handle, once an inode that was not in memory, once a run of pages read or written; never on a
//! hit. Far below *high* one look serves up to 17 of these: fewer, the less is free, and with a
//! budget of 64 MiB or less each of them looks.
//!
//! # Left out
//!
//! Which entry of a room goes, and when dirty pages are written: that is the subsystems'. Pressure
//! of control groups: their limits count for the budget, and their pressure shows in the
//! machine's.

mod caches;
mod pressure;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_support::{PerThread, SLOTS};

use crate::base::background::Waker;

pub(crate) use pressure::default_budget;

/// Subsystems that share the budget.
pub(crate) const CACHES: usize = 7;
/// Least budget, in bytes: less would not hold what one operation needs.
const BUDGET_MIN: u64 = 1 << 20;
/// Most looks that a thread leaves out after one that found memory free.
const SPARED_MAX: u64 = 16;
/// More bytes than are taken between two looks of a thread: so many looks are left out that all
/// threads together stay below *high*.
const CALL_MAX: u64 = 4 << 20;
/// Rounds of one reclaim: a round may only clear marks of use, or move memory between subsystems.
const ROUNDS: usize = 3;

/// A room that can be asked to take less memory. Everything may be called under any lock of the
/// engine, and takes only leaf locks.
pub(crate) trait Shrinker {
    /// Bytes it takes.
    fn memory(&self) -> u64;

    /// Bytes that could be freed, about; what is only pinned may be counted in.
    fn count(&self) -> u64;

    /// Frees about so many bytes, what was not used for longest first as far as it knows. Returns
    /// how many went.
    fn scan(&self, bytes: u64) -> u64;

    /// Sets how much it may take by itself before it must free something, if it can do that.
    fn set_limit(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// All subsystems, in the order in which they are asked: what an inode frees may help the others.
pub(crate) type Caches<'a> = [&'a dyn Shrinker; CACHES];

/// The budget of one file system.
#[derive(Debug)]
pub(crate) struct Memory {
    budget: u64,
    /// What may be taken now: the budget, or less under pressure.
    limit: AtomicU64,
    /// The limits that subsystems were given last.
    given: [AtomicU64; CACHES],
    /// Held while subsystems are scanned.
    scanning: Mutex<()>,
    /// What was left when reclaim found nothing more; 0 if it did not come to that.
    futile: AtomicU64,
    waker: OnceLock<Waker>,
    /// Looks that the threads of a slot may leave out.
    spared: PerThread<AtomicU32>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    direct: AtomicU64,
    background: AtomicU64,
    reclaimed: AtomicU64,
}

/// What a file system takes of its memory budget, and what was done to stay within it. Bytes,
/// unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What it may take, as it was opened.
    pub budget: u64,
    /// What it may take now: less than the budget while the machine is short of memory.
    pub limit: u64,
    /// Data of files.
    pub pages: u64,
    /// Blocks of metadata.
    pub buffers: u64,
    /// What is known of where files lie.
    pub extents: u64,
    /// Buddies of groups.
    pub buddies: u64,
    /// What is known of attributes that inodes may share.
    pub xattrs: u64,
    /// Inodes.
    pub inodes: u64,
    /// Names looked up of late.
    pub names: u64,
    /// Times a caller freed memory itself.
    pub direct_reclaims: u64,
    /// Times the reclaim thread did, or [`Volume::tick`](crate::Volume::tick).
    pub background_reclaims: u64,
    /// Freed by both.
    pub reclaimed: u64,
}

impl MemoryUse {
    /// What is taken, all together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let caches = self.buffers + self.extents + self.buddies + self.xattrs;
        self.pages + caches + self.inodes + self.names
    }
}

/// How much is too much; parts of the limit.
#[derive(Clone, Copy, Debug)]
struct Marks {
    low: u64,
    high: u64,
    direct: u64,
    limit: u64,
}

impl Marks {
    fn of(limit: u64) -> Self {
        let part = limit / 16;
        Self {
            low: limit - 3 * part,
            high: limit - 2 * part,
            direct: limit - part,
            limit,
        }
    }
}

/// What each subsystem is to free of `want` bytes, in proportion to what it could free; never
/// more than that.
fn shares<const N: usize>(want: u64, counts: [u64; N]) -> [u64; N] {
    let all: u128 = counts.iter().copied().map(u128::from).sum();
    let want = u128::from(want).min(all);
    // OK to truncate: `want` is at most `all`, so this is at most `count`.
    counts.map(|count| (want * u128::from(count)).div_ceil(all.max(1)) as u64)
}

fn sum(caches: &Caches<'_>) -> u64 {
    caches.iter().map(|cache| cache.memory()).sum()
}

impl Memory {
    /// A budget of so many bytes, at least 1 MiB.
    pub(crate) fn new(budget: u64) -> Self {
        let budget = budget.max(BUDGET_MIN);
        Self {
            budget,
            limit: AtomicU64::new(budget),
            given: Default::default(),
            scanning: Mutex::default(),
            futile: AtomicU64::new(0),
            waker: OnceLock::new(),
            spared: PerThread::default(),
            counters: Counters::default(),
        }
    }

    /// Sets what wakes the reclaim thread. Only ever called once.
    pub(crate) fn set_waker(&self, waker: Waker) {
        _ = self.waker.set(waker);
    }

    /// What may be taken now.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Looks at what is taken, and frees some if it is too much. True if too much is left, of what
    /// cannot be freed so.
    pub(crate) fn look(&self, caches: &Caches<'_>) -> bool {
        let spared = self.spared.get();
        let left = spared.load(Relaxed);
        if left > 0 {
            spared.store(left - 1, Relaxed);
            return false;
        }
        let taken = caches.map(|cache| cache.memory());
        let total = taken.iter().sum();
        let marks = Marks::of(self.limit());
        self.give(caches, &taken, total, marks);
        if total <= marks.high {
            let calls = (marks.high - total) / (CALL_MAX * SLOTS as u64);
            // OK to truncate: no more than the bound.
            spared.store(calls.min(SPARED_MAX) as u32, Relaxed);
            return false;
        }
        let futile = self.is_futile(total, marks);
        if !futile && let Some(waker) = self.waker.get() {
            waker.wake();
        }
        if total <= marks.direct {
            return false;
        }
        if futile {
            return true;
        }
        // One at it is enough, unless it gets worse all the same.
        let guard = if total > marks.limit {
            Some(self.scanning.lock())
        } else {
            self.scanning.try_lock()
        };
        let Some(_scanning) = guard else {
            return false;
        };
        self.counters.direct.fetch_add(1, Relaxed);
        self.reclaim(caches, marks.high) > marks.direct
    }

    /// What the reclaim thread does when it is woken or its time has come. True if too much is
    /// left.
    pub(crate) fn background(&self, caches: &Caches<'_>) -> bool {
        let marks = Marks::of(self.limit());
        self.futile.store(0, Relaxed);
        let total = sum(caches);
        self.give(caches, &caches.map(|cache| cache.memory()), total, marks);
        if total <= marks.high {
            return false;
        }
        let _scanning = self.scanning.lock();
        self.counters.background.fetch_add(1, Relaxed);
        self.reclaim(caches, marks.low) > marks.high
    }

    /// What could not be freed before may be freed now.
    pub(crate) fn drained(&self) {
        self.futile.store(0, Relaxed);
    }

    /// Takes in what the machine says of its memory: the text of `/proc/pressure/memory`.
    pub(crate) fn pressed(&self, text: Option<&str>) {
        let share = text.and_then(pressure::some_avg10);
        let limit = pressure::next_limit(self.limit(), self.budget, share);
        self.limit.store(limit, Relaxed);
    }

    /// What is taken, and what was done about it; the subsystems in the order of [`Caches`].
    pub(crate) fn usage(&self, caches: &Caches<'_>) -> MemoryUse {
        let [names, inodes, extents, buddies, buffers, pages, xattrs] =
            caches.map(|cache| cache.memory());
        MemoryUse {
            budget: self.budget,
            limit: self.limit(),
            pages,
            buffers,
            extents,
            buddies,
            xattrs,
            inodes,
            names,
            direct_reclaims: self.counters.direct.load(Relaxed),
            background_reclaims: self.counters.background.load(Relaxed),
            reclaimed: self.counters.reclaimed.load(Relaxed),
        }
    }

    /// The last reclaim left so much that another is not worth it.
    fn is_futile(&self, total: u64, marks: Marks) -> bool {
        let futile = self.futile.load(Relaxed);
        futile > 0 && total <= futile.saturating_add(marks.limit / 64)
    }

    /// Lets each subsystem grow into what is free, if that has changed by much. A 16th is every
    /// user's.
    fn give(&self, caches: &Caches<'_>, taken: &[u64; CACHES], total: u64, marks: Marks) {
        let free = marks.direct.saturating_sub(total);
        let (least, step) = (marks.limit / 16, marks.limit / 64);
        for ((cache, taken), given) in caches.iter().zip(taken).zip(&self.given) {
            let now = taken.saturating_add(free).max(least);
            if now.abs_diff(given.load(Relaxed)) >= step {
                given.store(now, Relaxed);
                cache.set_limit(now);
            }
        }
    }

    /// Frees until `goal` bytes are left, and returns how many are. `scanning` is held.
    fn reclaim(&self, caches: &Caches<'_>, goal: u64) -> u64 {
        let mut total = sum(caches);
        for _ in 0..ROUNDS {
            if total <= goal {
                break;
            }
            let before = total;
            let counts = caches.map(|cache| cache.count());
            for (cache, share) in caches.iter().zip(shares(total - goal, counts)) {
                if share > 0 {
                    cache.scan(share);
                }
            }
            total = sum(caches);
            let freed = before.saturating_sub(total);
            self.counters.reclaimed.fetch_add(freed, Relaxed);
        }
        let futile = if total > goal { total } else { 0 };
        self.futile.store(futile, Relaxed);
        total
    }
}

#[cfg(test)]
mod tests;

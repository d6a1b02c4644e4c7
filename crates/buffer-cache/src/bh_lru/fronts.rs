//! Whose is whose: one front for each thread or core, and what they count.
//!
//! `set-associative` by thread needs no lock: it lies in the thread, one for all its caches, and knows
//! blocks weakly. All others lie in the cache behind a lock each, for which no look-up waits: who finds
//! it taken goes to the table, as if the block were not known. Only who empties them or counts waits.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::sets::Sets;
use super::{BH_LRU_SIZE_MAX, BhLruOptions, Effort, Found, Front, Key, Policy, Reuse, Scope};
use crate::buffer::Inner;
use crate::stats::BhLruStats;

/// Fronts of a cache. Threads or cores beyond that share.
const FRONTS: usize = 64;
/// Parts of the counters.
const PARTS: usize = 16;

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOCAL: RefCell<Sets> = const { RefCell::new(Sets::new()) };
    /// Numbers the threads; `usize::MAX` until one has a number.
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The core that [`bind_core`] named.
    static CORE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// From here on this thread counts as running on that core, whatever the machine does with it; `None`
/// undoes it. For experiments that have more cores than the machine, or want the same answer twice.
pub fn bind_core(core: Option<usize>) {
    CORE.set(core);
}

fn thread() -> usize {
    if THREAD.get() == usize::MAX {
        THREAD.set(NEXT_THREAD.fetch_add(1, Relaxed) % FRONTS);
    }
    THREAD.get()
}

fn core() -> usize {
    CORE.get().unwrap_or_else(rustix::thread::sched_getcpu)
}

/// One front on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Owned(Mutex<Front>);

/// What the threads of one part counted.
#[derive(Debug)]
#[repr(align(128))]
struct Counters {
    /// Counted always, by part of the threads: a counter of the block's would be everybody's.
    hits: AtomicU64,
    hit_pos: [AtomicU64; BH_LRU_SIZE_MAX],
    misses: AtomicU64,
    contended: AtomicU64,
    compares: AtomicU64,
    slot_writes: AtomicU64,
    bytes_copied: AtomicU64,
    atomics: AtomicU64,
    installs: AtomicU64,
    evictions: AtomicU64,
    ghost_hits: AtomicU64,
}

/// All fronts of one cache.
#[derive(Debug)]
pub(crate) struct Fronts {
    options: BhLruOptions,
    size: usize,
    /// Empty if the threads have theirs.
    owned: Box<[Owned]>,
    counting: AtomicBool,
    counters: Box<[Counters]>,
    invalidations: AtomicU64,
}

impl Fronts {
    pub(crate) fn new(options: BhLruOptions) -> Self {
        let (policy, scope, size) = (options.policy, options.scope, options.size());
        let local = policy == Policy::SetAssociative && scope == Scope::Thread;
        let owned = if local { 0 } else { FRONTS };
        Self {
            options,
            size,
            owned: (0..owned)
                .map(|_| Owned(Mutex::new(Front::new(policy, size))))
                .collect(),
            counting: AtomicBool::new(false),
            counters: (0..PARTS).map(|_| Counters::new()).collect(),
            invalidations: AtomicU64::new(0),
        }
    }

    /// Starts or stops counting what each call does.
    pub(crate) fn count(&self, on: bool) {
        self.counting.store(on, Relaxed);
    }

    fn index(&self) -> usize {
        match self.options.scope {
            Scope::Thread => thread(),
            Scope::Core => core() % FRONTS,
        }
    }

    /// The block if this thread's or core's front knows it and it is still in its cache.
    pub(crate) fn lookup(&self, key: Key) -> Option<Arc<Inner>> {
        let mut effort = Effort::default();
        let mut contended = false;
        let found = if self.owned.is_empty() {
            // A thread that is being torn down goes without.
            let find = |sets: &RefCell<Sets>| {
                let mut sets = sets.borrow_mut();
                sets.lookup(key, self.size, &mut effort)
            };
            LOCAL.try_with(find).ok().flatten()
        } else if let Some(mut front) = self.owned[self.index()].0.try_lock() {
            front.lookup(key, self.size, &mut effort)
        } else {
            contended = true;
            None
        };
        if self.counting.load(Relaxed) {
            self.looked_up(&effort, found.as_ref(), contended);
        }
        let buffer = found?.buffer;
        self.counters_now().hits.fetch_add(1, Relaxed);
        Some(buffer)
    }

    /// Look-ups that were answered here.
    pub(crate) fn hits(&self) -> u64 {
        let each = self.counters.iter();
        each.map(|counters| counters.hits.load(Relaxed)).sum()
    }

    /// Takes a block in that [`lookup`](Self::lookup) did not find.
    pub(crate) fn install(&self, key: Key, buffer: &Arc<Inner>, reuse: Reuse) {
        let reuse = if self.options.hints {
            reuse
        } else {
            Reuse::Unknown
        };
        let mut effort = Effort::default();
        if self.owned.is_empty() {
            let _ = LOCAL.try_with(|sets| {
                let mut sets = sets.borrow_mut();
                sets.install(key, buffer, self.size, reuse, &mut effort);
            });
        } else {
            let front = self.owned[self.index()].0.try_lock();
            let old = front
                .and_then(|mut front| front.install(key, buffer, self.size, reuse, &mut effort));
            // Let go of after the lock.
            drop(old);
        }
        if self.counting.load(Relaxed) {
            let counters = self.counters_now();
            counters.add(&effort);
            counters.installs.fetch_add(1, Relaxed);
        }
    }

    /// Lets go of every block that is held here. Tells how many fronts held any.
    pub(crate) fn invalidate(&self) -> usize {
        let mut told = 0;
        for owned in &self.owned {
            let mut front = owned.0.lock();
            if front.parked() > 0 {
                let empty = Front::new(self.options.policy, self.size);
                let old = std::mem::replace(&mut *front, empty);
                drop(front);
                drop(old);
                told += 1;
            }
        }
        self.invalidations.fetch_add(told as u64, Relaxed);
        told
    }

    fn counters_now(&self) -> &Counters {
        &self.counters[thread() % PARTS]
    }

    fn looked_up(&self, effort: &Effort, found: Option<&Found>, contended: bool) {
        let counters = self.counters_now();
        counters.add(effort);
        match found {
            Some(found) => counters.hit_pos[found.at].fetch_add(1, Relaxed),
            None => counters.misses.fetch_add(1, Relaxed),
        };
        counters.contended.fetch_add(u64::from(contended), Relaxed);
    }

    /// What was counted.
    pub(crate) fn stats(&self) -> BhLruStats {
        let mut stats = BhLruStats {
            invalidations: self.invalidations.load(Relaxed),
            ..BhLruStats::default()
        };
        for counters in &self.counters {
            for (sum, part) in stats.hit_pos.iter_mut().zip(&counters.hit_pos) {
                *sum += part.load(Relaxed);
            }
            stats.misses += counters.misses.load(Relaxed);
            stats.contended += counters.contended.load(Relaxed);
            stats.compares += counters.compares.load(Relaxed);
            stats.slot_writes += counters.slot_writes.load(Relaxed);
            stats.bytes_copied += counters.bytes_copied.load(Relaxed);
            stats.atomics += counters.atomics.load(Relaxed);
            stats.installs += counters.installs.load(Relaxed);
            stats.evictions += counters.evictions.load(Relaxed);
            stats.ghost_hits += counters.ghost_hits.load(Relaxed);
        }
        stats.parked = self
            .owned
            .iter()
            .map(|owned| owned.0.lock().parked() as u64)
            .sum();
        stats
    }
}

impl Counters {
    fn new() -> Self {
        Self {
            hits: AtomicU64::new(0),
            hit_pos: [const { AtomicU64::new(0) }; BH_LRU_SIZE_MAX],
            misses: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            compares: AtomicU64::new(0),
            slot_writes: AtomicU64::new(0),
            bytes_copied: AtomicU64::new(0),
            atomics: AtomicU64::new(0),
            installs: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            ghost_hits: AtomicU64::new(0),
        }
    }

    fn add(&self, effort: &Effort) {
        let sums = [
            (&self.compares, effort.compares),
            (&self.slot_writes, effort.slot_writes),
            (&self.bytes_copied, effort.bytes_copied),
            (&self.atomics, effort.atomics),
            (&self.evictions, u32::from(effort.evicted)),
            (&self.ghost_hits, u32::from(effort.ghost_hit)),
        ];
        for (sum, part) in sums {
            if part > 0 {
                sum.fetch_add(u64::from(part), Relaxed);
            }
        }
    }
}

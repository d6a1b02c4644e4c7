//! One LRU for each thread or processor, and what they count.
//!
//! Each has a lock, for which no lookup waits: where another thread has it, the cache asks its
//! table, as if the block were not known. Only emptying and counting wait.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_buffer_cache::{BH_LRU_SIZE_MAX, BhLru, Buffer, Key, Reuse};

use super::effort::{Effort, Found};
use super::{Lru, Options, Policy, Scope, Stats};

/// LRUs of a cache. Threads or processors beyond that share.
const LRUS: usize = 64;
/// Parts of the counters.
const PARTS: usize = 16;

static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Numbers the threads; `usize::MAX` until one has a number.
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The processor that [`bind_core`] named.
    static CORE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// From here on this thread counts as running on that processor, whatever the machine does with it;
/// `None` undoes it. For experiments that have more processors than the machine, or want the same
/// answer twice.
pub fn bind_core(core: Option<usize>) {
    CORE.set(core);
}

fn thread() -> usize {
    if THREAD.get() == usize::MAX {
        THREAD.set(NEXT_THREAD.fetch_add(1, Relaxed) % LRUS);
    }
    THREAD.get()
}

fn core() -> usize {
    CORE.get().unwrap_or_else(rustix::thread::sched_getcpu)
}

/// An LRU on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Owned(Mutex<Lru>);

/// What the threads of one part counted.
#[derive(Debug)]
#[repr(align(128))]
struct Counters {
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

/// The LRUs of one cache, or of several.
#[derive(Debug)]
pub struct Lrus {
    options: Options,
    owned: Box<[Owned]>,
    counting: AtomicBool,
    counters: Box<[Counters]>,
    invalidations: AtomicU64,
}

impl Lrus {
    /// Empty ones.
    pub fn new(options: Options) -> Self {
        let lru = || Owned(Mutex::new(Lru::new(options.policy, options.size())));
        Self {
            options,
            owned: (0..LRUS).map(|_| lru()).collect(),
            counting: AtomicBool::new(true),
            counters: (0..PARTS).map(|_| Counters::new()).collect(),
            invalidations: AtomicU64::new(0),
        }
    }

    /// Starts or stops counting; on at first.
    pub fn count(&self, on: bool) {
        self.counting.store(on, Relaxed);
    }

    /// That of this thread or processor.
    fn mine(&self) -> &Mutex<Lru> {
        let index = match self.options.scope {
            Scope::Thread => thread(),
            Scope::Core => core() % LRUS,
        };
        &self.owned[index].0
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

    /// What was counted since they were made.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            invalidations: self.invalidations.load(Relaxed),
            ..Stats::default()
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
        stats.held = self
            .owned
            .iter()
            .map(|owned| owned.0.lock().held() as u64)
            .sum();
        stats
    }
}

impl BhLru for Lrus {
    fn lookup(&self, key: Key) -> Option<Buffer> {
        let mut effort = Effort::default();
        if self.options.policy == Policy::None {
            if self.counting.load(Relaxed) {
                self.looked_up(&effort, None, false);
            }
            return None;
        }
        let lru = self.mine().try_lock();
        let contended = lru.is_none();
        let found = lru.and_then(|mut lru| lru.lookup(key, &mut effort));
        if self.counting.load(Relaxed) {
            self.looked_up(&effort, found.as_ref(), contended);
        }
        Some(found?.buffer)
    }

    fn install(&self, key: Key, buffer: &Buffer, reuse: Reuse) {
        if self.options.policy == Policy::None {
            return;
        }
        let mut effort = Effort::default();
        let lru = self.mine().try_lock();
        let old = lru.and_then(|mut lru| lru.install(key, buffer, reuse, &mut effort));
        // Dropped after the lock was released.
        drop(old);
        if self.counting.load(Relaxed) {
            let counters = self.counters_now();
            counters.add(&effort);
            counters.installs.fetch_add(1, Relaxed);
        }
    }

    fn invalidate(&self) -> usize {
        let mut emptied = 0;
        for owned in &self.owned {
            let mut lru = owned.0.lock();
            if lru.held() > 0 {
                let empty = Lru::new(self.options.policy, self.options.size());
                let old = std::mem::replace(&mut *lru, empty);
                drop(lru);
                drop(old);
                emptied += 1;
            }
        }
        self.invalidations.fetch_add(emptied as u64, Relaxed);
        emptied
    }
}

impl Counters {
    fn new() -> Self {
        Self {
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

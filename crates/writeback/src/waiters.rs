//! Writers that sleep, and what wakes them: their time, memory that becomes free, a caller that
//! cancels them.
//!
//! Each writer sleeps on a condition of its own, so that waking one disturbs no other, and a
//! thousand can be called off at once. Nothing is missed: who sleeps enters the list first and
//! looks after that whether something happened since it asked; who makes something happen says so
//! first and looks into the list after that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex};

/// Where one writer sleeps.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Slot {
    fn wake(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }

    /// Sleeps until it is woken, or so long.
    fn wait(&self, at_most: Duration) {
        let until = Instant::now().checked_add(at_most);
        let mut woken = self.woken.lock();
        while !*woken {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => at_most,
            };
            if left.is_zero() || self.wake.wait_for(&mut woken, left).timed_out() {
                break;
            }
        }
        *woken = false;
    }
}

/// Calls off the writers that were given a clone of it, those that sleep now and those to come.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_cancelled: AtomicBool,
    next: AtomicU64,
    sleeping: Mutex<BTreeMap<u64, Arc<Slot>>>,
}

impl Cancel {
    /// One that no thread has called yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the sleep of all writers that have it, and lets none of them sleep any more: they take
    /// in what can be taken at once. Takes leaf locks only, and does not wait for them.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, SeqCst);
        for slot in self.0.sleeping.lock().values() {
            slot.wake();
        }
    }

    /// Whether it was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(SeqCst)
    }

    fn enter(&self, slot: &Arc<Slot>) -> u64 {
        let number = self.0.next.fetch_add(1, SeqCst);
        self.0.sleeping.lock().insert(number, Arc::clone(slot));
        number
    }

    fn leave(&self, number: u64) {
        self.0.sleeping.lock().remove(&number);
    }
}

/// Why a writer sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// Of which cache it is.
    pub(crate) cache: u64,
    /// How many pages it waits for; 0: for its time alone.
    pub(crate) pages: u64,
    /// [`Waiters::freed`] when it was asked to sleep.
    pub(crate) freed: u64,
    /// Real time.
    pub(crate) at_most: Duration,
}

/// The writers of all caches that share limits. One leaf lock, which no thread takes while no
/// thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// How often something became free.
    freed: AtomicU64,
    sleeping: AtomicUsize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    /// By number, and so those first that came first.
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<Slot>,
    cache: u64,
    pages: u64,
}

impl Waiters {
    /// A mark of what has become free so far.
    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(SeqCst)
    }

    /// Sleeps until its time is over, something it waits for is free, or it is called off.
    pub(crate) fn sleep(
        &self,
        slot: &Arc<Slot>,
        sleep: Sleep,
        cancel: Option<&Cancel>,
        is_over: impl Fn() -> bool,
    ) {
        self.sleeping.fetch_add(1, SeqCst);
        let number = {
            let mut entries = self.entries.lock();
            let number = entries.next;
            entries.next += 1;
            let entry = Entry {
                slot: Arc::clone(slot),
                cache: sleep.cache,
                pages: sleep.pages,
            };
            entries.entries.insert(number, entry);
            number
        };
        let entered = cancel.map(|cancel| (cancel, cancel.enter(slot)));
        let is_free = sleep.pages > 0 && self.freed() != sleep.freed;
        let is_cancelled = cancel.is_some_and(Cancel::is_cancelled);
        if !is_free && !is_cancelled && !is_over() {
            slot.wait(sleep.at_most);
        }
        if let Some((cancel, number)) = entered {
            cancel.leave(number);
        }
        self.entries.lock().entries.remove(&number);
        self.sleeping.fetch_sub(1, SeqCst);
    }

    /// So many pages of this cache became free: wakes those who wait for some, who came first
    /// first, as many as can use them; of this cache and of the others, for it is not known here
    /// who may have them.
    pub(crate) fn free(&self, cache: u64, pages: u64) {
        self.freed.fetch_add(1, SeqCst);
        if self.sleeping.load(SeqCst) == 0 {
            return;
        }
        let (mut ours, mut others) = (pages, pages);
        for entry in self.entries.lock().entries.values_mut() {
            let left = match entry.cache == cache {
                true => &mut ours,
                false => &mut others,
            };
            if entry.pages > 0 && *left > 0 {
                *left = left.saturating_sub(entry.pages);
                // It is woken; the next to be woken is another.
                entry.pages = 0;
                entry.slot.wake();
            }
        }
    }

    /// Wakes all writers of a cache.
    pub(crate) fn wake_all(&self, cache: u64) {
        for entry in self.entries.lock().entries.values() {
            if entry.cache == cache {
                entry.slot.wake();
            }
        }
    }
}

//! Writers, as throttling sees them: each of its own share of what devices take.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use uext4_blockdev::Clock;

use crate::limits::DirtyLimits;
use crate::throttle::{Bdi, Class, Task};
use crate::waiters::{Cancel, Slot};

/// Most caches a writer is remembered of.
const CACHES_MAX: usize = 16;

/// The part of a cache that writers deal with.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) bdi: Arc<Bdi>,
    pub(crate) limits: Arc<DirtyLimits>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Which of the caches that share the limits it is.
    pub(crate) number: u64,
    /// How often all writers were called off.
    pub(crate) cancelled: AtomicU64,
}

impl Gate {
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }
}

/// One who writes: a thread, or a client of a server whose calls come from many threads. Throttling
/// shares out a device among writers, and remembers of each how fast it was.
///
/// Threads that do not say who they are ([`crate::FilePages::write`]) are a writer each.
#[derive(Debug)]
pub struct Writer {
    class: Class,
    cancel: Option<Cancel>,
    cpu: usize,
    slot: Arc<Slot>,
    known: Vec<Known>,
}

/// What a writer is to one cache.
#[derive(Debug)]
pub(crate) struct Known {
    gate: Weak<Gate>,
    pub(crate) task: Task,
    pub(crate) reported: Option<Outcome>,
    /// When its last throttling ended; zero: there was none.
    pub(crate) went_on: Duration,
    /// Why a write was let off without its pause, and how much the cache had written then: its
    /// next one is refused for it, if nothing was written meanwhile. What the file owes those who
    /// sync it is cached with the file.
    pub(crate) owed: Option<(Owed, u64)>,
}

/// An error that is reported with the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing could be written.
    Failed,
    Stalled,
}

/// A pause that the caller was asked to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) until: Duration,
    /// After it the policy wants to hear from the writer, before this writes on.
    pub(crate) resumes: bool,
    /// Failed passes of flushers when it was notified first.
    pub(crate) failed: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new(Class::Normal)
    }
}

impl Writer {
    /// One that has written nothing yet.
    #[must_use]
    pub fn new(class: Class) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self {
            class,
            cancel: None,
            cpu: NEXT.fetch_add(1, Relaxed),
            slot: Arc::default(),
            known: Vec::new(),
        }
    }

    /// The same, whose sleep ends when `cancel` is called.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// How much it counts.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// What it is to this cache.
    pub(crate) fn known(&mut self, gate: &Arc<Gate>) -> &mut Known {
        let same = |known: &Known| std::ptr::eq(known.gate.as_ptr(), Arc::as_ptr(gate));
        let found = self.known.iter().position(same);
        let index = found.unwrap_or_else(|| {
            if self.known.len() >= CACHES_MAX {
                self.known.remove(0).exit();
            }
            self.known.push(Known {
                gate: Arc::downgrade(gate),
                task: Task::new(self.class, self.cpu),
                reported: None,
                went_on: Duration::ZERO,
                owed: None,
            });
            self.known.len() - 1
        });
        &mut self.known[index]
    }
}

impl Known {
    fn exit(&mut self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.bdi.exited(&mut self.task, gate.now());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        for known in &mut self.known {
            known.exit();
        }
    }
}

/// Calls `f` with the writer that this thread is.
pub(crate) fn with_own<R>(f: impl FnOnce(&mut Writer) -> R) -> R {
    thread_local! {
        static OWN: RefCell<Option<Writer>> = const { RefCell::new(None) };
    }
    // Taken out, so that a write in the midst of another finds none rather than a borrowed one.
    let mut writer = OWN
        .try_with(RefCell::take)
        .ok()
        .flatten()
        .unwrap_or_default();
    let result = f(&mut writer);
    // A thread that ends keeps none.
    _ = OWN.try_with(|own| own.replace(Some(writer)));
    result
}

//! One file: its pages with their locks, and the accounts of what is dirty.
//!
//! What happens to a file is in other modules, each of which uses those before it: the pages
//! themselves ([`crate::pages`]) know no lock; here every change of them is brought into the
//! counters, the limits and the list of dirty files; [`crate::flush`] writes, [`crate::flusher`]
//! chooses what is written, [`crate::reclaim`] makes room with that, [`crate::balance`] makes
//! writers wait with that; [`crate::read`], [`crate::take_in`] and [`crate::discard`] need all of
//! them.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};

use crate::dirty_list::Key;
use crate::errors::Errors;
use crate::pages::Pages;
use crate::shared::Shared;
use crate::stats::{add, sub};
use crate::throttle::{PAGE_SIZE, Task, Verdict};
use crate::{Error, Mapping, MappingError, Place};

/// What the files of a cache share.
pub(crate) type Cache<E> = Shared<E, File<E>>;

/// A mapping, held weakly.
type WeakMapping<E> = Weak<dyn Mapping<Error = E>>;

/// The pages of a file, and as what they are accounted for.
pub(crate) struct State {
    pub(crate) pages: Pages,
    /// The pages that dirty bytes count as for throttling.
    pub(crate) counted: u64,
    /// Place in the list of dirty files.
    pub(crate) key: Option<Key>,
    /// The reclaim clock knows the file.
    pub(crate) registered: bool,
}

/// How far writing a file has come; under its flush lock.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Passes in a row that failed and count.
    pub(crate) failures: u32,
    /// When the last of these did.
    pub(crate) counted: Option<Duration>,
    /// Where the next turn begins.
    pub(crate) cursor: u64,
}

pub(crate) struct File<E: MappingError> {
    pub(crate) me: Weak<Self>,
    pub(crate) shared: Arc<Cache<E>>,
    pub(crate) mapping: WeakMapping<E>,
    pub(crate) state: RwLock<State>,
    pub(crate) place: Place,
    /// Held while runs are written.
    pub(crate) flush: Mutex<Progress>,
    /// Its last pass failed.
    pub(crate) is_failing: AtomicBool,
    pub(crate) errors: Errors<Error<E>>,
    /// How many loads have ended, for those that wait.
    pub(crate) loaded: Mutex<u64>,
    pub(crate) load_ended: Condvar,
    /// Copies of what the state says, to be looked at without its lock.
    pub(crate) dirty: AtomicU64,
    pub(crate) writeback: AtomicU64,
}

impl<E: MappingError> fmt::Debug for File<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("dirty", &self.dirty)
            .field("writeback", &self.writeback)
            .finish_non_exhaustive()
    }
}

impl<E: MappingError> File<E> {
    pub(crate) fn new(shared: Arc<Cache<E>>, mapping: WeakMapping<E>, place: Place) -> Arc<Self> {
        let state = State {
            pages: Pages::new(shared.shape, Arc::clone(&shared.pool)),
            counted: 0,
            key: None,
            registered: false,
        };
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            shared,
            mapping,
            state: RwLock::new(state),
            place,
            flush: Mutex::default(),
            is_failing: AtomicBool::new(false),
            errors: Errors::new(),
            loaded: Mutex::new(0),
            load_ended: Condvar::new(),
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
        })
    }

    /// Brings everything that counts up to a change of the state, which had `before` dirty bytes,
    /// and which no writer has to answer for.
    pub(crate) fn settle(&self, state: &mut State, before: u64) {
        let counted = state.pages.dirty.div_ceil(PAGE_SIZE);
        let gate = &self.shared.gate;
        if counted > state.counted {
            let (mut no_user, now) = (Task::default(), gate.now());
            gate.bdi.dirtied(&mut no_user, counted - state.counted, now);
            gate.bdi.exited(&mut no_user, now);
        } else if counted < state.counted {
            gate.bdi.cleaned(state.counted - counted, gate.now());
            gate.limits
                .waiters
                .free(gate.number, state.counted - counted);
        }
        state.counted = counted;
        self.settle_bytes(state, before);
    }

    /// As [`File::settle`], after a writer made pages dirty that were admitted; returns what it
    /// does next.
    pub(crate) fn settle_written(
        &self,
        state: &mut State,
        before: u64,
        task: &mut Task,
        now: Duration,
    ) -> Verdict {
        let counted = state.pages.dirty.div_ceil(PAGE_SIZE).max(state.counted);
        let verdict = self
            .shared
            .gate
            .bdi
            .dirtied(task, counted - state.counted, now);
        state.counted = counted;
        self.settle_bytes(state, before);
        verdict
    }

    /// Brings the counters of bytes and the list of dirty files up to a change of the state.
    fn settle_bytes(&self, state: &mut State, before: u64) {
        let (after, global) = (state.pages.dirty, &self.shared.counters.dirty);
        if after > before {
            add(&self.dirty, after - before);
            add(global, after - before);
        } else if after < before {
            sub(&self.dirty, before - after);
            sub(global, before - after);
        }
        let busy = after > 0 || self.writeback.load(Relaxed) > 0;
        match state.key {
            None if busy => {
                let since = self.shared.gate.now();
                let list = &self.shared.dirty;
                state.key = Some(list.insert(self.me.clone(), self.place, since));
            }
            Some(key) if !busy => {
                self.shared.dirty.remove(self.place, key);
                state.key = None;
            }
            _ => {}
        }
    }

    /// Settles a change that may have added folios, and lets the lock go.
    pub(crate) fn finish(&self, mut state: RwLockWriteGuard<'_, State>, before: u64) {
        self.settle(&mut state, before);
        self.let_go(state);
    }

    /// Lets the lock go after a change that may have added folios.
    pub(crate) fn let_go(&self, mut state: RwLockWriteGuard<'_, State>) {
        let is_new = state.pages.resident > 0 && !state.registered;
        state.registered |= is_new;
        drop(state);
        if is_new {
            // Not under the lock: reclaim takes them the other way round.
            self.shared.reclaim.register(self.me.clone());
        }
    }
}

impl<E: MappingError> Drop for File<E> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(key) = state.key {
            self.shared.dirty.remove(self.place, key);
        }
        if state.registered {
            self.shared.reclaim.died();
        }
        sub(&self.shared.counters.dirty, state.pages.dirty);
        add(&self.shared.counters.lost, state.pages.dirty);
        if state.pages.dirty > 0 {
            self.shared.losses.record(Error::Gone);
        }
        let gate = &self.shared.gate;
        if state.counted > 0 {
            gate.bdi.cleaned(state.counted, gate.now());
            gate.limits.waiters.free(gate.number, state.counted);
        }
    }
}

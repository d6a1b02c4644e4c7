//! The reclaim clock: the files with folios, the one under the hand first.

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

/// Files that are gone and may stand under the clock, next to an eighth of all.
const DEAD_MIN: usize = 64;

/// Held weakly: a file that is gone is passed over.
pub(crate) type Files<F> = VecDeque<Weak<F>>;

/// The files `F` of one cache. Its lock, the *reclaim* lock, comes before that of each file.
#[derive(Debug)]
pub(crate) struct Clock<F> {
    pub(crate) files: Mutex<Files<F>>,
    /// Files on the clock that are no more, about.
    dead: AtomicUsize,
}

impl<F> Clock<F> {
    pub(crate) fn new() -> Self {
        Self {
            files: Mutex::new(VecDeque::new()),
            dead: AtomicUsize::new(0),
        }
    }

    /// Puts a file under the clock. Those that are gone leave it when they are an eighth of it.
    pub(crate) fn register(&self, file: Weak<F>) {
        let mut files = self.files.lock();
        files.push_back(file);
        if self.dead.load(Relaxed) > DEAD_MIN + files.len() / 8 {
            self.dead.store(0, Relaxed);
            files.retain(|file| file.strong_count() > 0);
        }
    }

    /// A file on the clock is no more; the clock's handle keeps its memory.
    pub(crate) fn died(&self) {
        self.dead.fetch_add(1, Relaxed);
    }

    /// A file that is no more has left the clock. It may have been counted before the others were
    /// last swept out.
    pub(crate) fn swept(&self) {
        let one_less = |dead: usize| dead.checked_sub(1);
        _ = self.dead.fetch_update(Relaxed, Relaxed, one_less);
    }
}

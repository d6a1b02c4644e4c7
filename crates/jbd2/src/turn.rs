//! Whose turn it is to commit, and the thread that waits meanwhile.
//!
//! All who wait are woken at once when a turn ends, and take no lock to find out that theirs is
//! done: a queue for a lock would let them through one by one, each after the one before has run.

#[cfg(not(feature = "shuttle"))]
use std::thread::{self, Thread};

use parking_lot::Mutex;
#[cfg(feature = "shuttle")]
use shuttle::thread::{self, Thread};

#[derive(Debug, Default)]
struct State {
    taken: bool,
    waiting: Vec<Thread>,
}

/// One thread at a time has the turn.
#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<State>);

/// The turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Takes the turn. If a thread has it, waits until it may have ended and returns nothing, or
    /// does so at once if `needless`: then the caller looks again what is left to do.
    pub(crate) fn take_or_wait(&self, needless: impl FnOnce() -> bool) -> Option<Taken<'_>> {
        let mut state = self.0.lock();
        if !state.taken {
            state.taken = true;
            return Some(Taken(self));
        }
        if !needless() {
            state.waiting.push(thread::current());
            drop(state);
            // A thread that ends the turn sees this thread in the list: it does not sleep past
            // that.
            thread::park();
        }
        None
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.0.lock();
            state.taken = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(Thread::unpark);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn one_has_the_turn_and_all_get_it() {
        let turn = Turn::default();
        let (inside, done) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _taken = loop {
                            if let Some(taken) = turn.take_or_wait(|| false) {
                                break taken;
                            }
                        };
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.load(SeqCst), 4000);
    }

    #[test]
    fn no_thread_waits_needlessly() {
        let turn = Turn::default();
        let taken = turn.take_or_wait(|| false);
        assert!(taken.is_some());
        assert!(turn.take_or_wait(|| true).is_none());
        drop(taken);
        assert!(turn.take_or_wait(|| true).is_some());
    }
}

//! How long requests are served: until the file system is unmounted, or until a thread ends it.
//!
//! The thread that ends it waits for the requests under way; those that come after are refused. No
//! request takes a lock for that, nor touches memory that another thread writes.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often it is looked whether requests under way are over.
const LOOK: Duration = Duration::from_millis(1);

/// Whether a thread that reads requests is at one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Busy(AtomicBool);

#[derive(Debug, Default)]
struct State {
    threads: Vec<Arc<Busy>>,
    running: usize,
}

/// The requests in flight of a session.
#[derive(Debug, Default)]
pub struct InflightTracker {
    ended: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// One thread's part in it.
#[derive(Debug)]
pub struct Part {
    inflight: Arc<InflightTracker>,
    busy: Arc<Busy>,
}

impl InflightTracker {
    /// One more thread.
    pub fn join(self: &Arc<Self>) -> Part {
        let busy = Arc::new(Busy::default());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.threads.push(Arc::clone(&busy));
        state.running += 1;
        Part {
            inflight: Arc::clone(self),
            busy,
        }
    }

    /// No request is served any more, but those under way to their end.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
        // A caller that is about to wait has the lock.
        drop(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Whether all threads have ended.
    pub fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).running == 0
    }

    /// Waits until all threads have ended, or it was ended and no request is under way.
    pub fn wait(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.running > 0 && !self.ended.load(SeqCst) {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        for thread in threads {
            while thread.0.load(SeqCst) {
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Part {
    /// Serves a request with `f`, unless it is over.
    pub fn serve<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        self.busy.0.store(true, SeqCst);
        let served = (!self.inflight.ended.load(SeqCst)).then(f);
        self.busy.0.store(false, SeqCst);
        served
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.busy.0.store(false, SeqCst);
        let state = self.inflight.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.inflight.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn it_ends_with_its_threads() {
        let inflight = Arc::new(InflightTracker::default());
        let parts: Vec<_> = (0..3).map(|_| inflight.join()).collect();
        assert_eq!(parts[0].serve(|| 5), Some(5));
        assert!(!inflight.is_over());
        let threads = parts
            .into_iter()
            .map(|part| thread::spawn(move || drop(part)));
        let threads: Vec<_> = threads.collect();
        inflight.wait();
        assert!(inflight.is_over());
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn ending_waits_for_requests_in_flight() {
        let inflight = Arc::new(InflightTracker::default());
        let part = inflight.join();
        let (begin, begun) = mpsc::channel();
        let (finish, finished) = mpsc::channel();
        let thread = thread::spawn(move || {
            let first = part.serve(|| {
                begin.send(()).unwrap();
                finished.recv().unwrap()
            });
            (first, part.serve(|| 0))
        });
        begun.recv().unwrap();
        inflight.end();
        let waits = Arc::clone(&inflight);
        let waiter = thread::spawn(move || waits.wait());
        thread::sleep(10 * LOOK);
        assert!(!waiter.is_finished());
        finish.send(7).unwrap();
        assert_eq!(thread.join().unwrap(), (Some(7), None));
        waiter.join().unwrap();
    }
}

//! What the flusher threads of a cache share: how many run, what wakes them, the last failure.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Error, MappingError};

/// How long a flusher does nothing after nothing could be written.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What the flushers of a cache share.
#[derive(Debug)]
pub(crate) struct Flushers<E: MappingError> {
    control: Mutex<Control<E>>,
    /// For one flusher that waits for work.
    work: Condvar,
    /// For those that pause, which no work wakes.
    stopped: Condvar,
    /// A flusher is to look.
    kicked: AtomicBool,
    running: AtomicUsize,
    /// Passes in which nothing could be written.
    failed: AtomicU64,
}

#[derive(Debug)]
struct Control<E: MappingError> {
    stop: bool,
    /// The last for which nothing could be written.
    error: Option<Error<E>>,
}

impl<E: MappingError> Flushers<E> {
    pub(crate) fn new() -> Self {
        Self {
            control: Mutex::new(Control {
                stop: false,
                error: None,
            }),
            work: Condvar::new(),
            stopped: Condvar::new(),
            kicked: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Lets a flusher run that is started now.
    pub(crate) fn start(&self) {
        self.control.lock().stop = false;
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes back one [`Flushers::start`] whose thread there is not.
    pub(crate) fn unstart(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends all flushers.
    pub(crate) fn stop(&self) {
        self.control.lock().stop = true;
        self.running.store(0, Ordering::SeqCst);
        self.work.notify_all();
        self.stopped.notify_all();
    }

    pub(crate) fn are_running(&self) -> bool {
        self.count() > 0
    }

    /// How many run.
    pub(crate) fn count(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Passes in which nothing could be written.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// The error of the last of those.
    pub(crate) fn error(&self) -> Option<Error<E>> {
        self.control.lock().error.clone()
    }

    pub(crate) fn set_error(&self, error: &Error<E>) {
        self.control.lock().error = Some(error.clone());
    }

    /// A pass wrote nothing because of this error.
    pub(crate) fn pass_failed(&self, error: &Error<E>) {
        self.set_error(error);
        self.failed.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes a flusher; false if that was done already.
    pub(crate) fn kick(&self) -> bool {
        let is_first = !self.kicked.swap(true, Ordering::AcqRel);
        if is_first {
            let control = self.control.lock();
            self.work.notify_one();
            drop(control);
        }
        is_first
    }

    /// Wakes one more that waits for work, if there is one.
    pub(crate) fn wake_another(&self) {
        self.work.notify_one();
    }

    /// Wakes all that wait for work.
    pub(crate) fn wake_all(&self) {
        let control = self.control.lock();
        self.kicked.store(true, Ordering::Release);
        self.work.notify_all();
        drop(control);
    }

    /// Waits until it is time to look for something to write; false if the flusher is to end.
    pub(crate) fn wait(&self, interval: Option<Duration>, failed: bool) -> bool {
        let mut control = self.control.lock();
        if failed {
            // Kicks do not count now, or a file would soon have failed too often.
            let pause = interval.unwrap_or(RETRY_PAUSE).min(RETRY_PAUSE);
            let until_stopped = |control: &mut Control<E>| !control.stop;
            self.stopped
                .wait_while_for(&mut control, until_stopped, pause);
        } else if !control.stop && !self.kicked.load(Ordering::Acquire) {
            match interval {
                Some(interval) => drop(self.work.wait_for(&mut control, interval)),
                None => self.work.wait(&mut control),
            }
        }
        self.kicked.store(false, Ordering::Release);
        !control.stop
    }
}

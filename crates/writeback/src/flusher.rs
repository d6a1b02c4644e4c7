//! Flusher threads, and the writers who wait for them.
//!
//! A flusher wakes every `interval`, or when kicked. It writes the files that were dirty for
//! `expire` or longer; then, while more than `dirty_background` is unwritten, the others, oldest
//! first. A writer who finds more than `dirty_max` unwritten waits until it is less. If no flusher
//! is running, he writes himself. If a whole pass of a flusher wrote nothing because all failed, or
//! his own attempt did, he gets that error instead of waiting for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::shared::Shared;
use crate::stats::add;
use crate::{Error, MappingError};

/// How long a writer sleeps before he looks again without having been woken.
const NAP: Duration = Duration::from_millis(100);
/// The same where he waits for other writers.
const SHORT_NAP: Duration = Duration::from_millis(5);
/// How long a flusher does nothing after nothing could be written.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Throttle<E: MappingError> {
    control: Mutex<Control<E>>,
    wake_flushers: Condvar,
    wake_writers: Condvar,
    /// Somebody wants a flusher to look.
    kicked: AtomicBool,
    /// Writers that wait.
    waiting: AtomicUsize,
    /// Flushers that run.
    running: AtomicUsize,
}

#[derive(Debug)]
struct Control<E: MappingError> {
    stop: bool,
    /// Passes in which nothing could be written.
    failed: u64,
    error: Option<Error<E>>,
}

impl<E: MappingError> Throttle<E> {
    pub(crate) fn new() -> Self {
        Self {
            control: Mutex::new(Control {
                stop: false,
                failed: 0,
                error: None,
            }),
            wake_flushers: Condvar::new(),
            wake_writers: Condvar::new(),
            kicked: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
        }
    }

    /// Lets a flusher run that is started now.
    pub(crate) fn start(&self) {
        self.control.lock().stop = false;
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes back one [`Throttle::start`] whose thread there is not.
    pub(crate) fn unstart(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Tells all flushers to end, and the writers to help themselves.
    pub(crate) fn stop(&self) {
        self.control.lock().stop = true;
        self.running.store(0, Ordering::SeqCst);
        self.wake_flushers.notify_all();
        self.wake_writers.notify_all();
    }
}

impl<E: MappingError> Shared<E> {
    /// Wakes a flusher.
    pub(crate) fn kick(&self) {
        if !self.throttle.kicked.swap(true, Ordering::AcqRel) {
            let control = self.throttle.control.lock();
            self.throttle.wake_flushers.notify_all();
            drop(control);
        }
    }

    /// Wakes a flusher if there is more to write than there should be.
    pub(crate) fn kick_if_needed(&self) {
        if self.is_over_background() {
            self.kick();
        }
    }

    /// Wakes the writers that wait, if they may go on.
    pub(crate) fn wake_writers(&self) {
        let throttle = &self.throttle;
        if throttle.waiting.load(Ordering::SeqCst) > 0 && !self.is_over_limit() {
            let control = throttle.control.lock();
            throttle.wake_writers.notify_all();
            drop(control);
        }
    }

    fn is_over_limit(&self) -> bool {
        self.counters.unwritten() > self.dirty_max()
    }

    /// What a flusher thread does.
    pub(crate) fn run_flusher(&self) {
        let throttle = &self.throttle;
        let interval = self.options.interval;
        let mut failed = false;
        loop {
            {
                let mut control = throttle.control.lock();
                if failed {
                    // Kicks do not count now, or a file would soon have failed too often.
                    let pause = interval.min(RETRY_PAUSE);
                    let flushers = &throttle.wake_flushers;
                    flushers.wait_while_for(&mut control, |control| !control.stop, pause);
                } else if !control.stop && !throttle.kicked.load(Ordering::Acquire) {
                    throttle.wake_flushers.wait_for(&mut control, interval);
                }
                if control.stop {
                    return;
                }
                throttle.kicked.store(false, Ordering::Release);
            }
            self.flush_expired();
            failed = self.flush_background().is_err();
        }
    }

    /// Writes one file, if there is one dirty since `since` or longer with a ticket below `bound`
    /// that nobody is at.
    pub(crate) fn flush_oldest(
        &self,
        since: Duration,
        bound: u64,
    ) -> Option<Result<u64, Error<E>>> {
        let file = self.dirty.pick(since, bound)?;
        let result = file.flush_range(0..u64::MAX);
        file.requeue();
        Some(result)
    }

    /// Writes the files that were dirty for the time of expiry or longer. Errors stay with them.
    pub(crate) fn flush_expired(&self) {
        let now = self.clock.monotonic();
        let Some(since) = now.checked_sub(self.options.expire) else {
            return;
        };
        let bound = self.dirty.next_ticket();
        while self.flush_oldest(since, bound).is_some() {}
    }

    /// Writes until little enough is unwritten; each file once a pass. Fails if a pass wrote nothing
    /// because of errors.
    fn flush_background(&self) -> Result<(), Error<E>> {
        while self.is_over_background() {
            let bound = self.dirty.next_ticket();
            let (mut written, mut error) = (0, None);
            while self.is_over_background() {
                match self.flush_oldest(Duration::MAX, bound) {
                    Some(Ok(bytes)) => written += bytes,
                    // What had no owner any more is dropped: that is progress, too.
                    Some(Err(Error::Gone)) => written += 1,
                    Some(Err(failure)) => error = Some(failure),
                    None => break,
                }
            }
            if written > 0 {
                continue;
            }
            if let Some(error) = error {
                let mut control = self.throttle.control.lock();
                control.failed += 1;
                control.error = Some(error.clone());
                self.throttle.wake_writers.notify_all();
                return Err(error);
            }
            break;
        }
        Ok(())
    }

    /// Waits while too much is unwritten.
    ///
    /// # Errors
    ///
    /// What a mapping said, when nothing could be written.
    pub(crate) fn balance(&self) -> Result<(), Error<E>> {
        if !self.is_over_limit() {
            return Ok(());
        }
        add(&self.counters.throttled, 1);
        let throttle = &self.throttle;
        throttle.waiting.fetch_add(1, Ordering::SeqCst);
        let result = self.wait_below_limit();
        throttle.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn wait_below_limit(&self) -> Result<(), Error<E>> {
        let throttle = &self.throttle;
        let failed = throttle.control.lock().failed;
        while self.is_over_limit() {
            if throttle.running.load(Ordering::SeqCst) > 0 {
                self.kick();
                let mut control = throttle.control.lock();
                if control.failed != failed {
                    return match &control.error {
                        Some(error) => Err(error.clone()),
                        None => Ok(()),
                    };
                }
                if self.is_over_limit() {
                    throttle.wake_writers.wait_for(&mut control, NAP);
                }
                continue;
            }
            let bound = self.dirty.next_ticket();
            match self.flush_oldest(Duration::MAX, bound) {
                Some(Ok(_) | Err(Error::Gone)) => {}
                Some(Err(error)) => return Err(error),
                None => {
                    let mut control = throttle.control.lock();
                    throttle.wake_writers.wait_for(&mut control, SHORT_NAP);
                }
            }
        }
        Ok(())
    }

    /// Writes everything that is dirty now; the first error, after trying all.
    pub(crate) fn sync_all(&self) -> Result<(), Error<E>> {
        let mut first = Ok(());
        for file in self.dirty.files() {
            let result = file.flush_range(0..u64::MAX);
            if first.is_ok() {
                first = result.map(drop);
            }
        }
        first
    }
}

/// A flusher thread of its own.
pub(crate) fn spawn<E: MappingError>(
    shared: &Arc<Shared<E>>,
    number: usize,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name(format!("flush-{number}"))
        .spawn(move || shared.run_flusher())
}

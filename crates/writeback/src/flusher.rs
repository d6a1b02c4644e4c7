//! Flusher threads, and the writers who wait for them.
//!
//! A flusher wakes every `interval`, or when kicked. It writes the files that were dirty for
//! `expire` or longer; then, while more than `dirty_background` is unwritten, the others. Each file
//! has a turn of half a second's bytes before the next has its own, so that none starves. Flushers
//! share the shards of the list of dirty files among them, and so the areas of the device; who has
//! nothing left takes whole files from the others. In a shard the oldest are chosen, and written in
//! the order in which they lie.
//!
//! A writer who finds more than `dirty_max` unwritten waits until it is less. If no flusher
//! is running, he writes himself. If a whole pass of a flusher wrote nothing because all failed, or
//! his own attempt did, he gets that error instead of waiting for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::dirty_list::{CHOSEN_MAX, SHARDS};
use crate::file::File;
use crate::flush::Turn;
use crate::shared::Shared;
use crate::stats::add;
use crate::{Error, MappingError};

/// How long a writer sleeps before he looks again without having been woken.
const NAP: Duration = Duration::from_millis(100);
/// The same where he waits for other writers.
const SHORT_NAP: Duration = Duration::from_millis(5);
/// How long a flusher does nothing after nothing could be written.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Bytes a second that a device is taken to write.
const BANDWIDTH: u64 = 100 << 20;
/// Turns of files are a multiple of so many bytes.
const TURN_STEP: u64 = 4 << 20;

#[derive(Debug)]
pub(crate) struct Throttle<E: MappingError> {
    control: Mutex<Control<E>>,
    /// For one flusher that waits for work.
    wake_flushers: Condvar,
    /// For those that pause, whom no work wakes.
    stopped: Condvar,
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

/// What one pass over the dirty files came to.
#[derive(Debug)]
struct Pass<E: MappingError> {
    written: u64,
    /// A turn was too short for some file.
    has_more: bool,
    /// The last.
    error: Option<Error<E>>,
}

impl<E: MappingError> Pass<E> {
    fn add(&mut self, (turn, result): (Turn, Result<(), Error<E>>)) {
        self.written += turn.written;
        self.has_more |= turn.has_more;
        match result {
            Ok(()) => {}
            // What had no owner any more is dropped: that is progress, too.
            Err(Error::Gone) => self.written += 1,
            Err(error) => self.error = Some(error),
        }
    }
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
            stopped: Condvar::new(),
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
        self.stopped.notify_all();
        self.wake_writers.notify_all();
    }
}

impl<E: MappingError> Shared<E> {
    /// Wakes a flusher.
    pub(crate) fn kick(&self) {
        if !self.throttle.kicked.swap(true, Ordering::AcqRel) {
            let control = self.throttle.control.lock();
            self.throttle.wake_flushers.notify_one();
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
    pub(crate) fn run_flusher(&self, number: usize) {
        let throttle = &self.throttle;
        let interval = self.options.interval;
        let mut failed = false;
        loop {
            {
                let mut control = throttle.control.lock();
                if failed {
                    // Kicks do not count now, or a file would soon have failed too often.
                    let pause = interval.min(RETRY_PAUSE);
                    let stopped = &throttle.stopped;
                    stopped.wait_while_for(&mut control, |control| !control.stop, pause);
                } else if !control.stop && !throttle.kicked.load(Ordering::Acquire) {
                    throttle.wake_flushers.wait_for(&mut control, interval);
                }
                if control.stop {
                    return;
                }
                throttle.kicked.store(false, Ordering::Release);
            }
            self.flush_old(number);
            failed = self.flush_background(number).is_err();
        }
    }

    /// The shards in the order in which a flusher goes through them: its own, then those of the
    /// others, to take from them what they have not come to.
    fn shards_of(&self, flusher: usize) -> impl Iterator<Item = usize> + use<E> {
        let count = self.throttle.running.load(Ordering::SeqCst).max(1);
        let own = flusher % count;
        (0..count).flat_map(move |next| ((own + next) % count..SHARDS).step_by(count))
    }

    /// Gives each file that is dirty since `since` or longer when the call begins a turn, as long as
    /// `goes_on`.
    fn pass(&self, flusher: usize, since: Duration, goes_on: impl Fn() -> bool) -> Pass<E> {
        let bound = self.dirty.next_ticket();
        let mut pass = Pass {
            written: 0,
            has_more: false,
            error: None,
        };
        for shard in self.shards_of(flusher) {
            loop {
                let mut chosen = self.dirty.choose(shard, (since, bound), CHOSEN_MAX);
                if chosen.is_empty() {
                    break;
                }
                while goes_on() {
                    let Some(file) = chosen.next() else { break };
                    pass.add(self.turn(&file));
                }
                if !goes_on() {
                    return pass;
                }
            }
        }
        pass
    }

    /// Lets a file that was claimed have its turn.
    fn turn(&self, file: &File<E>) -> (Turn, Result<(), Error<E>>) {
        let (turn, result) = file.flush_turn(self.turn_max());
        file.requeue(turn.has_more);
        (turn, result)
    }

    /// Bytes of a file that are written before the next has its turn.
    fn turn_max(&self) -> u64 {
        let limit = self.dirty_max() / 8;
        (BANDWIDTH / 2)
            .min(limit)
            .max(1)
            .next_multiple_of(TURN_STEP)
    }

    /// Writes some of one file, if there is one that nobody is at; the oldest of its shard.
    pub(crate) fn flush_any(&self) -> Option<Result<u64, Error<E>>> {
        let bound = self.dirty.next_ticket();
        let first = bound as usize;
        let file = (0..SHARDS).find_map(|next| {
            let every = (Duration::MAX, bound);
            self.dirty.choose(first.wrapping_add(next), every, 1).next()
        })?;
        let (turn, result) = self.turn(&file);
        Some(result.map(|()| turn.written))
    }

    /// Writes what has been dirty for the time of expiry or longer, all of it; as if by the first
    /// flusher. Errors stay with the files.
    pub(crate) fn flush_expired(&self) {
        self.flush_old(0);
    }

    fn flush_old(&self, flusher: usize) {
        let now = self.clock.monotonic();
        let Some(since) = now.checked_sub(self.options.expire) else {
            return;
        };
        // No more than there is now, for some files may become dirty all the time.
        let mut left = self.counters.unwritten();
        loop {
            let pass = self.pass(flusher, since, || true);
            left = left.saturating_sub(pass.written);
            if !pass.has_more || pass.written == 0 || left == 0 {
                return;
            }
        }
    }

    /// Writes until little enough is unwritten. Fails if a pass wrote nothing because of errors.
    fn flush_background(&self, flusher: usize) -> Result<(), Error<E>> {
        while self.is_over_background() {
            self.wake_another();
            let pass = self.pass(flusher, Duration::MAX, || self.is_over_background());
            if pass.written > 0 {
                continue;
            }
            let Some(error) = pass.error else {
                break;
            };
            let mut control = self.throttle.control.lock();
            control.failed += 1;
            control.error = Some(error.clone());
            self.throttle.wake_writers.notify_all();
            return Err(error);
        }
        Ok(())
    }

    /// Wakes one more flusher if there is more to write than one turn brings away.
    fn wake_another(&self) {
        if self.throttle.running.load(Ordering::SeqCst) < 2 {
            return;
        }
        let excess = self
            .counters
            .unwritten()
            .saturating_sub(self.dirty_background());
        if excess > self.turn_max() {
            self.throttle.wake_flushers.notify_one();
        }
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
            match self.flush_any() {
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
        .spawn(move || shared.run_flusher(number))
}

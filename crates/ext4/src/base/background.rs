//! The background threads, which do due work periodically and when they are woken: one commits
//! after five seconds and checkpoints, one shrinks what is over the budget. Flushing pages has
//! threads of its own in the room of pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// What the thread and the others share.
#[derive(Debug, Default)]
struct Control {
    stop: Mutex<bool>,
    wake: Condvar,
    woken: AtomicBool,
}

/// A running thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Background {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes a thread before its time.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<Control>);

impl Background {
    /// Starts it. It calls `work` every `interval` of real time, and when it is woken, until that
    /// says false.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        work: impl Fn() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let control = Arc::new(Control::default());
        let shared = Arc::clone(&control);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&work, interval, &shared))?;
        Ok(Self {
            control,
            thread: Some(thread),
        })
    }

    /// What wakes it.
    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.control))
    }
}

impl Waker {
    /// Wakes the thread; costs one load if that was done already.
    pub(crate) fn wake(&self) {
        if !self.0.woken.load(Ordering::Relaxed) && !self.0.woken.swap(true, Ordering::AcqRel) {
            let _stop = self.0.stop.lock();
            self.0.wake.notify_all();
        }
    }
}

fn run(work: &dyn Fn() -> bool, interval: Duration, control: &Control) {
    loop {
        let mut stop = control.stop.lock();
        if !*stop && !control.woken.load(Ordering::Acquire) {
            control.wake.wait_for(&mut stop, interval);
        }
        if *stop {
            return;
        }
        drop(stop);
        control.woken.store(false, Ordering::Release);
        if !work() {
            return;
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        *self.control.stop.lock() = true;
        self.control.wake.notify_all();
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != own
        {
            // A panic of the thread has been informed where it happened.
            _ = thread.join();
        }
    }
}

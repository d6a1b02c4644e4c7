//! The thread that does what is due: commits after five seconds, checkpoints, and shrinking what is
//! over the budget. Flushing pages has threads of its own in the room of pages.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often the thread looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// A running thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it. It calls `work` every second until that says false.
    ///
    /// # Errors
    /// The system has no thread for us.
    pub(crate) fn start(work: impl Fn() -> bool + Send + 'static) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("uext4-journal".to_owned())
            .spawn(move || run(&work, &stopped))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

fn run(work: &dyn Fn() -> bool, (stopped, wake): &(Mutex<bool>, Condvar)) {
    loop {
        let mut stop = stopped.lock();
        if !*stop {
            wake.wait_for(&mut stop, INTERVAL);
        }
        if *stop {
            return;
        }
        drop(stop);
        if !work() {
            return;
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        let own = std::thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != own
        {
            // A panic of the thread has been told where it happened.
            _ = thread.join();
        }
    }
}

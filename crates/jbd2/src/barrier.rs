//! Flushes of the device, shared by all who need one at the same moment.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use uext4_blockdev::BlockDevice;

use crate::Error;

/// Shares flushes: whoever needs one that *starts* after a certain moment takes a [`Ticket`] then,
/// and later either finds that somebody's flush did, joins the next one, or does it.
#[derive(Debug)]
pub struct Barrier {
    device: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Flushes begun.
    begun: u64,
    /// The last of them that succeeded.
    done: u64,
    running: bool,
    failed: bool,
}

/// A moment: writes that had returned when it was taken are durable once [`Barrier::wait`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

impl Barrier {
    /// Over a device of which nobody else flushes.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            state: Mutex::default(),
            finished: Condvar::new(),
        }
    }

    /// This moment.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.state.lock().begun)
    }

    /// Makes durable what was written before now.
    ///
    /// # Errors
    /// As [`Barrier::wait`].
    pub fn flush(&self) -> Result<(), Error> {
        self.wait(self.ticket())
    }

    /// Returns when a flush that began after `ticket` has succeeded.
    ///
    /// # Errors
    /// The device's error for who met it, [`Error::FlushFailed`] for everybody after that: what was
    /// written before a failed flush may be lost, and no later flush tells.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            if state.failed {
                return Err(Error::FlushFailed);
            }
            if state.done > ticket.0 {
                return Ok(());
            }
            if !state.running {
                break;
            }
            self.finished.wait(&mut state);
        }
        state.running = true;
        state.begun += 1;
        let number = state.begun;
        drop(state);
        let result = self.device.flush();
        let mut state = self.state.lock();
        state.running = false;
        match &result {
            Ok(()) => state.done = number,
            Err(_) => state.failed = true,
        }
        self.finished.notify_all();
        Ok(result?)
    }
}

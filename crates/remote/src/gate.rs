//! Closing a file system that others have commands for.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// How long a batch that is to end may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Holds batches back from a file system that is being closed.
#[derive(Debug, Default)]
pub struct Gate {
    /// Held while a batch is served.
    pub(crate) busy: RwLock<()>,
    is_closing: AtomicBool,
}

impl Gate {
    /// Ends the batches under way before their next request or piece of contents, and waits until
    /// they have ended. One that waits for another process is left behind after a while: the
    /// engine refuses what it does later.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        _ = self.busy.try_write_for(PATIENCE);
    }

    /// Whether it is being closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }
}

/// The connection ends with the file system.
pub(crate) fn closing() -> io::Error {
    io::Error::other("the file system is being closed")
}

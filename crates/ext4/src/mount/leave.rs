//! What becomes of a file system that is dropped without [`close`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::error::Result;
use crate::journal::sbi::Sbi;
use crate::mount::in_use::{close, stop_threads};
use crate::mount::super_::sync;

/// Shared by the clones of a [`crate::Volume`]. The last of them makes durable what was done, and
/// closes the file system if no inode is in use.
#[derive(Debug)]
pub(crate) struct Users(Arc<Sbi>);

impl Users {
    pub(crate) fn new(sbi: &Arc<Sbi>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(sbi)))
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let Some(rw) = self.0.rw() else { return };
        if rw.is_left.load(Relaxed) {
            return;
        }
        // Threads of the file system have it for moments, and must not be the last that do: they
        // would wait for their own end.
        stop_threads(rw);
        match Arc::strong_count(&self.0) {
            1 => leave(&self.0, close),
            _ => {
                // From now on each inode that is in use writes its data when its user goes.
                rw.writes_on_drop.store(true, Relaxed);
                leave(&self.0, sync);
            }
        }
    }
}

/// The last inode in use is gone, too, and has written its data: that takes the file system.
impl Drop for Sbi {
    fn drop(&mut self) {
        leave(self, close);
    }
}

/// What is left without [`close`] is written as far as it can be. Not in a thread that panics: what
/// it had begun may be half-done, and the journal has what was whole.
fn leave(sbi: &Sbi, write: fn(&Sbi, &AtomicU64) -> Result<()>) {
    let Some(rw) = sbi.rw() else { return };
    if rw.is_left.load(Relaxed) || std::thread::panicking() || rw.journal.is_aborted() {
        return;
    }
    if let Err(error) = write(sbi, &AtomicU64::new(0)) {
        tracing::error!(%error, "a file system was dropped without close, and not all was written");
    }
}

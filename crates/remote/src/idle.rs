//! Connections for which nothing is done and nothing is kept.
//!
//! A client may stay for as long as it likes. Where one more has no room, the one that has been
//! idle longest makes it: it has no file open and no snapshot, so nothing of it is lost but the
//! connection.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

/// The idle connections, the one that has been idle longest first.
#[derive(Clone, Debug, Default)]
pub struct Idle(Arc<Mutex<VecDeque<Arc<UnixStream>>>>);

impl Idle {
    /// Ends the connection that has been idle longest. Returns false if none is.
    #[must_use]
    pub fn end_longest(&self) -> bool {
        let longest = self.0.lock().pop_front();
        if let Some(stream) = &longest {
            // One that has gone by itself has made room, too.
            _ = stream.shutdown(Shutdown::Both);
        }
        longest.is_some()
    }

    /// This connection is idle from now on.
    pub(crate) fn enter(&self, stream: &Arc<UnixStream>) {
        self.0.lock().push_back(Arc::clone(stream));
    }

    /// This connection is idle no more. Returns false if it was ended, and must do nothing.
    pub(crate) fn leave(&self, stream: &Arc<UnixStream>) -> bool {
        let mut all = self.0.lock();
        let place = all.iter().position(|other| Arc::ptr_eq(other, stream));
        place.and_then(|place| all.remove(place)).is_some()
    }
}

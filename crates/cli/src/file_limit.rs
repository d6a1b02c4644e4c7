//! The limit of the system on the size of files (`ulimit -f`).

use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Has what goes past the limit be an error. Without a handler, SIGXFSZ would end the process where
/// it is: a mount's daemon with everything that is not written yet.
pub fn is_an_error() {
    // Not ignored: programs that are started here would inherit that.
    _ = flag::register(SIGXFSZ, Arc::default());
}

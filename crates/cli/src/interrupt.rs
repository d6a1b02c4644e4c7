//! SIGINT and SIGTERM while a file system is examined or repaired: the examination stops, with
//! nothing written; what is being written is completed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::messages;

/// What the handlers of both signals look at and set.
struct Flags {
    /// A signal came while they were deferred.
    requested: Arc<AtomicBool>,
    /// Signals end the process as they would without handlers.
    is_default: Arc<AtomicBool>,
    /// Signals end the process at once with [`Exit::Interrupted`].
    is_immediate: Arc<AtomicBool>,
}

impl Flags {
    fn get() -> &'static Self {
        static FLAGS: OnceLock<Flags> = OnceLock::new();
        FLAGS.get_or_init(|| {
            let flags = Self {
                requested: Arc::default(),
                is_default: Arc::default(),
                is_immediate: Arc::default(),
            };
            let code = messages::code(Exit::Interrupted).into();
            for signal in [SIGINT, SIGTERM] {
                // Without a handler the signal ends the process, which a repair survives, too.
                let default = Arc::clone(&flags.is_default);
                _ = flag::register_conditional_default(signal, default);
                let immediate = Arc::clone(&flags.is_immediate);
                _ = flag::register_conditional_shutdown(signal, code, immediate);
                _ = flag::register(signal, Arc::clone(&flags.requested));
            }
            flags
        })
    }
}

/// As long as it lives, the signals only set what [`is_requested`] returns.
#[must_use]
pub struct Deferred(());

/// Defers the signals.
pub fn defer() -> Deferred {
    Flags::get().is_default.store(false, Ordering::SeqCst);
    Deferred(())
}

impl Drop for Deferred {
    fn drop(&mut self) {
        Flags::get().is_default.store(true, Ordering::SeqCst);
    }
}

/// Whether a signal came that was deferred.
pub fn is_requested() -> bool {
    Flags::get().requested.load(Ordering::SeqCst)
}

/// The place to stop at, before anything is written.
///
/// # Errors
/// Exit 32 as of fsck(8) if a signal came that was deferred.
pub fn stop_if_requested() -> Result<(), Failure> {
    match is_requested() {
        true => Err(Failure::new(Exit::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

/// Calls `ask`, which waits for the user: the signals end the process at once meanwhile.
///
/// # Errors
/// As [`stop_if_requested`].
pub fn while_asking<T>(ask: impl FnOnce() -> T) -> Result<T, Failure> {
    let flags = Flags::get();
    flags.is_immediate.store(true, Ordering::SeqCst);
    // One may have come before that.
    stop_if_requested()?;
    let answer = ask();
    flags.is_immediate.store(false, Ordering::SeqCst);
    Ok(answer)
}

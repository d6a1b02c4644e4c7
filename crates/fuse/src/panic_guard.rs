//! What a panic leads to: an error for the caller, and an end of all writing.
//!
//! There should be none. Where there is one, what is in memory may be half-done: from then on
//! nothing of it reaches the image, as after a journal that could not be written. What was
//! durable stays as it was, the mount goes on reading, and the next one replays the journal.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use uext4::Volume;

use crate::report::report;

/// Catches panics.
#[derive(Clone, Debug, Default)]
pub struct PanicGuard {
    /// What is written no more after one; `None` for what was opened for reading.
    writable: Option<Volume>,
}

impl PanicGuard {
    /// Of a file system, if it was opened for writing: whatever ends its writing is reported from
    /// now on.
    pub fn new(writable: Option<Volume>) -> Self {
        if let Some(fs) = &writable {
            fs.on_abort(|reason| {
                report(&format!(
                    "nothing is written any more: {reason}; unmount, and mount again"
                ));
            });
        }
        Self { writable }
    }

    /// What `f` answers; `None` if it panicked.
    pub fn catch<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let caught = catch_unwind(AssertUnwindSafe(f));
        caught.map_err(|panic| self.broken(&*panic)).ok()
    }

    fn broken(&self, panic: &dyn Any) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let what = format!("an error of ours: {}", text.unwrap_or("a panic"));
        report(&what);
        if let Some(fs) = &self.writable {
            fs.abort(&what);
        }
    }
}

//! A number for each thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number of the calling thread, more than 0, that no other thread of the process has.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}

//! How much memory a run may take.

use std::fs;

/// Bytes that the process may grow by.
const GROWTH_MAX: u64 = 1 << 30;

/// What the process had when a run began.
#[derive(Debug)]
pub struct Limits {
    before: u64,
}

/// A field of `/proc/self/status`, in bytes; 0 if there is none.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

impl Limits {
    /// From now on.
    pub fn new() -> Self {
        // Lets the greatest size be measured anew.
        _ = fs::write("/proc/self/clear_refs", "5");
        Self {
            before: memory("VmRSS"),
        }
    }

    /// Asserts that the process did not grow by more than it may.
    #[track_caller]
    pub fn assert_kept(&self) {
        let growth = memory("VmHWM").saturating_sub(self.before);
        assert!(growth <= GROWTH_MAX, "grew by {growth} bytes");
    }
}

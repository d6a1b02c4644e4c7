//! Whether a thread that waits for an answer is about to end.
//!
//! The kernel reports a signal to a thread that waits (INTERRUPT), but not which. One that ends
//! the process leaves SIGKILL pending for each of its threads, whichever signal it was, and a
//! thread that waits for us has it pending until it is answered: `/proc` shows that.

use std::fs;
use std::path::PathBuf;

/// The bit of SIGKILL in a set of signals.
const SIGKILL: u64 = 1 << 8;

/// Where threads are looked up.
#[derive(Clone, Debug)]
pub struct Threads {
    proc: PathBuf,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
        }
    }
}

impl Threads {
    /// Looked up in a directory with the form of `/proc`.
    #[cfg(test)]
    pub fn at(proc: PathBuf) -> Self {
        Self { proc }
    }

    /// Whether SIGKILL is pending for a thread. False where it cannot be seen: in another pid
    /// namespace (number 0), or in a `/proc` that hides it.
    pub fn is_dying(&self, thread: u32) -> bool {
        let file = self.proc.join(thread.to_string()).join("status");
        thread != 0 && fs::read_to_string(file).is_ok_and(|status| has_sigkill(&status))
    }
}

fn has_sigkill(status: &str) -> bool {
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    pending.is_some_and(|pending| pending & SIGKILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sigkill_ends_a_thread() {
        let status = |pending: &str| format!("Name:\tdd\nSigPnd:\t{pending}\nShdPnd:\t0\n");
        assert!(has_sigkill(&status("0000000000000100")));
        assert!(has_sigkill(&status("0000000000004100")));
        assert!(!has_sigkill(&status("0000000000004000")));
        assert!(!has_sigkill(&status("what is no number")));
        assert!(!has_sigkill("ShdPnd:\t0000000000000100\n"));
    }

    #[test]
    fn this_thread_goes_on() {
        let threads = Threads::default();
        assert!(!threads.is_dying(std::process::id()));
        assert!(!threads.is_dying(0));
        assert!(!threads.is_dying(u32::MAX));
    }
}

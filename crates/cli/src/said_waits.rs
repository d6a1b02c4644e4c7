//! The machine's clock for commands that wait for other hosts, which say so.

use std::time::Duration;

use uext4_blockdev::{Clock, SystemClock};

use crate::messages;

/// Shorter waits are not said.
const SILENT: Duration = Duration::from_secs(1);

/// Waits for hosts that may have the file system too.
pub fn pause(time: Duration) {
    messages::warning(format_args!(
        "multiple mount protection: waiting {} s for other hosts",
        time.as_secs()
    ));
    std::thread::sleep(time);
}

/// A clock whose long waits are said on standard error.
#[derive(Debug)]
pub struct SaidWaits;

impl Clock for SaidWaits {
    fn now(&self) -> (i64, u32) {
        SystemClock.now()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        match duration > SILENT {
            true => pause(duration),
            false => SystemClock.sleep(duration),
        }
    }
}

//! When it is worth trying to serve a single stream near its caller.

use std::time::{Duration, Instant};

/// How long it is left alone after a trial.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// A trial that lasted so long makes the pause short again.
const LASTING: Duration = Duration::from_millis(200);
/// Small requests of one caller, one after the other, after which it is taken for the only one.
const ALIKE: u32 = 12;

/// What one thread that reads requests has seen.
#[derive(Debug)]
pub struct Trials {
    began: Instant,
    due: Instant,
    pause: Duration,
    caller: u32,
    alike: u32,
}

impl Trials {
    /// Of a thread that has seen nothing.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            due: now,
            pause: PAUSE_MIN,
            caller: 0,
            alike: 0,
        }
    }

    /// A request of a caller came: whether it is time to try.
    pub fn see(&mut self, caller: u32, is_small: bool) -> bool {
        self.alike = match caller == self.caller && is_small {
            true => self.alike.saturating_add(1),
            false => 0,
        };
        self.caller = caller;
        self.alike >= ALIKE && Instant::now() >= self.due
    }

    /// A trial begins.
    pub fn begin(&mut self) {
        self.began = Instant::now();
        self.alike = 0;
    }

    /// It was in vain, or is over at last: the next pause is twice as long, or short again.
    pub fn end(&mut self) {
        let now = Instant::now();
        self.pause = match now.duration_since(self.began) > LASTING {
            true => PAUSE_MIN,
            false => (self.pause * 2).min(PAUSE_MAX),
        };
        self.due = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a trial begins with the last of so many requests of one caller.
    fn begins(trials: &mut Trials, count: u32, is_small: bool) -> bool {
        (0..count).fold(false, |_, _| trials.see(7, is_small))
    }

    #[test]
    fn one_caller_and_small_requests() {
        let mut trials = Trials::new();
        assert!(!begins(&mut trials, ALIKE, true));
        assert!(begins(&mut trials, 1, true));
        assert!(!begins(&mut trials, 100, false));
        for _ in 0..100 {
            assert!(!trials.see(8, true) && !trials.see(7, true));
        }
    }

    #[test]
    fn pauses_grow_to_seconds() {
        let mut trials = Trials::new();
        for _ in 0..12 {
            trials.begin();
            trials.end();
            assert!(!begins(&mut trials, 2 * ALIKE, true));
        }
        assert_eq!(trials.pause, PAUSE_MAX);
        trials.began = Instant::now().checked_sub(2 * LASTING).unwrap();
        trials.end();
        assert_eq!(trials.pause, PAUSE_MIN);
    }
}

//! How a file grew: what its requests so far say of the next.

use uext4_ondisk::Lblk;

/// The mean of past runs moves by this part of what a run differs from it.
const WEIGHT: u64 = 4;

/// What lies in the file right before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Mapped blocks.
    Mapped,
    /// A hole.
    Hole,
}

/// What the requests for one file's data were like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The last request: its first block, and its end.
    last: u64,
    next: u64,
    /// Blocks of the run that ends there, each request of which began where the one before ended.
    run: u64,
    /// Requests of that run.
    requests: u32,
    /// Exponentially weighted mean of the runs before, in blocks; 0 if there were none.
    mean: u64,
    /// The run began where the file did, or at its end.
    appends: bool,
    /// Blocks the last window got, if that was less than it wanted.
    granted: Option<u64>,
}

impl History {
    /// Notes a request for `len` blocks at `lblk`, behind what is `before` it.
    pub fn note(&mut self, lblk: Lblk, len: u32, before: Before) {
        let lblk = u64::from(lblk.0);
        let end = lblk + u64::from(len);
        if self.requests > 0 && (self.last + 1..self.next).contains(&lblk) {
            // It was answered in part: this is its rest.
            self.run = self.run.saturating_add(end.saturating_sub(self.next));
            self.next = self.next.max(end);
            self.last = lblk;
            return;
        }
        if lblk == self.next && self.requests > 0 {
            self.run = self.run.saturating_add(len.into());
            self.requests = self.requests.saturating_add(1);
        } else {
            if self.requests > 0 {
                let (mean, run) = (self.mean, self.run);
                self.mean = match mean {
                    0 => run,
                    mean => mean - mean / WEIGHT + run / WEIGHT,
                };
            }
            // After a seek, only going on from there makes a run; the first request is believed.
            self.appends = self.requests == 0 && (lblk == 0 || before == Before::Mapped);
            (self.run, self.requests) = (len.into(), 1);
        }
        (self.last, self.next) = (lblk, end);
    }

    /// Notes what a window got of what it wanted.
    pub fn note_window(&mut self, wanted: u32, got: u32) {
        self.granted = (got < wanted).then_some(got.into());
    }

    /// Whether more is to be expected behind the last request.
    pub fn is_sequential(&self) -> bool {
        self.appends || self.requests > 1
    }

    /// Blocks of a run like the last one: its length so far, or what runs had in the mean.
    pub fn run(&self) -> u64 {
        self.run.max(self.mean)
    }

    /// What the last window got, if the device had less than it wanted.
    pub(crate) fn granted(&self) -> Option<u64> {
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_request_is_not_a_seek() {
        let mut history = History::default();
        history.note(Lblk(0), 1000, Before::Hole);
        for rest in [(190, 810), (300, 700), (310, 890)] {
            history.note(Lblk(rest.0), rest.1, Before::Mapped);
        }
        assert!(history.is_sequential());
        assert_eq!((history.run(), history.requests), (1200, 1));
        history.note(Lblk(1200), 1000, Before::Mapped);
        assert_eq!((history.run(), history.requests), (2200, 2));
        // The same blocks once more: written again from the start.
        history.note(Lblk(1200), 8, Before::Hole);
        assert_eq!((history.run, history.requests), (8, 1));
    }
}

//! Sending what was written on its way to the medium.
//!
//! A write ends in the page cache of the machine, where gigabytes can wait. Whoever limits how much
//! is dirty must see them go: what is [sent](Behind::send) is gathered to batches, each batch is
//! started, and the batch a few before it is waited for. So at most [`UNSENT_MAX`] and
//! [`UNDER_WAY_MAX`] batches are not on the medium yet, and who writes much is as slow as the medium.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::sys;

/// Bytes that are gathered before writing them is started: few calls, and large requests.
pub(crate) const UNSENT_MAX: u64 = 4 << 20;
/// Batches that may be under way: enough to keep a fast device busy while the next is copied, and
/// little on a slow one.
pub(crate) const UNDER_WAY_MAX: usize = 4;
/// Ranges no farther apart than this are started by one call. What lies between is written, too,
/// if it is dirty, which is allowed at any time.
const GAP_MAX: u64 = 256 << 10;

/// What was written through one device and is not known to be on the medium.
#[derive(Debug)]
pub(crate) struct Behind {
    /// The same file, opened once more: what writing these pages fails with is still reported to
    /// who flushes the first one.
    file: Option<File>,
    /// The file system of the machine does not know the call.
    is_refused: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    unsent: Vec<Range<u64>>,
    unsent_bytes: u64,
    under_way: VecDeque<Vec<Range<u64>>>,
}

impl Behind {
    /// For a file that is open a second time as `file`; without it nothing is sent.
    pub(crate) fn new(file: Option<File>) -> Self {
        Self {
            file,
            is_refused: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// A range was written. Returns when little enough is under way.
    pub(crate) fn send(&self, range: Range<u64>) {
        let Some(file) = self
            .file
            .as_ref()
            .filter(|_| !self.is_refused.load(Relaxed))
        else {
            return;
        };
        let Some(batch) = self.state.lock().gather(range) else {
            return;
        };
        for range in &batch {
            if let Err(error) = sys::start_writing(file, range) {
                // What failed now may go on later; a caller of flush gets the error.
                let unknown = [Errno::NOSYS, Errno::INVAL, Errno::SPIPE, Errno::OPNOTSUPP];
                let errno = Errno::from_io_error(&error);
                if errno.is_some_and(|errno| unknown.contains(&errno)) {
                    self.is_refused.store(true, Relaxed);
                    return;
                }
            }
        }
        let before = {
            let mut state = self.state.lock();
            state.under_way.push_back(batch);
            let is_much = state.under_way.len() > UNDER_WAY_MAX;
            is_much.then(|| state.under_way.pop_front()).flatten()
        };
        for range in before.iter().flatten() {
            // A caller of flush gets the error.
            _ = sys::wait_for_writing(file, range);
        }
    }

    /// All that was written before is being flushed.
    pub(crate) fn flushed(&self) {
        let mut state = self.state.lock();
        state.unsent.clear();
        state.unsent_bytes = 0;
        state.under_way.clear();
    }
}

impl State {
    /// Adds a range; a batch once there is enough for one.
    fn gather(&mut self, range: Range<u64>) -> Option<Vec<Range<u64>>> {
        self.unsent_bytes += range.end.saturating_sub(range.start);
        match self.unsent.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.unsent.push(range),
        }
        if self.unsent_bytes < UNSENT_MAX {
            return None;
        }
        self.unsent_bytes = 0;
        let mut batch = std::mem::take(&mut self.unsent);
        batch.sort_unstable_by_key(|range| range.start);
        batch.dedup_by(|next, last| {
            let joins = next.start <= last.end.saturating_add(GAP_MAX);
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_started_by_one_call() {
        let mut state = State::default();
        let piece = UNSENT_MAX / 4;
        let far = 1 << 40;
        for start in [2 * piece, far, 0] {
            assert_eq!(state.gather(start..start + piece), None);
        }
        // In any order, and over a small gap.
        let batch = state.gather(piece + 4096..2 * piece + 4096).unwrap();
        assert_eq!(batch, [0..3 * piece, far..far + piece]);
        assert_eq!((state.unsent_bytes, state.unsent.len()), (0, 0));
    }

    #[test]
    fn no_more_batches_are_remembered_than_may_be_under_way() {
        let behind = Behind::new(Some(tempfile::tempfile().unwrap()));
        for number in 0..20 {
            let start = number * UNSENT_MAX;
            behind.send(start..start + UNSENT_MAX);
        }
        assert!(behind.state.lock().under_way.len() <= UNDER_WAY_MAX);
        behind.send(0..1);
        behind.flushed();
        assert!(behind.state.lock().unsent.is_empty());
    }
}

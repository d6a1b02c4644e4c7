//! Sending what was written on its way to the medium.
//!
//! A write ends in the page cache of the machine, where gigabytes can wait. A thread that limits
//! how much is dirty must see them go: what is [sent](Behind::send) is gathered to batches, each
//! batch is started, and the batch a few before it is waited for. So at most [`UNDER_WAY_MAX`]
//! batches, one that is gathered, and one for each thread that waits are not on the medium yet,
//! and a thread that writes much is as slow as the medium.
//!
//! A batch is what the medium writes in [`BATCH_TIME`], as measured, up to [`UNSENT_MAX`]: on a
//! slow medium a flush would wait for larger ones, and they would add to the data that their
//! owner counts as dirty. The first batches are small, and grow while no thread has to wait.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::sys;

/// Most bytes that are gathered before writing them is started: few calls, and large requests.
pub(crate) const UNSENT_MAX: u64 = 4 << 20;
/// Fewest bytes of a batch, however slow the medium is.
const UNSENT_MIN: u64 = 256 << 10;
/// How long the medium is to take for a batch.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// How long the rate of the medium is measured, and after what time without an end it begins anew.
const WINDOW: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(1);
/// A wait of less did not wait for the medium.
const WAIT_MIN: Duration = Duration::from_millis(1);
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
    /// a caller that flushes the first one.
    file: Option<File>,
    /// The file system of the machine does not know the call.
    is_refused: AtomicBool,
    state: Mutex<State>,
}

/// What is started by as few calls as possible, in order.
#[derive(Debug, PartialEq)]
struct Batch {
    ranges: Vec<Range<u64>>,
    bytes: u64,
}

#[derive(Debug)]
struct State {
    unsent: Vec<Range<u64>>,
    unsent_bytes: u64,
    under_way: VecDeque<Batch>,
    /// Bytes at which a batch is whole.
    batch_bytes: u64,
    measured: Measured,
}

/// What has reached the medium since a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    since: Option<Instant>,
    bytes: u64,
    /// Some thread had to wait for it.
    has_waited: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            unsent: Vec::new(),
            unsent_bytes: 0,
            under_way: VecDeque::new(),
            batch_bytes: UNSENT_MIN,
            measured: Measured::default(),
        }
    }
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
        for range in &batch.ranges {
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
        let Some(before) = before else { return };
        let began = Instant::now();
        for range in &before.ranges {
            // A caller of flush gets the error.
            _ = sys::wait_for_writing(file, range);
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        state.reached(before.bytes, now, now - began >= WAIT_MIN);
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
    /// So many bytes have reached the medium, for which a thread had to wait or not.
    fn reached(&mut self, bytes: u64, now: Instant, has_waited: bool) {
        let measured = &mut self.measured;
        let since = *measured.since.get_or_insert(now);
        measured.bytes += bytes;
        measured.has_waited |= has_waited;
        let time = now.saturating_duration_since(since);
        if time < WINDOW {
            return;
        }
        if time < IDLE {
            let wanted = match measured.has_waited {
                // OK to cast: a second of the fastest medium, in bytes.
                true => (measured.bytes as f64 * BATCH_TIME.div_duration_f64(time)) as u64,
                false => self.batch_bytes * 2,
            };
            self.batch_bytes = wanted.clamp(UNSENT_MIN, UNSENT_MAX);
        }
        self.measured = Measured {
            since: Some(now),
            ..Measured::default()
        };
    }

    /// Adds a range; a batch once there is enough for one.
    fn gather(&mut self, range: Range<u64>) -> Option<Batch> {
        self.unsent_bytes += range.end.saturating_sub(range.start);
        match self.unsent.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.unsent.push(range),
        }
        if self.unsent_bytes < self.batch_bytes {
            return None;
        }
        let bytes = std::mem::take(&mut self.unsent_bytes);
        let mut ranges = std::mem::take(&mut self.unsent);
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, last| {
            let joins = next.start <= last.end.saturating_add(GAP_MAX);
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Some(Batch { ranges, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_started_by_one_call() {
        let mut state = State::default();
        let piece = UNSENT_MIN / 4;
        let far = 1 << 40;
        for start in [2 * piece, far, 0] {
            assert_eq!(state.gather(start..start + piece), None);
        }
        // In any order, and over a small gap.
        let batch = state.gather(piece + 4096..2 * piece + 4096).unwrap();
        assert_eq!(batch.ranges, [0..3 * piece, far..far + piece]);
        assert_eq!(batch.bytes, UNSENT_MIN);
        assert_eq!((state.unsent_bytes, state.unsent.len()), (0, 0));
    }

    #[test]
    fn batches_are_what_the_medium_writes_in_their_time() {
        let mut state = State::default();
        let mut now = Instant::now();
        let mut write = |state: &mut State, rate: u64, has_waited| {
            for _ in 0..40 {
                state.reached(rate / 100, now, has_waited);
                now += Duration::from_millis(10);
            }
        };
        write(&mut state, 50_000_000, true);
        let wanted = 900_000..1_200_000;
        assert!(wanted.contains(&state.batch_bytes), "{}", state.batch_bytes);
        let piece = state.batch_bytes / 2 + 1;
        assert_eq!(state.gather(0..piece), None);
        assert!(state.gather(piece..2 * piece).is_some());
        write(&mut state, 100_000, true);
        assert_eq!(state.batch_bytes, UNSENT_MIN);
        // As fast as it is written: all that is known is that it is not slow.
        write(&mut state, 100_000, false);
        write(&mut state, 100_000, false);
        assert_eq!(state.batch_bytes, UNSENT_MAX);
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

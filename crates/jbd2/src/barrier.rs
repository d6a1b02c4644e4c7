//! Flushes of the device, shared by all who need one at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_blockdev::BlockDevice;

use crate::Error;
use crate::turn::Turn;

/// Shares flushes: any thread that needs one that *starts* after a certain moment takes a
/// [`FlushSeq`] then, and later either finds that another thread's flush did, joins the next one,
/// or does it.
#[derive(Debug)]
pub struct Barrier {
    device: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    /// Held by the thread that flushes; the others wait for it.
    turn: Turn,
    /// Nothing is flushed.
    is_off: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Flushes begun.
    begun: u64,
    /// The last of them that succeeded.
    done: u64,
    failed: bool,
}

/// A moment: writes that had returned when it was taken are durable once [`Barrier::wait`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushSeq(u64);

impl Barrier {
    /// Over a device of which no other thread flushes.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            state: Mutex::default(),
            turn: Turn::default(),
            is_off: AtomicBool::new(false),
        }
    }

    /// From now on nothing is flushed: all waits succeed at once, and nothing is durable because of
    /// them (`nobarrier`).
    pub fn disable(&self) {
        self.is_off.store(true, Relaxed);
    }

    /// Ends what [`Barrier::disable`] began; whether it had begun, so that a flush must make up for
    /// those that were left out.
    #[must_use]
    pub fn enable(&self) -> bool {
        self.is_off.swap(false, Relaxed)
    }

    /// Counts as a flush: the caller knows that what a log's superblock says is durable, though
    /// this was made after it was written. The log's first commit makes sure of it otherwise.
    pub fn note_flush(&self) {
        let mut state = self.state.lock();
        state.begun += 1;
        state.done = state.begun;
    }

    /// This moment.
    pub fn seq(&self) -> FlushSeq {
        FlushSeq(self.state.lock().begun)
    }

    /// Makes durable what was written before now.
    ///
    /// # Errors
    /// As [`Barrier::wait`].
    pub fn flush(&self) -> Result<(), Error> {
        self.wait(self.seq())
    }

    /// Returns when a flush that began after `seq` has succeeded.
    ///
    /// # Errors
    /// The device's error for a caller that met it, [`Error::FlushFailed`] for every caller after
    /// that: what was written before a failed flush may be lost, and no later flush reports.
    pub fn wait(&self, seq: FlushSeq) -> Result<(), Error> {
        loop {
            if let Some(answer) = self.answer(seq) {
                return answer;
            }
            let needless = || self.answer(seq).is_some();
            let Some(_turn) = self.turn.take_or_wait(needless) else {
                continue;
            };
            // A thread's turn may have ended since.
            if let Some(answer) = self.answer(seq) {
                return answer;
            }
            let number = {
                let mut state = self.state.lock();
                state.begun += 1;
                state.begun
            };
            // The number was taken before the flush began: a thread that takes its flush number
            // from now on may have written something that this flush misses, and waits for the
            // next one.
            let result = self.device.flush();
            let mut state = self.state.lock();
            match &result {
                Ok(()) => state.done = number,
                Err(_) => state.failed = true,
            }
            return Ok(result?);
        }
    }

    /// What is known already.
    fn answer(&self, seq: FlushSeq) -> Option<Result<(), Error>> {
        let state = self.state.lock();
        if state.failed {
            return Some(Err(Error::FlushFailed));
        }
        if self.is_off.load(Relaxed) {
            return Some(Ok(()));
        }
        (state.done > seq.0).then_some(Ok(()))
    }
}

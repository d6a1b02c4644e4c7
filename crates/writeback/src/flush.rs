//! Writing the dirty blocks of one file, in order, from snapshots.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::dirty::Piece;
use crate::file::File;
use crate::stats::{add, sub};
use crate::throttle::{Outcome, PAGE_SIZE};
use crate::{Error, FAILURES_MAX, Mapping, MappingError};

/// Bytes under writeback of one file at most, and so the longest run (but for one folio).
const BATCH: u64 = 8 << 20;

/// How far apart failed passes of flushers over a file are that count, at least.
const FAILURES_APART: Duration = Duration::from_secs(1);

/// What a pass over a file did.
struct Pass<E: MappingError> {
    mapping: Arc<dyn Mapping<Error = E>>,
    /// Bytes that were taken for writing.
    taken: u64,
    written: u64,
    failed: Option<Arc<E>>,
    /// It counts if it fails.
    counts: bool,
    /// This file failed too often: what fails again is dropped.
    is_last: bool,
}

/// What a turn of a file came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Bytes.
    pub(crate) written: u64,
    /// There was more to write than the turn was long.
    pub(crate) has_more: bool,
}

impl<E: MappingError> File<E> {
    /// Writes what is dirty in the range now; returns how many bytes.
    pub(crate) fn flush_range(&self, range: Range<u64>) -> Result<u64, Error<E>> {
        // Under the lock, for what is under writeback may fail and be dirty again.
        let is_clean = {
            let _flush = self.flush.lock();
            self.state.read().pages.dirty_end(&range).is_none()
        };
        if is_clean {
            return Ok(0);
        }
        let Some(mut pass) = self.begin_pass(false)? else {
            return Ok(0);
        };
        self.write_dirty(range, u64::MAX, &mut pass);
        self.end_pass(pass)
    }

    /// Writes some of what is dirty now, about `budget` bytes, and goes on next time where it
    /// stopped.
    pub(crate) fn flush_turn(&self, budget: u64) -> (Turn, Result<(), Error<E>>) {
        let mut turn = Turn {
            written: 0,
            has_more: false,
        };
        let cursor = self.flush.lock().cursor;
        let mut pass = match self.begin_pass(true) {
            Ok(Some(pass)) => pass,
            Ok(None) => return (turn, Ok(())),
            Err(error) => return (turn, Err(error)),
        };
        let mut stop = self.write_dirty(cursor..u64::MAX, budget, &mut pass);
        if stop.is_none() && cursor > 0 {
            stop = self.write_dirty(0..cursor, budget, &mut pass);
        }
        turn.has_more = stop.is_some();
        turn.written = pass.written;
        self.flush.lock().cursor = stop.unwrap_or(0);
        (turn, self.end_pass(pass).map(drop))
    }

    /// Of the passes of flushers those count that are far enough from the last that counted:
    /// several flushers may come one after the other, and what is in the device's way may take a
    /// while. `None` where there is no owner any more, and nothing to write: it may have dropped
    /// what was dirty since the caller looked, as who deletes a file does.
    fn begin_pass(&self, is_turn: bool) -> Result<Option<Pass<E>>, Error<E>> {
        let Some(mapping) = self.mapping.upgrade() else {
            return match self.lose_all() {
                0 => Ok(None),
                _ => Err(Error::Gone),
            };
        };
        let now = self.shared.gate.now();
        let progress = self.flush.lock();
        let since = progress.counted.map(|at| now.saturating_sub(at));
        let counts = !is_turn || since.is_none_or(|since| since >= FAILURES_APART);
        Ok(Some(Pass {
            mapping,
            taken: 0,
            written: 0,
            failed: None,
            counts,
            is_last: counts && progress.failures.saturating_add(1) >= FAILURES_MAX,
        }))
    }

    /// Writes what is dirty in the range now, until the pass has taken `budget` bytes; returns
    /// where it stopped on account of that. The flush lock is let go between batches, so that
    /// truncation waits for one batch only.
    fn write_dirty(&self, range: Range<u64>, budget: u64, pass: &mut Pass<E>) -> Option<u64> {
        let end = {
            let _flush = self.flush.lock();
            self.state.read().pages.dirty_end(&range)?
        };
        let mut from = range.start;
        while from < end {
            let left = budget.saturating_sub(pass.taken);
            if left == 0 {
                return Some(from);
            }
            // Taken and written under one hold of the flush lock: truncation, which needs it,
            // then finds each block either dirty or on the device, never on its way there.
            let _flush = self.flush.lock();
            let (pieces, pages) = self.take_dirty(from..end, left.min(BATCH));
            let Some(last) = pieces.last() else {
                break;
            };
            from = last.end();
            self.write_batch(pieces, pages, pass);
        }
        None
    }

    fn end_pass(&self, pass: Pass<E>) -> Result<u64, Error<E>> {
        let mut progress = self.flush.lock();
        match pass.failed {
            Some(error) => {
                self.is_failing.store(true, Relaxed);
                if pass.counts {
                    progress.counted = Some(self.shared.gate.now());
                    progress.failures = match pass.is_last {
                        true => 0,
                        false => progress.failures.saturating_add(1),
                    };
                }
                Err(Error::Mapping(error))
            }
            None => {
                self.is_failing.store(false, Relaxed);
                if self.dirty.load(Relaxed) == 0 {
                    (progress.failures, progress.counted) = (0, None);
                }
                Ok(pass.written)
            }
        }
    }

    fn take_dirty(&self, range: Range<u64>, max: u64) -> (Vec<Piece>, u64) {
        let mut state = self.state.write();
        let before = state.pages.dirty;
        let pieces = state.pages.take_dirty(range.start, range.end, max);
        // First, so that what is dirty or under writeback never looks clean.
        let taken = before - state.pages.dirty;
        add(&self.writeback, taken);
        add(&self.shared.counters.writeback, taken);
        let counted = state.pages.dirty.div_ceil(PAGE_SIZE);
        let started = state.counted - counted.min(state.counted);
        state.counted -= started;
        self.shared
            .gate
            .bdi
            .writeback_started(started, self.shared.gate.now());
        self.settle(&mut state, before);
        (pieces, started)
    }

    /// Writes the runs of a batch, which counts as so many pages. No lock but the flush lock is
    /// held while the mapping works.
    fn write_batch(&self, pieces: Vec<Piece>, mut left: u64, pass: &mut Pass<E>) {
        pass.taken += pieces.iter().map(Piece::len).sum::<u64>();
        let mapping = Arc::clone(&pass.mapping);
        let mut slices = Vec::with_capacity(pieces.len());
        let mut lost: Option<Range<u64>> = None;
        for run in pieces.chunk_by(|a, b| a.end() == b.offset()) {
            let start = run.first().map_or(0, Piece::offset);
            let len: u64 = run.iter().map(Piece::len).sum();
            let pages = len.div_ceil(PAGE_SIZE).min(left);
            left -= pages;
            slices.clear();
            slices.extend(run.iter().map(Piece::data));
            add(&self.shared.counters.write_requests, 1);
            let gate = &self.shared.gate;
            let reported = || gate.bdi.progressed(gate.now());
            match mapping.write_run_reporting(start, &slices, &reported) {
                Ok(()) => {
                    add(&self.shared.counters.written, len);
                    pass.written += len;
                    self.completed(pages);
                }
                Err(error) => {
                    let error = Arc::new(error);
                    self.failed(run, pages, pass.is_last);
                    let reported = Error::Mapping(Arc::clone(&error));
                    if pass.is_last {
                        self.errors.give_up(reported);
                        let losses = &self.shared.losses;
                        losses.record(Error::Mapping(Arc::clone(&error)));
                        let first = lost.as_ref().map_or(start, |lost| lost.start);
                        lost = Some(first..start.saturating_add(len));
                    } else {
                        self.errors.record(reported);
                    }
                    pass.failed.get_or_insert(error);
                }
            }
        }
        drop(slices);
        let taken: u64 = pieces.iter().map(Piece::len).sum();
        let mut state = self.state.write();
        // Folios leave writeback only after the mapping has returned: until then a read must
        // find their bytes here, as the device may still hold older ones.
        state.pages.end_writeback(&pieces);
        sub(&self.writeback, taken);
        sub(&self.shared.counters.writeback, taken);
        let before = state.pages.dirty;
        self.settle(&mut state, before);
        drop(state);
        if left > 0 {
            self.completed(left);
        }
        // Now nothing of it is being written any more: what is not dirty is gone.
        lost.into_iter().for_each(|all| mapping.lost(all));
    }

    /// Pages are on the device.
    fn completed(&self, pages: u64) {
        let gate = &self.shared.gate;
        gate.bdi.completed(pages, Outcome::Written, gate.now());
        gate.limits.waiters.free(gate.number, pages);
    }

    /// A run that counts as so many pages could not be written.
    fn failed(&self, run: &[Piece], pages_of_run: u64, is_last: bool) {
        add(&self.shared.counters.write_errors, 1);
        let mut state = self.state.write();
        let before = state.pages.dirty;
        if is_last {
            state.pages.give_up(run);
            add(&self.shared.counters.lost, run.iter().map(Piece::len).sum());
        } else {
            state.pages.give_back(run);
        }
        let gate = &self.shared.gate;
        gate.bdi
            .completed(pages_of_run, Outcome::Failed, gate.now());
        // What is not dirty now, or was made so by others meanwhile, goes with the rest.
        state.counted += pages_of_run;
        self.settle(&mut state, before);
    }

    /// Drops what is dirty: there is no thread any more who could write it. Returns how many
    /// bytes that was.
    fn lose_all(&self) -> u64 {
        let _flush = self.flush.lock();
        let mut state = self.state.write();
        let pages = &mut state.pages;
        let before = pages.dirty;
        let pieces = pages.take_dirty(0, u64::MAX, u64::MAX);
        pages.give_up(&pieces);
        pages.end_writeback(&pieces);
        self.settle(&mut state, before);
        add(&self.shared.counters.lost, before);
        if before > 0 {
            self.shared.losses.record(Error::Gone);
        }
        before
    }

    /// Gives the file its new place in the list of dirty files after its turn, if it is still
    /// dirty. Unless it has more that it had no time for, what is dirty now became so since, or
    /// failed.
    pub(crate) fn requeue(&self, has_more: bool) {
        let mut state = self.state.write();
        if let Some(key) = state.key {
            let now = (!has_more).then(|| self.shared.gate.now());
            let (list, me) = (&self.shared.dirty, self.me.clone());
            state.key = Some(list.requeue(me, self.place, key, now));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use uext4_blockdev::SystemClock;
    use uext4_ondisk::BlockSize;

    use super::*;
    use crate::{Options, PageCache, Place};

    /// A place of which nothing is known and where everything can be written.
    pub(crate) struct Nowhere;

    impl Mapping for Nowhere {
        type Error = std::io::Error;

        fn read_blocks(&self, _: u64, buf: &mut [u8]) -> Result<(), Self::Error> {
            buf.fill(0);
            Ok(())
        }

        fn write_run(&self, _: u64, _: &[&[u8]]) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_was_deleted_since_it_was_found_dirty_is_no_error() {
        let options = Options::new(BlockSize::MIN);
        let cache = PageCache::new(options, Arc::new(SystemClock)).unwrap();
        let owner: Arc<dyn Mapping<Error = std::io::Error>> = Arc::new(Nowhere);
        let pages = cache.file_at(Arc::downgrade(&owner), Place::default());
        pages.write(0, &[1; 8192], 0).unwrap();
        let found = pages.0.shared.dirty.files();
        pages.truncate(0);
        drop(owner);
        let [file] = &found[..] else {
            panic!("one dirty file");
        };
        let (turn, result) = file.flush_turn(u64::MAX);
        result.unwrap();
        assert_eq!(turn.written, 0);
        let lost = cache.stats().nr_lost;
        assert_eq!(lost, 0);
    }
}

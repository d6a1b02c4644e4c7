//! Writing the dirty blocks of one file, in order, from snapshots.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::dirty::Piece;
use crate::file::File;
use crate::stats::{add, sub};
use crate::{Error, FAILURES_MAX, Mapping, MappingError};

/// Bytes under writeback of one file at most, and so the longest run (but for one folio).
const BATCH: u64 = 8 << 20;

/// What a pass over a file did.
#[derive(Debug)]
struct Pass<E> {
    written: u64,
    failed: Option<Arc<E>>,
    /// This file failed too often: what fails again is dropped.
    is_last: bool,
}

impl<E: MappingError> File<E> {
    /// Writes what is dirty in the range now; returns how many bytes. The flush lock is let go
    /// between batches, so that truncation waits for one batch only.
    pub(crate) fn flush_range(&self, range: Range<u64>) -> Result<u64, Error<E>> {
        // Under the lock, for what is under writeback may fail and be dirty again.
        let (end, failures) = {
            let failures = self.flush.lock();
            (self.state.read().dirty_end(&range), *failures)
        };
        let Some(end) = end else {
            return Ok(0);
        };
        let Some(mapping) = self.mapping.upgrade() else {
            self.lose_all();
            return Err(Error::Gone);
        };
        let mut pass = Pass {
            written: 0,
            failed: None,
            is_last: failures.saturating_add(1) >= FAILURES_MAX,
        };
        let mut from = range.start;
        while from < end {
            let _flush = self.flush.lock();
            let pieces = self.take_dirty(from..end);
            let Some(last) = pieces.last() else {
                break;
            };
            from = last.end();
            self.write_batch(&*mapping, pieces, &mut pass);
        }
        let mut failures = self.flush.lock();
        match pass.failed {
            Some(error) => {
                *failures = if pass.is_last {
                    0
                } else {
                    failures.saturating_add(1)
                };
                Err(Error::Mapping(error))
            }
            None => {
                if self.dirty.load(Relaxed) == 0 {
                    *failures = 0;
                }
                Ok(pass.written)
            }
        }
    }

    fn take_dirty(&self, range: Range<u64>) -> Vec<Piece> {
        let mut pages = self.state.write();
        let before = pages.dirty;
        let pieces = pages.take_dirty(range.start, range.end, BATCH);
        // First, so that what is dirty or under writeback never looks clean.
        let taken = before - pages.dirty;
        add(&self.writeback, taken);
        add(&self.shared.counters.writeback, taken);
        self.settle(&mut pages, before);
        pieces
    }

    /// Writes the runs of a batch. No lock but the flush lock is held while the mapping works.
    fn write_batch(
        &self,
        mapping: &dyn Mapping<Error = E>,
        pieces: Vec<Piece>,
        pass: &mut Pass<E>,
    ) {
        let mut slices = Vec::with_capacity(pieces.len());
        for run in pieces.chunk_by(|a, b| a.end() == b.offset()) {
            let start = run.first().map_or(0, Piece::offset);
            let len: u64 = run.iter().map(Piece::len).sum();
            slices.clear();
            slices.extend(run.iter().map(Piece::data));
            add(&self.shared.counters.write_requests, 1);
            match mapping.write_run(start, &slices) {
                Ok(()) => {
                    add(&self.shared.counters.written, len);
                    pass.written += len;
                }
                Err(error) => {
                    let error = Arc::new(error);
                    self.failed(run, pass.is_last);
                    self.errors.record(&error);
                    if pass.is_last {
                        mapping.lost(start..start.saturating_add(len));
                    }
                    pass.failed.get_or_insert(error);
                }
            }
        }
        drop(slices);
        let taken: u64 = pieces.iter().map(Piece::len).sum();
        let mut pages = self.state.write();
        pages.end_writeback(&pieces);
        sub(&self.writeback, taken);
        sub(&self.shared.counters.writeback, taken);
        let before = pages.dirty;
        self.settle(&mut pages, before);
        drop(pages);
        self.shared.wake_writers();
    }

    fn failed(&self, run: &[Piece], is_last: bool) {
        add(&self.shared.counters.write_errors, 1);
        let mut pages = self.state.write();
        let before = pages.dirty;
        if is_last {
            pages.give_up(run);
            add(&self.shared.counters.lost, run.iter().map(Piece::len).sum());
        } else {
            pages.give_back(run);
        }
        self.settle(&mut pages, before);
    }

    /// Drops what is dirty: there is nobody any more who could write it.
    fn lose_all(&self) {
        let _flush = self.flush.lock();
        let mut pages = self.state.write();
        let before = pages.dirty;
        let pieces = pages.take_dirty(0, u64::MAX, u64::MAX);
        pages.give_up(&pieces);
        self.settle(&mut pages, before);
        add(&self.shared.counters.lost, before);
    }

    /// Gives the file its new place in the list of dirty files after a pass over all of it, if it
    /// is still dirty: what is dirty now became so since, or failed.
    pub(crate) fn requeue(&self) {
        let mut pages = self.state.write();
        if let Some(ticket) = pages.ticket {
            let now = self.shared.clock.monotonic();
            let list = &self.shared.dirty;
            pages.ticket = Some(list.requeue(ticket, self.me.clone(), now));
        }
    }
}

//! Reading what is not to be cached, straight into the caller's memory.
//!
//! For readers that keep what they read themselves, as the kernel above a mount does. What the
//! cache has is copied from it; what it misses the mapping reads to where it is wanted, in whole
//! blocks, and nothing enters the cache. Such a load is on the list of [`Loads`] as any other, so
//! that any thread that drops blocks spoils it: what was read may be used if nothing was, for
//! then a block that was written meanwhile is still here, and is taken from here. It waits for
//! loads that fill the cache; no thread waits for it, as it leaves nothing behind that another
//! could use: so many read one block at once, and the thread that changes a part of it is not
//! prevented from it.
//!
//! A block for which the caller has no room, at an edge of what is wanted, is read into the cache.
//!
//! [`Loads`]: crate::loads::Loads

use std::sync::Arc;

use crate::file::File;
use crate::pages::{COPY_MAX, Pages};
use crate::stats::add;
use crate::{Error, MappingError, OFFSET_MAX};

/// What to do about a block that is not to be cached.
#[derive(Debug)]
enum Step {
    /// It is there by now.
    Present,
    /// A thread reads it into the cache: wait until more loads ended than these.
    Wait(u64),
    /// Read so many bytes, whole blocks; then take the load off the list.
    Read { id: u64, len: usize },
}

/// Takes a load off the list whatever happens.
struct Passing<'a, E: MappingError> {
    file: &'a File<E>,
    id: u64,
}

impl<E: MappingError> Drop for Passing<'_, E> {
    fn drop(&mut self) {
        self.file.state.write().pages.loads.leave(self.id);
    }
}

impl Pages {
    /// Plans the reading of what is missing without a gap from the start of a block on, `len`
    /// bytes at most (whole blocks, at least one).
    fn plan_passing(&mut self, start: u64, len: u64) -> Step {
        if self.is_uptodate(start) {
            return Step::Present;
        }
        if self.loads.covers(start) {
            return Step::Wait(self.loads.ended());
        }
        let limit = start + len;
        let limit = self.loads.next_start(start).unwrap_or(limit).min(limit);
        let end = self.missing_end(start, limit);
        Step::Read {
            id: self.loads.begin_passing(start..end),
            len: (end - start) as usize,
        }
    }

    /// Where the first block at or after `start` is that can be read, `limit` at most.
    fn missing_end(&self, start: u64, limit: u64) -> u64 {
        let bits = self.shape.block_shift;
        let first = self.find(start).map_or(start, |(first, _)| first);
        for (offset, folio) in self.folios.range(first..limit) {
            let low = (start.saturating_sub(*offset) >> bits) as u32;
            if let Some(run) = folio.uptodate.run(&(low..folio.blocks(bits))) {
                return limit.min(offset + (u64::from(run.start) << bits));
            }
        }
        limit
    }

    /// Copies what is there of whole blocks from `start` on over `to`; the rest of it stays.
    fn copy_over(&self, start: u64, to: &mut [u8]) {
        let bits = self.shape.block_shift;
        let end = start + to.len() as u64;
        let first = self.find(start).map_or(start, |(first, _)| first);
        for (offset, folio) in self.folios.range(first..end) {
            let mut at = (start.saturating_sub(*offset) >> bits) as u32;
            let high = ((end - offset).min(folio.size()) >> bits) as u32;
            while let Some(run) = folio.uptodate.run(&(at..high)) {
                at = run.end;
                let from = (run.start as usize) << bits;
                let low = (offset + from as u64 - start) as usize;
                let len = run.len() << bits;
                folio.copy_out(from, &mut to[low..low + len], bits);
            }
        }
    }
}

impl<E: MappingError> File<E> {
    /// See [`crate::FilePages::read_uncached`].
    pub(crate) fn read_uncached(
        &self,
        offset: u64,
        buf: &mut [u8],
        end: u64,
    ) -> Result<usize, Error<E>> {
        let left = end.min(OFFSET_MAX).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let (mut done, mut most) = (0, COPY_MAX);
        while done < len {
            let at = offset + done as u64;
            let copied = self.copy_out(at, &mut buf[done..len]);
            done += copied;
            if copied > 0 {
                continue;
            }
            match self.read_past(at, &mut buf[done..], len - done, &mut most) {
                // The last block may reach past what is wanted.
                Ok(read) => done = (done + read).min(len),
                // What came before it is a short read; the next one meets the error again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads what is missing at `at`, of which `wanted` bytes are wanted and `most` at once;
    /// returns how many there are now: none if others were faster, or nothing of it can be used.
    /// Then the next tries begin with one block, so that one that is bad or often dropped keeps
    /// no others away.
    fn read_past(
        &self,
        at: u64,
        buf: &mut [u8],
        wanted: usize,
        most: &mut usize,
    ) -> Result<usize, Error<E>> {
        let shape = self.shared.shape;
        let whole = shape.ceil(at + wanted as u64) - at;
        let room = whole.min(shape.floor(buf.len().min(*most) as u64));
        if at != shape.floor(at) || room == 0 {
            let plan = self.state.write().pages.plan_block(shape.floor(at));
            return self.load(plan, Some((at, &mut buf[..wanted])));
        }
        // Not in the `match`: the lock would be held in it.
        let step = self.state.write().pages.plan_passing(at, room);
        let (id, len) = match step {
            Step::Present => return Ok(0),
            Step::Wait(seen) => {
                self.wait_loaded(seen);
                return Ok(0);
            }
            Step::Read { id, len } => (id, len),
        };
        let _passing = Passing { file: self, id };
        let mapping = self.mapping.upgrade().ok_or(Error::Gone)?;
        let (to, block) = (&mut buf[..len], shape.block() as usize);
        let read = mapping.read_blocks(at, to);
        let twice = std::mem::replace(most, block).saturating_mul(2);
        match read {
            Ok(()) => {}
            Err(_) if len > block => return Ok(0),
            Err(error) => return Err(Error::Mapping(Arc::new(error))),
        }
        add(&self.shared.counters.read, len as u64);
        add(&self.shared.counters.read_requests, 1);
        let pages = &self.state.read().pages;
        if !pages.loads.is_good(id) {
            return Ok(0);
        }
        pages.copy_over(at, to);
        *most = twice.min(COPY_MAX);
        Ok(len)
    }
}

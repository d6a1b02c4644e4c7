//! Reading through the cache: what is missing is read without a lock held meanwhile, and stays.

use std::sync::Arc;

use crate::file::File;
use crate::load::Plan;
use crate::pages::COPY_MAX;
use crate::stats::add;
use crate::{Error, MappingError, OFFSET_MAX};

/// Ends a load whatever happens, so that no reader waits for it for ever.
struct LoadGuard<'a, E: MappingError> {
    file: &'a File<E>,
    id: u64,
}

impl<E: MappingError> Drop for LoadGuard<'_, E> {
    fn drop(&mut self) {
        let ended = self.file.state.write().pages.loads.end(self.id);
        let mut loaded = self.file.loaded.lock();
        *loaded = ended.max(*loaded);
        self.file.load_ended.notify_all();
    }
}

impl<E: MappingError> File<E> {
    /// Reads from the cache alone, as far as it has it.
    pub(crate) fn copy_out(&self, offset: u64, to: &mut [u8]) -> usize {
        let len = to.len().min(COPY_MAX);
        self.state.read().pages.copy_out(offset, &mut to[..len])
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8], size: u64) -> Result<usize, Error<E>> {
        let left = size.min(OFFSET_MAX).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let mut done = 0;
        while done < len {
            let (at, to) = (offset + done as u64, &mut buf[done..len]);
            let copied = self.copy_out(at, to);
            done += copied;
            if copied > 0 {
                continue;
            }
            let plan = self
                .state
                .write()
                .pages
                .plan_load(at, to.len() as u64, size);
            match self.load(plan, Some((at, to))) {
                Ok(copied) => done += copied,
                // What came before it is a short read; the next one meets the error again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Waits until more loads have ended than `seen`.
    pub(crate) fn wait_loaded(&self, seen: u64) {
        let mut loaded = self.loaded.lock();
        while *loaded <= seen {
            self.load_ended.wait(&mut loaded);
        }
    }

    /// Does what a plan says. If it was to load, copies from the file's bytes what is there then,
    /// under the same lock; so a reader comes on even when what it loads is soon reclaimed. No
    /// lock is held while reading.
    pub(crate) fn load(
        &self,
        plan: Plan,
        copy: Option<(u64, &mut [u8])>,
    ) -> Result<usize, Error<E>> {
        let (id, pieces) = match plan {
            Plan::Present => return Ok(0),
            Plan::Wait(seen) => {
                self.wait_loaded(seen);
                return Ok(0);
            }
            Plan::Load { id, pieces } => (id, pieces),
        };
        let guard = LoadGuard { file: self, id };
        let mapping = self.mapping.upgrade().ok_or(Error::Gone)?;
        self.shared
            .make_room(pieces.iter().map(|(_, len)| *len as u64).sum());
        let mut filled = Vec::with_capacity(pieces.len());
        for (offset, len) in pieces {
            let mut buffer = self.shared.pool.take_filled(len);
            match mapping.read_blocks(offset, buffer.bytes_mut()) {
                Ok(()) => filled.push((offset, buffer)),
                // What was read ahead is not missed.
                Err(_) if !filled.is_empty() => break,
                Err(error) => return Err(Error::Mapping(Arc::new(error))),
            }
            add(&self.shared.counters.read, len as u64);
            add(&self.shared.counters.read_requests, 1);
        }
        let mut state = self.state.write();
        let pages = &mut state.pages;
        let before = pages.dirty;
        if pages.loads.is_good(id) {
            for (offset, buffer) in filled {
                pages.install(offset, buffer);
            }
        }
        let copied = copy.map_or(0, |(at, to)| {
            let len = to.len().min(COPY_MAX);
            pages.copy_out(at, &mut to[..len])
        });
        self.finish(state, before);
        drop(guard);
        Ok(copied)
    }

    pub(crate) fn load_block(&self, block: u64) -> Result<(), Error<E>> {
        let plan = self.state.write().pages.plan_block(block);
        self.load(plan, None).map(drop)
    }
}

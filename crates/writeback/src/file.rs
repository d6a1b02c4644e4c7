//! The pages of one file with their locks: reading, writing, truncating.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock, RwLockWriteGuard};

use crate::balance::Manner;
use crate::errors::Errors;
use crate::flush::Progress;
use crate::load::Plan;
use crate::pages::Pages;
use crate::shared::Shared;
use crate::stats::{add, sub};
use crate::take_in::{Paced, Write};
use crate::throttle::{PAGE_SIZE, Task, Verdict};
use crate::writer::{Writer, with_own};
use crate::{Error, Mapping, MappingError, OFFSET_MAX, Place};

/// Most bytes copied under the lock at once.
pub(crate) const COPY_MAX: usize = 1 << 20;

/// A mapping, held weakly.
type WeakMapping<E> = Weak<dyn Mapping<Error = E>>;

pub(crate) struct File<E: MappingError> {
    pub(crate) me: Weak<Self>,
    pub(crate) shared: Arc<Shared<E>>,
    pub(crate) mapping: WeakMapping<E>,
    pub(crate) state: RwLock<Pages>,
    pub(crate) place: Place,
    /// Held while runs are written.
    pub(crate) flush: Mutex<Progress>,
    /// Its last pass failed.
    pub(crate) is_failing: AtomicBool,
    pub(crate) errors: Errors<Error<E>>,
    /// How many loads have ended, for those who wait.
    loaded: Mutex<u64>,
    load_ended: Condvar,
    /// Copies of what the state says, to be looked at without its lock.
    pub(crate) dirty: AtomicU64,
    pub(crate) writeback: AtomicU64,
}

impl<E: MappingError> fmt::Debug for File<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("dirty", &self.dirty)
            .field("writeback", &self.writeback)
            .finish_non_exhaustive()
    }
}

/// Ends a load whatever happens, so that nobody waits for it for ever.
struct LoadGuard<'a, E: MappingError> {
    file: &'a File<E>,
    id: u64,
}

impl<E: MappingError> Drop for LoadGuard<'_, E> {
    fn drop(&mut self) {
        let ended = self.file.state.write().loads.end(self.id);
        let mut loaded = self.file.loaded.lock();
        *loaded = ended.max(*loaded);
        self.file.load_ended.notify_all();
    }
}

impl<E: MappingError> File<E> {
    pub(crate) fn new(shared: Arc<Shared<E>>, mapping: WeakMapping<E>, place: Place) -> Arc<Self> {
        let pages = Pages::new(shared.shape, Arc::clone(&shared.pool));
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            shared,
            mapping,
            state: RwLock::new(pages),
            place,
            flush: Mutex::default(),
            is_failing: AtomicBool::new(false),
            errors: Errors::new(),
            loaded: Mutex::new(0),
            load_ended: Condvar::new(),
            dirty: AtomicU64::new(0),
            writeback: AtomicU64::new(0),
        })
    }

    /// Brings everything that counts up to a change of the state, which had `before` dirty bytes, and
    /// which no writer has to answer for.
    pub(crate) fn settle(&self, pages: &mut Pages, before: u64) {
        let counted = pages.dirty.div_ceil(PAGE_SIZE);
        let gate = &self.shared.gate;
        if counted > pages.counted {
            let (mut nobody, now) = (Task::default(), gate.now());
            gate.bdi.dirtied(&mut nobody, counted - pages.counted, now);
            gate.bdi.exited(&mut nobody, now);
        } else if counted < pages.counted {
            gate.bdi.cleaned(pages.counted - counted, gate.now());
            gate.limits
                .waiters
                .free(gate.number, pages.counted - counted);
        }
        pages.counted = counted;
        self.settle_bytes(pages, before);
    }

    /// The same after a writer made pages dirty that were admitted; tells what it does next.
    pub(crate) fn settle_written(
        &self,
        pages: &mut Pages,
        before: u64,
        task: &mut Task,
        now: Duration,
    ) -> Verdict {
        let counted = pages.dirty.div_ceil(PAGE_SIZE).max(pages.counted);
        let verdict = self
            .shared
            .gate
            .bdi
            .dirtied(task, counted - pages.counted, now);
        pages.counted = counted;
        self.settle_bytes(pages, before);
        verdict
    }

    /// Brings the counters of bytes and the list of dirty files up to a change of the state.
    fn settle_bytes(&self, pages: &mut Pages, before: u64) {
        let (after, global) = (pages.dirty, &self.shared.counters.dirty);
        if after > before {
            add(&self.dirty, after - before);
            add(global, after - before);
        } else if after < before {
            sub(&self.dirty, before - after);
            sub(global, before - after);
        }
        let busy = after > 0 || self.writeback.load(Relaxed) > 0;
        match pages.key {
            None if busy => {
                let since = self.shared.gate.now();
                pages.key = Some(self.shared.dirty.insert(self, since));
            }
            Some(key) if !busy => {
                self.shared.dirty.remove(self.place, key);
                pages.key = None;
            }
            _ => {}
        }
    }

    /// Settles a change that may have added folios, and lets the lock go.
    pub(crate) fn finish(&self, mut pages: RwLockWriteGuard<'_, Pages>, before: u64) {
        self.settle(&mut pages, before);
        self.let_go(pages);
    }

    /// Lets the lock go after a change that may have added folios.
    pub(crate) fn let_go(&self, mut pages: RwLockWriteGuard<'_, Pages>) {
        let is_new = pages.resident > 0 && !pages.registered;
        pages.registered |= is_new;
        drop(pages);
        if is_new {
            // Not under the lock: reclaim takes them the other way round.
            self.shared.register(self.me.clone());
        }
    }

    /// Reads from the cache alone, as far as it has it.
    pub(crate) fn copy_out(&self, offset: u64, to: &mut [u8]) -> usize {
        let len = to.len().min(COPY_MAX);
        self.state.read().copy_out(offset, &mut to[..len])
    }

    fn read(&self, offset: u64, buf: &mut [u8], size: u64) -> Result<usize, Error<E>> {
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
            let plan = self.state.write().plan_load(at, to.len() as u64, size);
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
        let mut pages = self.state.write();
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
        self.finish(pages, before);
        drop(guard);
        Ok(copied)
    }

    pub(crate) fn load_block(&self, block: u64) -> Result<(), Error<E>> {
        let plan = self.state.write().plan_block(block);
        self.load(plan, None).map(drop)
    }

    fn truncate(&self, size: u64) {
        let shape = self.shared.shape;
        let _flush = self.flush.lock();
        let mut pages = self.state.write();
        let before = pages.dirty;
        let end = shape.ceil(size);
        pages.drop_blocks(end, u64::MAX);
        if size < end {
            pages.zero_part(size..end, false);
        }
        self.finish(pages, before);
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Error<E>> {
        let shape = self.shared.shape;
        let range = range.start..range.end.min(OFFSET_MAX);
        if range.start >= range.end {
            return Ok(());
        }
        let (low, high) = (shape.ceil(range.start), shape.floor(range.end));
        if range.start < low {
            self.zero_edge(range.start..low.min(range.end))?;
        }
        if high < range.end && high >= low {
            self.zero_edge(high..range.end)?;
        }
        let _flush = self.flush.lock();
        let mut pages = self.state.write();
        let before = pages.dirty;
        pages.drop_blocks(low, high);
        self.finish(pages, before);
        Ok(())
    }

    /// Makes a part of one block zero, reading it first if need be; dirty only if it was not zero.
    fn zero_edge(&self, range: Range<u64>) -> Result<(), Error<E>> {
        loop {
            let mut pages = self.state.write();
            let before = pages.dirty;
            let is_there = pages.zero_part(range.clone(), true);
            self.finish(pages, before);
            if is_there {
                return Ok(());
            }
            self.load_block(self.shared.shape.floor(range.start))?;
        }
    }
}

impl<E: MappingError> Drop for File<E> {
    fn drop(&mut self) {
        let pages = self.state.get_mut();
        if let Some(key) = pages.key {
            self.shared.dirty.remove(self.place, key);
        }
        if pages.registered {
            // The clock's handle keeps the memory of this very struct.
            self.shared.dead.fetch_add(1, Relaxed);
        }
        sub(&self.shared.counters.dirty, pages.dirty);
        add(&self.shared.counters.lost, pages.dirty);
        if pages.dirty > 0 {
            self.shared.losses.record(Error::Gone);
        }
        let gate = &self.shared.gate;
        if pages.counted > 0 {
            gate.bdi.cleaned(pages.counted, gate.now());
            gate.limits.waiters.free(gate.number, pages.counted);
        }
    }
}

/// The pages of one file. The owner of the [`Mapping`] has it and keeps the mapping alive while
/// [`FilePages::is_dirty`]; what is dirty when one of the two is dropped is lost. All calls may come from any
/// thread; calls that change the file's size are for the owner to order.
pub struct FilePages<E: MappingError>(pub(crate) Arc<File<E>>);

impl<E: MappingError> fmt::Debug for FilePages<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: MappingError> FilePages<E> {
    /// Bytes of memory the file's own bookkeeping takes, which [`PageCache::resident`] leaves out.
    ///
    /// [`PageCache::resident`]: crate::PageCache::resident
    pub const MEMORY: u64 = size_of::<File<E>>() as u64 + 32;

    /// True if there is certainly no folio. False also while somebody changes the file. Takes no lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let pages = self.0.state.try_read();
        pages.is_some_and(|pages| pages.folios.is_empty())
    }

    /// Reads from byte `offset` on into `buf`, of a file that has `size` bytes now; returns how
    /// many bytes, 0 at and past the end. What is missing is read through the mapping, with
    /// readahead.
    ///
    /// # Errors
    ///
    /// What the mapping says, if not a single byte could be had; else a short read.
    pub fn read(&self, offset: u64, buf: &mut [u8], size: u64) -> Result<usize, Error<E>> {
        self.0.read(offset, buf, size)
    }

    /// Reads from byte `offset` up to byte `end`, which the file has, into `buf`, and keeps nothing of
    /// it: for who keeps it himself. Returns how many bytes, as many as `buf` has room for. What
    /// the cache has is copied from it; what is missing is read straight into `buf`, in whole
    /// blocks, up to 1 MiB at once and without readahead. `buf` may be longer than what is wanted:
    /// a last block, of which a part is wanted, is read into it if it has room for the whole. Past
    /// what is returned, whatever is in `buf` means nothing. Other blocks of which `buf` has room for
    /// a part only are read into the cache.
    ///
    /// # Errors
    ///
    /// What the mapping says, if not a single byte could be had; else a short read, up to the
    /// block that could not be read.
    pub fn read_uncached(&self, offset: u64, buf: &mut [u8], end: u64) -> Result<usize, Error<E>> {
        self.0.read_uncached(offset, buf, end)
    }

    /// Takes `data` in at byte `offset` of a file that had `old_size` bytes before; returns how
    /// many bytes were taken. A block of which only a part is written is read first, unless it is
    /// here already or begins at or past `old_size`; then the rest of it is zero. Sleeps as long as
    /// throttling says; the thread is the writer.
    ///
    /// # Errors
    ///
    /// What a mapping says (this one's when reading; any when nothing could be written while it
    /// waited), [`Error::Stalled`], [`Error::Cancelled`], if not a single byte could be taken; else
    /// fewer bytes are taken.
    pub fn write(&self, offset: u64, data: &[u8], old_size: u64) -> Result<usize, Error<E>> {
        with_own(|writer| self.write_by(writer, offset, data, old_size))
    }

    /// The same for a writer who says who he is, and may be called off.
    ///
    /// # Errors
    ///
    /// As [`FilePages::write`].
    pub fn write_by(
        &self,
        writer: &mut Writer,
        offset: u64,
        data: &[u8],
        old_size: u64,
    ) -> Result<usize, Error<E>> {
        let write = Write {
            offset,
            data,
            old_size,
        };
        let paced = self.0.write(writer, write, Manner::Sleep)?;
        Ok(paced.taken)
    }

    /// Takes `data` in as [`FilePages::write`] does, but never sleeps: where the writer should, it
    /// tells how long, and the caller lets the writer wait, with no thread. A front end delays its
    /// answer by that much.
    ///
    /// If less than all was taken, the rest is to be written when the pause is over, by the same
    /// writer. Who comes earlier is told what is left of the pause. It waits for what it reads and
    /// for memory as [`FilePages::write`] does; and where the policy says that the writer writes pages
    /// itself, or where no flushers run, it does that.
    ///
    /// # Errors
    ///
    /// As [`FilePages::write`].
    pub fn write_paced(
        &self,
        writer: &mut Writer,
        offset: u64,
        data: &[u8],
        old_size: u64,
    ) -> Result<Paced, Error<E>> {
        let write = Write {
            offset,
            data,
            old_size,
        };
        self.0.write(writer, write, Manner::Tell)
    }

    /// Writes what is dirty in the range of bytes when the call begins, and waits for what is
    /// being written there. Durable only after the device was flushed.
    ///
    /// # Errors
    ///
    /// The first error of this attempt; the rest of the range was tried nevertheless. See
    /// [`crate`] for what becomes of what failed.
    pub fn flush(&self, range: Range<u64>) -> Result<(), Error<E>> {
        self.0.flush_range(range).map(drop)
    }

    /// What a file handle opened now has seen of the errors, for [`FilePages::error_since`].
    #[must_use]
    pub fn error_token(&self) -> u64 {
        self.0.errors.token()
    }

    /// Reports that writing failed, in the background or not, since `seen` was brought up to date last;
    /// now it is.
    ///
    /// # Errors
    ///
    /// The last such error.
    pub fn error_since(&self, seen: &mut u64) -> Result<(), Error<E>> {
        self.0.errors.since(seen).map_or(Ok(()), Err)
    }

    /// What fsync does before the device is flushed: [`FilePages::flush`], then
    /// [`FilePages::error_since`]. Of two threads that come with one `seen`, one is told of what
    /// failed before.
    ///
    /// # Errors
    ///
    /// As those two; after an error of its own attempt, `seen` is up to date as well.
    pub fn sync(&self, range: Range<u64>, seen: &AtomicU64) -> Result<(), Error<E>> {
        let flushed = self.flush(range);
        let earlier = self.0.errors.tell(seen);
        flushed?;
        earlier.map_or(Ok(()), Err)
    }

    /// Whether any of its data were given up since `seen` was brought up to date: a later
    /// [`FilePages::sync`] finds nothing of them to write.
    #[must_use]
    pub fn gave_up_since(&self, seen: u64) -> bool {
        self.0.errors.gave_up_since(seen)
    }

    /// Forgets what lies past `size` bytes and makes the rest of the last block zero, in memory: it
    /// is written only if it was dirty before, so the owner sees to the rest on the device. Waits
    /// for writeback of this file. The owner sets the new size first: from then on the mapping
    /// reads zeroes past it.
    pub fn truncate(&self, size: u64) {
        self.0.truncate(size);
    }

    /// Makes the range of bytes unknown: whole blocks are forgotten, dirty or not; of the blocks
    /// at its edges the part inside becomes zero, and dirty unless it was zero before. Waits for
    /// writeback of this file. Readers may bring blocks back that are still on the device; so the
    /// owner keeps them out until the blocks are gone, or calls again then.
    ///
    /// # Errors
    ///
    /// What the mapping says when a block at an edge must be read. Nothing is forgotten then.
    pub fn discard(&self, range: Range<u64>) -> Result<(), Error<E>> {
        self.0.discard(range)
    }

    /// The first dirty bytes at or after `from`, whole blocks, as far as they reach without a gap.
    /// What is being written is not among them.
    #[must_use]
    pub fn next_dirty(&self, from: u64) -> Option<Range<u64>> {
        self.0.state.read().next_dirty(from)
    }

    /// The same of what is dirty or being written.
    #[must_use]
    pub fn next_unwritten(&self, from: u64) -> Option<Range<u64>> {
        self.0.state.read().next_unwritten(from)
    }

    /// True while anything waits to be written or is being written.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        // Not the counters: one may be read before what the other is told of.
        let pages = self.0.state.read();
        pages.dirty > 0 || !pages.writing.is_empty()
    }

    /// Bytes of blocks that wait to be written.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.0.dirty.load(Relaxed)
    }

    /// Bytes of memory the file's folios take.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.0.state.read().resident
    }
}

//! The pages of one file, for its owner.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::balance::Manner;
use crate::file::File;
use crate::take_in::{Paced, Write};
use crate::writer::{Writer, with_own};
use crate::{Error, MappingError};

/// The pages of one file. The owner of the [`Mapping`](crate::Mapping) has it and keeps the mapping
/// alive while [`FilePages::is_dirty`]; what is dirty when one of the two is dropped is lost. All
/// calls may come from any thread; calls that change the file's size are for the owner to order.
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

    /// True if there is certainly no folio. False also while the file is being changed. Takes no
    /// lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let state = self.0.state.try_read();
        state.is_some_and(|state| state.pages.folios.is_empty())
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

    /// Reads from byte `offset` up to byte `end`, which the file has, into `buf`, and keeps
    /// nothing of it: for a caller that keeps it itself. Returns how many bytes, as many as `buf`
    /// has room for. What the cache has is copied from it; what is missing is read straight into
    /// `buf`, in whole blocks, up to 1 MiB at once and without readahead. `buf` may be longer
    /// than what is wanted: a last block, of which a part is wanted, is read into it if it has
    /// room for the whole. Past what is returned, whatever is in `buf` means nothing. Other
    /// blocks of which `buf` has room for a part only are read into the cache.
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

    /// The same for a writer who says who it is, and may be called off.
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

    /// Takes `data` in as [`FilePages::write`] does, but never sleeps: where the writer should,
    /// it reports how long, and the caller lets the writer wait, with no thread. A front end
    /// delays its answer by that much.
    ///
    /// If less than all was taken, the rest is to be written when the pause is over, by the same
    /// writer. A writer that comes earlier gets what is left of the pause. It waits for what it
    /// reads and for memory as [`FilePages::write`] does; and where no flushers run, it writes
    /// pages itself.
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
        self.0.write(writer, write, Manner::Report)
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

    /// Reports that writing failed, in the background or not, since `seen` was brought up to date
    /// last; now it is.
    ///
    /// # Errors
    ///
    /// The last such error.
    pub fn error_since(&self, seen: &mut u64) -> Result<(), Error<E>> {
        self.0.errors.since(seen).map_or(Ok(()), Err)
    }

    /// What fsync does before the device is flushed: [`FilePages::flush`], then
    /// [`FilePages::error_since`]. Of two threads that come with one `seen`, one gets what
    /// failed before.
    ///
    /// # Errors
    ///
    /// As those two; after an error of its own attempt, `seen` is up to date as well.
    pub fn sync(&self, range: Range<u64>, seen: &AtomicU64) -> Result<(), Error<E>> {
        let flushed = self.flush(range);
        let earlier = self.0.errors.report(seen);
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
        self.0.state.read().pages.next_dirty(from)
    }

    /// The same of what is dirty or being written.
    #[must_use]
    pub fn next_unwritten(&self, from: u64) -> Option<Range<u64>> {
        self.0.state.read().pages.next_unwritten(from)
    }

    /// True while anything waits to be written or is being written.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        // Not the counters: one may be read before what the other reports.
        let pages = &self.0.state.read().pages;
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
        self.0.state.read().pages.resident
    }
}

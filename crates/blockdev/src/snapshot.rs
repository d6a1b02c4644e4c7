//! What an [`Origin`](crate::Origin) held when its snapshot began, read by a process that has the
//! device and the store.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::origin::{CHUNK, Layout, State};
use crate::{BlockDevice, Error, ReadRequest};

/// Chunks whose places are looked at together.
const PIECE: u64 = 1024;

/// The process that has the origin.
pub trait Writer: Debug + Send + Sync {
    /// Whether it still runs. If it was killed, it did not end the snapshot, and another may write
    /// by now.
    fn is_running(&self) -> bool;
}

/// A snapshot for reading. Any thread may read; none waits for the origin.
#[derive(Debug)]
pub struct Snapshot {
    device: Arc<dyn BlockDevice>,
    store: File,
    layout: Layout,
    len: u64,
    writer: Box<dyn Writer>,
}

impl Snapshot {
    /// Of the device of an origin, opened for reading, and the store that
    /// [`Origin::keep`](crate::Origin::keep) was given; `len` is the origin's length then.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device is shorter.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        store: File,
        len: u64,
        writer: Box<dyn Writer>,
    ) -> Result<Self, Error> {
        Error::check_range(0, len, device.len())?;
        Ok(Self {
            device,
            store,
            layout: Layout::new(len),
            len,
            writer,
        })
    }

    /// Puts what the store has of a range that was read over it.
    fn restore(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let mut there = [0; PIECE as usize];
        let mut chunk = offset / CHUNK;
        while chunk * CHUNK < end {
            let count = (end.div_ceil(CHUNK) - chunk).min(PIECE);
            // OK to cast: at most PIECE.
            let there = &mut there[..count as usize];
            self.store
                .read_exact_at(there, self.layout.map().saturating_add(chunk))?;
            let kept = there.iter().zip(chunk..).filter(|(there, _)| **there != 0);
            for (_, chunk) in kept {
                let from = offset.max(chunk * CHUNK);
                let to = end.min((chunk + 1) * CHUNK);
                // OK to cast: both lie in `buf`.
                let part = (from - offset) as usize..(to - offset) as usize;
                self.store.read_exact_at(&mut buf[part], from)?;
            }
            chunk += count;
        }
        Ok(())
    }

    /// Fails if the store does not have everything.
    fn check(&self) -> io::Result<()> {
        let mut state = [0];
        self.store.read_exact_at(&mut state, self.layout.state())?;
        let [state] = state;
        Err(io::Error::other(match State::of(state) {
            State::Holds if self.writer.is_running() => return Ok(()),
            State::Holds => "the process that writes it, a mount's daemon, has ended meanwhile",
            State::Ended => "the snapshot has ended: what was written since was not kept",
            State::Full => {
                "more was overwritten meanwhile than a snapshot keeps: try it when less is written"
            }
            State::Failed => "what was overwritten meanwhile could not be kept",
        }))
    }

    /// The first range of the store from `offset` on that has old bytes.
    fn next_kept(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let seek = |to| match rustix::fs::seek(&self.store, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(io::Error::from(error)),
        };
        let Some(start) = seek(SeekFrom::Data(offset))?.filter(|start| *start < self.len) else {
            return Ok(None);
        };
        let end = seek(SeekFrom::Hole(start))?.unwrap_or(self.len);
        Ok(Some(start..end.min(self.len)))
    }
}

impl BlockDevice for Snapshot {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn is_rotational(&self) -> bool {
        self.device.is_rotational()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        Error::check_range(offset, buf.len() as u64, self.len)?;
        self.device.read_at(offset, buf)?;
        // What was overwritten before it was read is in the store by now.
        fence(Ordering::SeqCst);
        let restored = self.restore(offset, buf).and_then(|()| self.check());
        restored.map_err(|source| Error::io("read", offset, source))
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        for request in requests.iter() {
            Error::check_range(request.offset, request.buf.len() as u64, self.len)?;
        }
        self.device.read_many(requests)?;
        fence(Ordering::SeqCst);
        let restored = requests
            .iter_mut()
            .try_for_each(|request| self.restore(request.offset, request.buf));
        let restored = restored.and_then(|()| self.check());
        restored.map_err(|source| Error::io("read", 0, source))
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        if offset >= self.len {
            return Ok(None);
        }
        // What was discarded before the device was asked is in the store by now.
        let now = self.device.next_data(offset)?;
        let now = now.filter(|range| range.start < self.len);
        let now = now.map(|range| range.start..range.end.min(self.len));
        fence(Ordering::SeqCst);
        let kept = self.next_kept(offset);
        let kept = kept.and_then(|kept| self.check().map(|()| kept));
        let kept = kept.map_err(|source| Error::io("seek", offset, source))?;
        Ok(match (now, kept) {
            (Some(now), Some(kept)) if kept.start < now.start => Some(kept),
            (Some(now), _) => Some(now),
            (None, kept) => kept,
        })
    }
}

//! The thread that writes contents, so that reading and writing them overlap.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use uext4_blockdev::{BlockDevice, FileDevice, WriteRequest};

use super::region::Region;
use super::share::Shared;
use crate::chunks::Slice;
use crate::error::Error;

/// Batches on their way to the thread.
const AHEAD: usize = 4;
/// The file grows in steps from the first to the second of these; the end is cut when the image is
/// complete.
const GROWTH_MIN: u64 = 1 << 20;
const GROWTH_MAX: u64 = 1 << 30;
/// Most zeroes in one part.
pub const ZEROES_MAX: usize = 64 << 10;
static ZEROES: [u8; ZEROES_MAX] = [0; ZEROES_MAX];

/// Bytes to write, after those before them.
pub enum Part {
    Bytes(Slice),
    /// At most [`ZEROES_MAX`].
    Zeroes(usize),
    /// Bytes of a file, which need not come into memory.
    Shared(Shared),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(slice) => slice,
            Self::Zeroes(len) => ZEROES.get(..*len).unwrap_or(&ZEROES),
            Self::Shared(_) => &[],
        }
    }
}

/// The sender's side.
pub struct Writer {
    batches: Option<SyncSender<Vec<Part>>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn start(region: Arc<Region>, device: Arc<FileDevice>, offset: u64) -> Result<Self, Error> {
        let (batches, received) = sync_channel(AHEAD);
        let thread = thread::Builder::new().name("write".into());
        let mut cursor = Cursor {
            region,
            device,
            offset,
            linear: 0,
        };
        let spawned = thread.spawn(move || cursor.run(&received));
        Ok(Self {
            batches: Some(batches),
            thread: Some(spawned.map_err(|source| Error::Thread { source })?),
        })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// Why an earlier one could not be written.
    pub fn send(&mut self, batch: Vec<Part>) -> Result<(), Error> {
        let batches = self.batches.as_ref().ok_or_else(ended)?;
        match batches.send(batch) {
            Ok(()) => Ok(()),
            // The thread takes no more only after a failure, which it returns.
            Err(_) => self.finish().and_then(|()| Err(ended())),
        }
    }

    /// Waits until all batches are written.
    ///
    /// # Errors
    /// As [`Writer::send`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.batches = None;
        let thread = self.thread.take().ok_or_else(ended)?;
        thread.join().unwrap_or_else(|_| Err(ended()))
    }
}

/// The thread is there no longer, so that nothing more can be written.
fn ended() -> Error {
    let source = std::io::Error::other("the thread that writes contents has ended");
    Error::Thread { source }
}

/// The thread's side.
struct Cursor {
    region: Arc<Region>,
    device: Arc<FileDevice>,
    offset: u64,
    /// Linear offset of the next byte.
    linear: u64,
}

impl Cursor {
    fn run(&mut self, batches: &Receiver<Vec<Part>>) -> Result<(), Error> {
        batches.iter().try_for_each(|batch| self.write(&batch))
    }

    fn write(&mut self, batch: &[Part]) -> Result<(), Error> {
        let mut requests = Vec::with_capacity(batch.len() + 1);
        let (mut shared, mut end) = (Vec::new(), 0);
        for part in batch {
            if let Part::Shared(file) = part {
                let mut skip = 0;
                while skip < file.len() {
                    let (at, here) = self.place(file.len() - skip)?;
                    shared.push((file, skip, here as u64, at));
                    self.linear += here as u64;
                    skip += here as u64;
                    end = at + here as u64;
                }
            }
            let mut bytes = part.bytes();
            while !bytes.is_empty() {
                let (at, here) = self.place(bytes.len() as u64)?;
                let (buf, rest) = bytes.split_at(here);
                requests.push(WriteRequest { offset: at, buf });
                self.linear += here as u64;
                bytes = rest;
                end = at + here as u64;
            }
        }
        if end > self.device.len() {
            let step = (end / 4).clamp(GROWTH_MIN, GROWTH_MAX);
            self.device.set_len(end.next_multiple_of(step))?;
        }
        self.device.write_many(&requests)?;
        let mut shared = shared.into_iter();
        shared.try_for_each(|(file, skip, len, at)| file.put(skip, len, at))
    }

    /// Where the next byte goes, and how many of the `len` bytes go there in a row.
    fn place(&self, len: u64) -> Result<(u64, usize), Error> {
        let block = self.region.block_len();
        let (first, inside) = (self.linear / block, self.linear % block);
        let last = (self.linear + len).div_ceil(block);
        // The placer does not send what does not fit.
        let run = self
            .region
            .runs(first..last)
            .next()
            .ok_or(Error::DoesNotFit {
                what: "bytes of contents",
                need: self.linear + len,
                have: self.region.limit(),
                brought: None,
            })?;
        let at = self.offset + run.start * block + inside;
        let here = (run.len * block - inside).min(len);
        Ok((at, here as usize))
    }
}

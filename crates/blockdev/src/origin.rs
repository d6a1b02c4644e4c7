//! A device whose contents of one moment can be read on while it is written: the origin of
//! snapshots, as device-mapper calls it.
//!
//! ```text
//! write ──► Origin ── a chunk that no snapshot has yet ──► its old bytes into their stores
//!             └──────────────────────────────────────────► the device
//! read  ──► Snapshot ──► the device, then over it what the store has by then
//! ```
//! A [`Snapshot`](crate::Snapshot) needs of the origin the device and the store alone, so another
//! process can read it that was passed both, at its own speed, without asking for a block. The old
//! bytes are in the store before they are overwritten on the device; who reads the device first
//! and the store then finds them in one or the other.
//!
//! # The store
//!
//! A file of shared memory, sparse, where every chunk has the place that it has on the device:
//!
//! ```text
//! 0              chunks × 4096        chunks × 4097
//! │ old chunks … │ a byte for each: 1 if it is there │ state │
//! ```
//! # Cost
//!
//! Without a snapshot, a write takes a lock for reading that few threads share. With one, the
//! first write to a chunk reads and copies it. What all snapshots of an origin may hold is
//! bounded; past that the one that holds most ends, gives back its memory, and says so to its
//! reader: no write ever fails or waits for a reader. A snapshot has the length that the device had
//! when it began: nothing is kept of what is written behind that. One that reaches beyond what a
//! device is cut to ends.
//!
//! # Locks
//!
//! A write holds one of `writing` for reading until it is done; a snapshot begins with all of
//! them held for writing, so that it has each write wholly or not at all. `kept` is taken after
//! these, and under it none but the device's own, while old bytes are read.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::iter::once;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustix::fs::{FallocateFlags, fallocate};

use crate::{BlockDevice, Error, ReadRequest, WriteRequest};

/// Bytes that are kept together.
pub(crate) const CHUNK: u64 = 4096;
/// Chunks that all snapshots of an origin may hold: 256 MiB.
const CHUNKS_MAX: u64 = 65_536;
/// Chunks that are copied at once.
const RUN: u64 = 64;
/// Locks that the threads that write are spread over.
const LOCKS: usize = 16;

/// Where the parts of a store lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bytes of the device.
    len: u64,
}

/// What a store says of itself, in its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has everything that was overwritten.
    Holds,
    /// The origin has ended it.
    Ended,
    /// There was more to keep than fits.
    Full,
    /// The old bytes could not be read, or not be stored.
    Failed,
}

/// A device that can have snapshots.
#[derive(Debug)]
pub struct Origin {
    device: Arc<dyn BlockDevice>,
    writing: [Lock; LOCKS],
    /// How many snapshots there are: changed with all of `writing` held to begin one.
    count: AtomicUsize,
    kept: Mutex<Keeping>,
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lock {
    held: RwLock<()>,
    /// Writes that were begun with it.
    writes: AtomicU64,
}

/// The snapshots of an origin.
#[derive(Debug, Default)]
struct Keeping {
    stores: Vec<Store>,
    next: u64,
    /// Chunks in all stores.
    chunks: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Store {
    number: u64,
    file: File,
    layout: Layout,
    /// Which chunks it has: 64 of them each.
    has: HashMap<u64, u64>,
    chunks: u64,
}

/// A snapshot, as the origin has it; dropping it ends it.
#[derive(Debug)]
pub struct Kept {
    origin: Weak<Origin>,
    number: u64,
    writes: u64,
    len: u64,
}

impl Layout {
    pub(crate) fn new(len: u64) -> Self {
        Self { len }
    }

    /// Chunks of the device; the last one may be a part of one.
    fn chunks(self) -> u64 {
        self.len.div_ceil(CHUNK)
    }

    /// Where the bytes begin that say which chunks are there.
    pub(crate) fn map(self) -> u64 {
        self.chunks().saturating_mul(CHUNK)
    }

    /// Where the state is.
    pub(crate) fn state(self) -> u64 {
        self.map().saturating_add(self.chunks())
    }
}

impl State {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Holds => 0,
            Self::Ended => 1,
            Self::Full => 2,
            Self::Failed => 3,
        }
    }

    pub(crate) fn of(byte: u8) -> Self {
        let all = [Self::Holds, Self::Ended, Self::Full];
        let found = all.into_iter().find(|state| state.byte() == byte);
        found.unwrap_or(Self::Failed)
    }
}

/// The lock of this thread.
fn lock_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
    MINE.with(|mine| {
        mine.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed) % LOCKS;
            mine.set(Some(number));
            number
        })
    })
}

impl Origin {
    /// Of a device that is written through this alone from now on.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            writing: Default::default(),
            count: AtomicUsize::new(0),
            kept: Mutex::default(),
        }
    }

    /// Begins a snapshot of what the device holds now, the writes that have returned included. Its
    /// old chunks go to `store`, which must not wait: an empty file of shared memory, used for
    /// nothing else.
    ///
    /// # Errors
    /// Those of writing to the store.
    ///
    /// # Locking
    /// Waits for the writes under way, and holds others back meanwhile.
    pub fn keep(self: &Arc<Self>, store: File) -> io::Result<Kept> {
        let held: Vec<_> = self.writing.iter().map(|it| it.held.write()).collect();
        // With the locks held: what a write that has returned speaks of is within this length.
        let layout = Layout::new(self.device.len());
        // The last byte: the file has its length by it.
        store.write_all_at(&[State::Holds.byte()], layout.state())?;
        let mut kept = self.kept.lock();
        kept.next += 1;
        let number = kept.next;
        kept.stores.push(Store {
            number,
            file: store,
            layout,
            has: HashMap::new(),
            chunks: 0,
        });
        self.count.store(kept.stores.len(), Ordering::Release);
        let writes = self.writes();
        drop(held);
        Ok(Kept {
            origin: Arc::downgrade(self),
            number,
            writes,
            len: layout.len,
        })
    }

    /// Writes that have begun so far.
    pub fn writes(&self) -> u64 {
        let all = self.writing.iter();
        all.map(|it| it.writes.load(Ordering::Relaxed)).sum()
    }

    /// Ends all snapshots: for the end of the process that writes, before another may.
    pub fn end_all(&self) {
        let mut kept = self.kept.lock();
        while !kept.stores.is_empty() {
            kept.end(0, State::Ended);
        }
        self.count.store(0, Ordering::Release);
    }

    /// The ranges of one that may hold anything but zeroes: only these change when it is discarded.
    fn data_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let rest = at..range.end;
            let found = self.device.next_data(at).unwrap_or(Some(rest))?;
            let found = found.start.max(at)..found.end.min(range.end);
            at = found.end.max(at + 1);
            (found.start < found.end).then_some(found)
        })
    }

    /// Keeps what is about to be overwritten. Held until it is.
    fn before_write(&self, ranges: impl Iterator<Item = Range<u64>>) -> RwLockReadGuard<'_, ()> {
        let lock = &self.writing[lock_of_thread()];
        let held = lock.held.read();
        lock.writes.fetch_add(1, Ordering::Relaxed);
        // A snapshot begins with the lock held: what is read here is not older than it. One that
        // has ended says so to its reader before this says that there is none.
        if self.count.load(Ordering::Acquire) > 0 {
            let mut kept = self.kept.lock();
            for range in ranges {
                kept.keep(&*self.device, &range);
            }
            self.count.store(kept.stores.len(), Ordering::Release);
            // The store has the old bytes before the device has others.
            fence(Ordering::SeqCst);
        }
        held
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(origin) = self.origin.upgrade() else {
            return;
        };
        let mut kept = origin.kept.lock();
        let is_it = |store: &Store| store.number == self.number;
        if let Some(at) = kept.stores.iter().position(is_it) {
            kept.end(at, State::Ended);
        }
        origin.count.store(kept.stores.len(), Ordering::Release);
    }
}

impl Kept {
    /// How many writes of the origin had begun, and ended, when it began.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Bytes of the device then.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the device had no bytes then.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Keeping {
    /// Has all stores keep the chunks of a range.
    fn keep(&mut self, device: &dyn BlockDevice, range: &Range<u64>) {
        let end = range.end.min(device.len());
        if range.start >= end {
            return;
        }
        let chunks = range.start / CHUNK..end.div_ceil(CHUNK);
        let numbers: Vec<u64> = self.stores.iter().map(|store| store.number).collect();
        for number in numbers {
            self.keep_in(number, device, chunks.clone());
        }
    }

    /// Has one store keep those that it does not have.
    fn keep_in(&mut self, number: u64, device: &dyn BlockDevice, chunks: Range<u64>) {
        let mut chunk = chunks.start;
        // Where there is no room, the store itself may be the one that ends.
        while let Some(at) = self.stores.iter().position(|it| it.number == number) {
            let store = &mut self.stores[at];
            // The device may be longer by now.
            let end = chunks.end.min(store.layout.chunks());
            if chunk >= end {
                return;
            }
            let run = store.missing(chunk, end.min(chunk.saturating_add(RUN)));
            let count = run.end - run.start;
            if self.chunks + count > CHUNKS_MAX {
                let most = (0..self.stores.len()).max_by_key(|&at| self.stores[at].chunks);
                self.end(most.unwrap_or(at), State::Full);
                continue;
            }
            chunk = run.end;
            if count == 0 {
                continue;
            }
            self.chunks += count;
            store.chunks += count;
            if store.copy(device, &run, &mut self.buffer).is_err() {
                self.end(at, State::Failed);
            }
        }
    }

    /// Ends all that reach beyond so many bytes, which the device is about to lose.
    fn end_beyond(&mut self, len: u64) {
        let reaches = |store: &Store| store.layout.len > len;
        while let Some(at) = self.stores.iter().position(reaches) {
            self.end(at, State::Failed);
        }
    }

    /// Ends a snapshot, for a reason that its reader finds.
    fn end(&mut self, at: usize, state: State) {
        let store = self.stores.swap_remove(at);
        self.chunks -= store.chunks;
        let place = store.layout.state();
        // Its page is there since the beginning.
        _ = store.file.write_all_at(&[state.byte()], place);
        // The reader may live for long. It looks at the state last.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        _ = fallocate(&store.file, flags, 0, place);
    }
}

impl Store {
    fn has(&self, chunk: u64) -> bool {
        let bits = self.has.get(&(chunk / 64)).copied().unwrap_or(0);
        bits >> (chunk % 64) & 1 == 1
    }

    /// The first chunks from `chunk` on that it does not have, up to `end`; if it has that one, an
    /// empty range at the first that it does not have.
    fn missing(&self, chunk: u64, end: u64) -> Range<u64> {
        let first = (chunk..end).find(|&at| !self.has(at)).unwrap_or(end);
        if first > chunk {
            return first..first;
        }
        let after = (first..end).find(|&at| self.has(at)).unwrap_or(end);
        first..after
    }

    fn copy(
        &mut self,
        device: &dyn BlockDevice,
        run: &Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (start, end) = (run.start * CHUNK, (run.end * CHUNK).min(self.layout.len));
        let failed = |source| Error::io("keep", start, source);
        // OK to cast: at most RUN chunks.
        buffer.resize((end - start) as usize, 0);
        device.read_at(start, buffer)?;
        self.file.write_all_at(buffer, start).map_err(failed)?;
        let there = [1; RUN as usize];
        // OK to cast: at most RUN.
        let there = &there[..(run.end - run.start) as usize];
        let place = self.layout.map() + run.start;
        self.file.write_all_at(there, place).map_err(failed)?;
        for chunk in run.clone() {
            *self.has.entry(chunk / 64).or_insert(0) |= 1 << (chunk % 64);
        }
        Ok(())
    }
}

fn range(offset: u64, len: usize) -> Range<u64> {
    offset..offset.saturating_add(len as u64)
}

impl BlockDevice for Origin {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn measure(&self) -> Result<u64, Error> {
        self.device.measure()
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        // No snapshot begins meanwhile with bytes that are cut off.
        let _held: Vec<_> = self.writing.iter().map(|it| it.held.write()).collect();
        if len < self.device.len() {
            let mut kept = self.kept.lock();
            kept.end_beyond(len);
            self.count.store(kept.stores.len(), Ordering::Release);
        }
        self.device.set_len(len)
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn is_rotational(&self) -> bool {
        self.device.is_rotational()
    }

    fn claim_range(&self, range: &Range<u64>) -> Result<(), Error> {
        self.device.claim_range(range)
    }

    fn release_range(&self, range: &Range<u64>) {
        self.device.release_range(range);
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.device.read_at(offset, buf)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        self.device.read_many(requests)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let _held = self.before_write(once(range(offset, buf.len())));
        self.device.write_at(offset, buf)
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        let ranges = requests.iter().map(|it| range(it.offset, it.buf.len()));
        let _held = self.before_write(ranges);
        self.device.write_many(requests)
    }

    fn write_behind(&self, range: Range<u64>) {
        self.device.write_behind(range);
    }

    fn flush(&self) -> Result<(), Error> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        let _held = self.before_write(self.data_in(offset..offset.saturating_add(len)));
        self.device.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> Result<bool, Error> {
        let _held = self.before_write(self.data_in(offset..offset.saturating_add(len)));
        self.device.trim(offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        self.device.next_data(offset)
    }
}

#[cfg(test)]
mod tests;

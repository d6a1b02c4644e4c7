//! One folio: a power of two of blocks with one buffer, and the state of each block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::block_set::BlockSet;
use crate::pool::{Buffer, Pool};

/// Neighbouring blocks of a file, aligned to their size. Offsets and blocks in here are relative
/// to the folio. A block that is not uptodate shows nothing; a dirty one is uptodate.
///
/// The buffer is shared with any thread that writes it to the device, and then copied by the next
/// change.
#[derive(Debug)]
pub(crate) struct Folio {
    buffer: Arc<Buffer>,
    /// Log2 of the size in bytes.
    shift: u32,
    pub(crate) uptodate: BlockSet,
    pub(crate) dirty: BlockSet,
    /// A snapshot of it is being written, so the device may be older than its clean blocks.
    pub(crate) writeback: bool,
    /// Used since the clock's hand came by.
    referenced: AtomicBool,
}

impl Folio {
    /// A folio that shows nothing yet.
    pub(crate) fn new(buffer: Buffer, shift: u32) -> Self {
        Self {
            buffer: Arc::new(buffer),
            shift,
            uptodate: BlockSet::default(),
            dirty: BlockSet::default(),
            writeback: false,
            referenced: AtomicBool::new(true),
        }
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        1 << self.shift
    }

    /// Blocks.
    pub(crate) fn blocks(&self, block_shift: u32) -> u32 {
        1 << (self.shift - block_shift)
    }

    /// The buffer as it is now.
    pub(crate) fn snapshot(&self) -> Arc<Buffer> {
        Arc::clone(&self.buffer)
    }

    /// Notes that a thread used it.
    pub(crate) fn touch(&self) {
        // Read first: many readers of one folio then share its cache line.
        if !self.referenced.load(Relaxed) {
            self.referenced.store(true, Relaxed);
        }
    }

    /// Takes the second chance away; true if there was one.
    pub(crate) fn untouch(&self) -> bool {
        self.referenced.swap(false, Relaxed)
    }

    /// Copies uptodate bytes from `at` on into `to`, up to the first block that is not; returns
    /// how many.
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8], block_shift: u32) -> usize {
        let blocks = self.blocks(block_shift);
        let first = (at >> block_shift) as u32;
        let end = match self.uptodate.gap(&(first..blocks)) {
            Some(gap) => (gap.start as usize) << block_shift,
            None => 1 << self.shift,
        };
        let len = end.saturating_sub(at).min(to.len());
        match self.buffer.bytes().get(at..at + len) {
            Some(from) => to[..len].copy_from_slice(from),
            None => return 0,
        }
        self.touch();
        len
    }

    /// Copies `data` to byte `at` of the folio and marks its blocks dirty. The rest of the first
    /// and of the last block is kept if the block is uptodate, else zeroed. Returns the number of
    /// blocks that were clean before.
    pub(crate) fn write(
        &mut self,
        at: usize,
        data: &[u8],
        block_shift: u32,
        pool: &Arc<Pool>,
    ) -> u32 {
        let end = at + data.len();
        let first = (at >> block_shift) as u32;
        let last = (end.saturating_sub(1) >> block_shift) as u32;
        let pad_head = !self.uptodate.contains(first);
        let pad_tail = !self.uptodate.contains(last);
        if data.len() as u64 == self.size() && Arc::strong_count(&self.buffer) > 1 {
            // Nothing of the old bytes stays: no need to copy them.
            self.buffer = Arc::new(pool.take(data.len()));
        }
        let buffer = Arc::make_mut(&mut self.buffer);
        if pad_head {
            buffer.zero((first as usize) << block_shift, at);
        }
        buffer.put(at, data);
        if pad_tail {
            buffer.zero(end, (last as usize + 1) << block_shift);
        }
        self.touch();
        self.uptodate.insert(&(first..last + 1));
        self.dirty.insert(&(first..last + 1))
    }

    /// Fills one block that is not uptodate.
    pub(crate) fn fill(&mut self, block: u32, data: &[u8], block_shift: u32) {
        Arc::make_mut(&mut self.buffer).put((block as usize) << block_shift, data);
        self.uptodate.insert(&(block..block + 1));
    }

    /// Makes the bytes of one block zero if it is uptodate and they are not yet; true if it did.
    pub(crate) fn zero(&mut self, at: usize, end: usize, block_shift: u32) -> bool {
        let block = (at >> block_shift) as u32;
        let old = self.buffer.bytes().get(at..end);
        if !self.uptodate.contains(block) || old.is_none_or(|old| old.iter().all(|b| *b == 0)) {
            return false;
        }
        if let Some(bytes) = Arc::make_mut(&mut self.buffer).bytes_mut().get_mut(at..end) {
            bytes.fill(0);
        }
        true
    }
}

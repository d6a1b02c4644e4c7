//! The cache: looking blocks up, bringing them in, dropping them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::{Mutex, MutexGuard};
use uext4_blockdev::{BlockDevice, ReadRequest};
use uext4_ondisk::{BlockSize, Damage, Pblk};
use uext4_support::PerThread;

use crate::bh_lru::{Key, Lrus, Reuse};
use crate::buffer::{Buffer, Inner};
use crate::shard::{OVERHEAD, SHARDS, Shard, shard_of};
use crate::stats::{Stats, count};
use crate::{Error, Options, VerifyTag};

/// Fewest blocks a cache may hold, whatever its memory limit says.
const BLOCKS_MIN: usize = 16;
/// Most bytes of one readahead request.
const READAHEAD_BYTES: usize = 1 << 20;
/// Slots the clock passes before it lets go of a shard's lock.
const CLOCK_STEPS: usize = 64;
/// Blocks the clock looks at for each that comes over the limit, in the long run.
const STEPS_PER_BLOCK: usize = 16;
/// Blocks it looks at before it is asked whether that was much.
const STEPS_FREE: usize = 256;

/// Numbers the caches of this process, so that a thread's LRU never takes one for another.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The metadata blocks of one device. Shared between threads by reference or `Arc`; see the head
/// of the crate.
#[derive(Debug)]
pub struct BufferCache {
    id: u64,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: BlockSize,
    lrus: Lrus,
    /// Lookups that they answered.
    lru_hits: PerThread<AtomicU64>,
    /// Blocks that fit the memory limit as it was given.
    blocks_max: usize,
    /// Blocks it may hold now, never more than that.
    blocks_limit: AtomicUsize,
    /// Blocks in the table.
    blocks: AtomicUsize,
    /// Shard the clock visits next.
    clock_shard: AtomicUsize,
    /// New blocks until the clock runs again, after it found everything pinned or dirty.
    clock_rest: AtomicUsize,
    pub(crate) shards: Box<[Shard]>,
    /// One `write_dirty` at a time, so that none returns while another still writes.
    pub(crate) write_lock: Mutex<()>,
}

impl BufferCache {
    /// An empty cache. Nothing is read yet. A `bh_lru_size` out of range is clamped.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: BlockSize, options: Options) -> Self {
        let blocks_max = (options.memory_max / (block_size.len() + OVERHEAD)).max(BLOCKS_MIN);
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            device,
            block_size,
            lrus: Lrus::new(options.bh_lru, options.bh_lru_size),
            lru_hits: PerThread::default(),
            blocks_max,
            blocks_limit: AtomicUsize::new(blocks_max),
            blocks: AtomicUsize::new(0),
            clock_shard: AtomicUsize::new(0),
            clock_rest: AtomicUsize::new(0),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            write_lock: Mutex::new(()),
        }
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Size of every block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Reads a block, or finds it, and makes sure it is what `tag` says.
    ///
    /// `verify` looks at the content when the block came in, and later only if it was last
    /// verified under another tag. It runs without a lock held; threads that miss a block at the
    /// same moment share one read but may each verify.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::BlockNumber`], and [`Error::Damage`] as `verify` returned it;
    /// the block then stays unverified and the next call looks at it again.
    pub fn bread(
        &self,
        block: Pblk,
        tag: VerifyTag,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<Buffer, Error> {
        self.bread_expecting(block, Reuse::Unknown, tag, verify)
    }

    /// [`bread`](Self::bread) by a caller that knows when the block will be used again.
    ///
    /// # Errors
    /// As there.
    pub fn bread_expecting(
        &self,
        block: Pblk,
        reuse: Reuse,
        tag: VerifyTag,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<Buffer, Error> {
        let inner = self.getblk(block, reuse);
        let snapshot = loop {
            let state = inner.state.lock();
            if state.uptodate {
                if state.verified == Some(tag) {
                    drop(state);
                    return Ok(Buffer(inner));
                }
                break Arc::clone(&state.data);
            }
            drop(state);
            self.read_block(&inner)?;
        };
        count(&self.shard(block).counters.verifications);
        verify(&snapshot)?;
        let mut state = inner.state.lock();
        // What was changed meanwhile has not been looked at.
        if state.uptodate && Arc::ptr_eq(&state.data, &snapshot) {
            state.verified = Some(tag);
        }
        drop(state);
        Ok(Buffer(inner))
    }

    /// A block whose old content does not matter: nothing is read, it is all zero and dirty.
    ///
    /// It counts as verified under no tag until [`BufferCache::bread`] is called for it.
    pub fn getblk_zeroed(&self, block: Pblk) -> Buffer {
        let inner = self.getblk(block, Reuse::Unknown);
        let zeroes = zeroed(self.block_size);
        let mut state = inner.state.lock();
        state.data = zeroes;
        state.verified = None;
        inner.set_dirty(&mut state);
        drop(state);
        Buffer(inner)
    }

    /// A block whose old content does not matter: nothing is read, it is all zero, and not dirty.
    /// For who is going to call [`Buffer::modify_pinned`].
    pub fn getblk_new(&self, block: Pblk) -> Buffer {
        let inner = self.getblk(block, Reuse::Unknown);
        let zeroes = zeroed(self.block_size);
        let mut state = inner.state.lock();
        inner.clear_dirty(&mut state);
        state.data = zeroes;
        state.uptodate = true;
        state.verified = None;
        drop(state);
        Buffer(inner)
    }

    /// Brings in what is missing of `count` blocks from `start`, unverified, with one request for
    /// each run of missing blocks. Errors are left to the `bread` that needs the block.
    ///
    /// At most a quarter of the cache is filled by one call; blocks past that, past the device or
    /// being read by another thread are left out.
    pub fn readahead(&self, start: Pblk, count: u32) {
        let device_blocks = self.device.len() >> self.block_size.log2();
        let end = start.0.saturating_add(u64::from(count)).min(device_blocks);
        let most = (self.blocks_limit() / 4).max(1) as u64;
        let end = end.min(start.0.saturating_add(most));
        let step = (READAHEAD_BYTES / self.block_size.len()) as u64;
        let mut at = start.0;
        while at < end {
            let next = end.min(at + step);
            if self.readahead_chunk(at..next).is_err() {
                return;
            }
            at = next;
        }
    }

    /// Declares a block's content to be of no use: it is not written, and read again if any
    /// thread asks for it. For blocks that were freed, or changed on the device behind the cache.
    pub fn forget(&self, block: Pblk) {
        let found = self.shard(block).table.lock().get(block).map(Arc::clone);
        if let Some(inner) = found {
            let mut state = inner.state.lock();
            inner.clear_dirty(&mut state);
            state.uptodate = false;
            state.forgotten = state.forgotten.wrapping_add(1);
            state.verified = None;
        }
    }

    /// Blocks that could be dropped now, pinned ones counted in: what a shrinker asks first.
    pub fn count(&self) -> usize {
        self.blocks.load(Relaxed).saturating_sub(self.dirty_count())
    }

    /// Drops up to `nr` clean, unpinned blocks, least recently used first as far as the clock
    /// knows. Returns how many went.
    pub fn scan(&self, nr: usize) -> usize {
        self.scan_counted(nr).0
    }

    /// As [`Self::scan`]; returns too how many blocks it looked at.
    fn scan_counted(&self, nr: usize) -> (usize, usize) {
        let (mut gone, mut steps) = self.scan_unpinned(nr);
        // What the LRUs hold is pinned for no reason that counts now.
        if gone < nr && self.lrus.invalidate() > 0 {
            let more = self.scan_unpinned(nr - gone);
            gone += more.0;
            steps += more.1;
        }
        (gone, steps)
    }

    /// Returns how many blocks went, and how many were looked at for that.
    fn scan_unpinned(&self, nr: usize) -> (usize, usize) {
        let (mut gone, mut idle, mut steps) = (0, 0, 0);
        // Each shard twice: the first round may only clear the marks of use.
        while gone < nr && idle < 2 * SHARDS {
            let (went, looked_at) = self.reclaim_shard(nr - gone);
            gone += went;
            steps += looked_at;
            idle = if went > 0 { 0 } else { idle + 1 };
        }
        (gone, steps)
    }

    /// Bytes of memory one block takes, bookkeeping included.
    pub fn block_memory(&self) -> usize {
        self.block_size.len() + OVERHEAD
    }

    /// Bytes of memory that all blocks take now.
    pub fn memory(&self) -> usize {
        self.blocks.load(Relaxed) * self.block_memory()
    }

    /// Bytes of memory it may hold now.
    pub fn limit(&self) -> usize {
        self.blocks_limit() * self.block_memory()
    }

    /// Sets how many bytes of memory it may hold from now on, at least 16 blocks and at most what
    /// it was made with. What is over that goes when the next block comes; [`BufferCache::scan`]
    /// drops it at once.
    pub fn set_limit(&self, bytes: usize) {
        let blocks = bytes / self.block_memory();
        self.blocks_limit
            .store(blocks.clamp(BLOCKS_MIN, self.blocks_max), Relaxed);
    }

    fn blocks_limit(&self) -> usize {
        self.blocks_limit.load(Relaxed)
    }

    /// Dirty blocks.
    pub fn dirty_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.dirty.len()).sum()
    }

    /// Counters since the cache was made.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.shards {
            stats.add(&shard.counters);
        }
        stats.nr_buffers = self.blocks.load(Relaxed) as u64;
        stats.nr_dirty = self.dirty_count() as u64;
        stats.lru_hits = self.lru_hits.iter().map(|hits| hits.load(Relaxed)).sum();
        stats.lookups += stats.lru_hits;
        stats
    }

    pub(crate) fn shard(&self, block: Pblk) -> &Shard {
        &self.shards[shard_of(block)]
    }

    /// The block's buffer, pinned, perhaps without content yet.
    fn getblk(&self, block: Pblk, reuse: Reuse) -> Arc<Inner> {
        let key = Key {
            cache: self.id,
            block: block.0,
        };
        if let Some(Buffer(inner)) = self.lrus.lookup(key) {
            count(self.lru_hits.get());
            inner.touch();
            return inner;
        }
        let (inner, new) = self.find_or_insert(block);
        let counters = &self.shard(block).counters;
        count(if new {
            &counters.misses
        } else {
            &counters.hits
        });
        let buffer = Buffer(inner);
        self.lrus.install(key, &buffer, reuse);
        buffer.0
    }

    /// The block's buffer from the table; true if it was put there now.
    fn find_or_insert(&self, block: Pblk) -> (Arc<Inner>, bool) {
        let shard = self.shard(block);
        let mut table = shard.table.try_lock().unwrap_or_else(|| {
            count(&shard.counters.lock_contended);
            shard.table.lock()
        });
        if let Some(inner) = table.get(block) {
            inner.touch();
            return (Arc::clone(inner), false);
        }
        let inner = Arc::new(Inner::new(block, Arc::clone(&shard.dirty)));
        table.insert(Arc::clone(&inner));
        drop(table);
        let blocks = self.blocks.fetch_add(1, Relaxed) + 1;
        let limit = self.blocks_limit();
        if blocks > limit {
            self.make_room(blocks - limit);
        }
        (inner, true)
    }

    /// Gets back below the memory limit, unless everything is pinned or dirty. Where the clock
    /// had to go far for the little that is not, it rests until so many blocks came that pay for
    /// that: an eighth of what is held at most.
    fn make_room(&self, over: usize) {
        let rest = self.clock_rest.load(Relaxed);
        if rest > 0 {
            self.clock_rest.store(rest - 1, Relaxed);
        } else {
            let (_, steps) = self.scan_counted(over);
            let rest = steps.saturating_sub(STEPS_FREE) / STEPS_PER_BLOCK;
            self.clock_rest.store(rest, Relaxed);
        }
    }

    /// Gets below the memory limit after blocks became clean.
    pub(crate) fn shrink_to_limit(&self) {
        self.clock_rest.store(0, Relaxed);
        let over = self
            .blocks
            .load(Relaxed)
            .saturating_sub(self.blocks_limit());
        if over > 0 {
            self.scan(over);
        }
    }

    /// Lets the clock go once round the next shard for up to `want` blocks. Returns how many
    /// went, and how many it looked at.
    fn reclaim_shard(&self, want: usize) -> (usize, usize) {
        let shard = &self.shards[self.clock_shard.fetch_add(1, Relaxed) % SHARDS];
        let mut gone = 0;
        let all = shard.table.lock().len();
        let mut left = all;
        while left > 0 && gone < want {
            let (went, steps) = shard
                .table
                .lock()
                .reclaim(want - gone, CLOCK_STEPS.min(left));
            gone += went;
            if steps == 0 {
                break;
            }
            left -= steps;
        }
        let counters = &shard.counters;
        counters.evictions.fetch_add(gone as u64, Relaxed);
        counters.clock_steps.fetch_add((all - left) as u64, Relaxed);
        self.blocks.fetch_sub(gone, Relaxed);
        (gone, all - left)
    }

    /// Reads a block unless another thread did while this one waited for it.
    fn read_block(&self, inner: &Inner) -> Result<(), Error> {
        let _io = inner.io.lock();
        let Some(forgotten) = missing(inner) else {
            return Ok(());
        };
        let offset = self.byte_offset(inner.block)?;
        let mut data = zeroed(self.block_size);
        if let Some(buf) = Arc::get_mut(&mut data) {
            self.device.read_at(offset, buf)?;
        }
        count(&self.shard(inner.block).counters.reads);
        fill(inner, data, forgotten);
        Ok(())
    }

    /// Reads the missing blocks of a range that fits one request.
    fn readahead_chunk(&self, range: Range<u64>) -> Result<(), Error> {
        let absent: Vec<Arc<Inner>> = range
            .map(|block| self.find_or_insert(Pblk(block)).0)
            .filter(|inner| missing(inner).is_some())
            .collect();
        let mut locked: Vec<(&Inner, u32, MutexGuard<'_, ()>)> = Vec::with_capacity(absent.len());
        for inner in &absent {
            // A thread that holds it reads the block; no thread waits here, so there is no lock
            // order.
            if let Some(guard) = inner.io.try_lock()
                && let Some(forgotten) = missing(inner)
            {
                locked.push((inner, forgotten, guard));
            }
        }
        if locked.is_empty() {
            return Ok(());
        }
        let size = self.block_size.len();
        let mut bytes = vec![0; locked.len() * size];
        let mut requests: Vec<ReadRequest<'_>> = Vec::new();
        let mut rest = bytes.as_mut_slice();
        for run in locked.chunk_by(|(a, ..), (b, ..)| a.block.0 + 1 == b.block.0) {
            let (buf, tail) = rest.split_at_mut(run.len() * size);
            rest = tail;
            let offset = self.byte_offset(run[0].0.block)?;
            requests.push(ReadRequest { offset, buf });
        }
        self.device.read_many(&mut requests)?;
        for ((inner, forgotten, _), data) in locked.iter().zip(bytes.chunks_exact(size)) {
            let counters = &self.shard(inner.block).counters;
            count(&counters.reads);
            count(&counters.readahead);
            fill(inner, Arc::from(data), *forgotten);
        }
        Ok(())
    }

    pub(crate) fn byte_offset(&self, block: Pblk) -> Result<u64, Error> {
        self.block_size
            .byte_offset(block)
            .ok_or(Error::BlockNumber { block })
    }
}

/// How often a block without content was forgotten, for [`fill`]; `None` if it has one.
fn missing(inner: &Inner) -> Option<u32> {
    let state = inner.state.lock();
    (!state.uptodate).then_some(state.forgotten)
}

/// Gives a block the content that was read for it, unless it was given one meanwhile, which may be
/// forgotten again: then what was read is older than the device.
fn fill(inner: &Inner, data: Arc<[u8]>, forgotten: u32) {
    let mut state = inner.state.lock();
    if !state.uptodate && state.forgotten == forgotten {
        state.data = data;
        state.uptodate = true;
    }
}

/// A block of zeroes, allocated once.
fn zeroed(block_size: BlockSize) -> Arc<[u8]> {
    std::iter::repeat_n(0, block_size.len()).collect()
}

//! What all files of a cache share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use uext4_blockdev::Clock;

use crate::block_set::BLOCKS_MAX;
use crate::dirty_list::DirtyList;
use crate::file::COPY_MAX;
use crate::flusher::Throttle;
use crate::pages::Shape;
use crate::pool::{BUFFER_MAX, Pool};
use crate::reclaim::Files;
use crate::stats::Counters;
use crate::{MappingError, Options, Stats};

/// Fewest blocks of memory it may hold.
const BLOCKS_MIN: u64 = 64;

pub(crate) struct Shared<E: MappingError> {
    pub(crate) options: Options,
    pub(crate) shape: Shape,
    /// Bytes taken in at once, a power of two of blocks.
    pub(crate) chunk: u64,
    /// Bytes of memory it may hold now, at most `options.memory_max`.
    limit: AtomicU64,
    /// Writers wait above this; `options.dirty_max` in proportion to the limit.
    dirty_max: AtomicU64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) counters: Counters,
    pub(crate) dirty: DirtyList<E>,
    pub(crate) reclaim: Mutex<Files<E>>,
    /// Files on the clock that are no more, about.
    pub(crate) dead: AtomicUsize,
    pub(crate) throttle: Throttle<E>,
}

impl<E: MappingError> fmt::Debug for Shared<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<E: MappingError> Shared<E> {
    pub(crate) fn new(mut options: Options, clock: Arc<dyn Clock>) -> Self {
        let block = u64::from(options.block_size.bytes());
        options.memory_max = options.memory_max.max(block * BLOCKS_MIN);
        options.dirty_max = options.dirty_max.clamp(block, options.memory_max);
        options.dirty_background = options.dirty_background.min(options.dirty_max / 2);
        // Folios and chunks stay small beside a small memory.
        let power = |bytes: u64, max: usize| {
            let max = max as u64;
            1u64 << bytes.clamp(block, max.max(block)).ilog2()
        };
        let folio_max = power(
            options.memory_max / 32,
            BUFFER_MAX.min(BLOCKS_MAX * block as usize),
        );
        Self {
            shape: Shape {
                block_shift: options.block_size.log2(),
                folio_shift_max: folio_max.ilog2(),
                // Several readers may each take one at once.
                window_max: power(options.memory_max / 64, COPY_MAX),
            },
            chunk: power(options.dirty_max.min(options.memory_max / 2) / 16, COPY_MAX),
            limit: AtomicU64::new(options.memory_max),
            dirty_max: AtomicU64::new(options.dirty_max),
            clock,
            pool: Pool::new(options.memory_max),
            counters: Counters::default(),
            dirty: DirtyList::new(),
            reclaim: Mutex::new(Files::new()),
            dead: AtomicUsize::new(0),
            throttle: Throttle::new(),
            options,
        }
    }

    /// Sets the memory it may hold from now on.
    pub(crate) fn set_limit(&self, bytes: u64) {
        let least = u64::from(self.options.block_size.bytes()) * BLOCKS_MIN;
        let most = self.options.memory_max;
        let bytes = bytes.clamp(least, most);
        if self.limit.swap(bytes, Relaxed) != bytes {
            let dirty = u128::from(self.options.dirty_max) * u128::from(bytes) / u128::from(most);
            // OK to truncate: no more than it was.
            let dirty = (dirty as u64).max(u64::from(self.options.block_size.bytes()));
            self.dirty_max.store(dirty, Relaxed);
            self.pool.set_total_max(bytes);
            self.kick_if_needed();
        }
    }

    /// Bytes of folios above which some are evicted; at least the rest is for free buffers.
    pub(crate) fn memory_limit(&self) -> u64 {
        let limit = self.limit.load(Relaxed);
        limit - limit / 16
    }

    /// Writers wait above this.
    pub(crate) fn dirty_max(&self) -> u64 {
        self.dirty_max.load(Relaxed)
    }

    /// Flushers write above this.
    pub(crate) fn dirty_background(&self) -> u64 {
        self.options.dirty_background.min(self.dirty_max() / 2)
    }

    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.counters;
        Stats {
            nr_file_pages: self.pool.resident(),
            nr_free: self.pool.free_bytes(),
            nr_dirty: counters.dirty.load(Relaxed),
            nr_writeback: counters.writeback.load(Relaxed),
            nr_dirtied: counters.dirtied.load(Relaxed),
            nr_written: counters.written.load(Relaxed),
            nr_dirty_threshold: self.dirty_max(),
            nr_dirty_background_threshold: self.dirty_background(),
            nr_read: counters.read.load(Relaxed),
            read_requests: counters.read_requests.load(Relaxed),
            write_requests: counters.write_requests.load(Relaxed),
            nr_reclaimed: counters.reclaimed.load(Relaxed),
            throttled: counters.throttled.load(Relaxed),
            write_errors: counters.write_errors.load(Relaxed),
            nr_lost: counters.lost.load(Relaxed),
        }
    }
}

//! What all files of a cache share: counters, limits, lists. It knows nothing of what a file is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use uext4_blockdev::Clock;

use crate::block_set::BLOCKS_MAX;
use crate::clock::Clock as ReclaimClock;
use crate::dirty_list::DirtyList;
use crate::errors::Errors;
use crate::flushers::Flushers;
use crate::limits::DirtyLimits;
use crate::pages::{COPY_MAX, Shape};
use crate::pool::{BUFFER_MAX, Pool};
use crate::stats::Counters;
use crate::throttle::{Bdi, PAGE_SIZE, TunableError};
use crate::trace::{self, Reason};
use crate::writer::Gate;
use crate::{Error, MappingError, Options, Stats};

/// Fewest blocks of memory it may hold.
const BLOCKS_MIN: u64 = 64;

fn centiseconds(count: u32) -> Duration {
    Duration::from_millis(u64::from(count) * 10)
}

/// Of files `F`, whose mappings fail with `E`.
pub(crate) struct Shared<E: MappingError, F> {
    pub(crate) options: Options,
    pub(crate) shape: Shape,
    /// Bytes taken in at once, a power of two of blocks.
    pub(crate) chunk: u64,
    /// Bytes of memory it may hold now, at most `options.memory_max`.
    limit: AtomicU64,
    /// What writers pass through.
    pub(crate) gate: Arc<Gate>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) counters: Counters,
    pub(crate) dirty: DirtyList<F>,
    pub(crate) reclaim: ReclaimClock<F>,
    pub(crate) flushers: Flushers<E>,
    /// Data that were given up, for reports to those that sync all files.
    pub(crate) losses: Errors<Error<E>>,
}

impl<E: MappingError, F> fmt::Debug for Shared<E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<E: MappingError, F> Shared<E, F> {
    pub(crate) fn new(
        mut options: Options,
        clock: Arc<dyn Clock>,
        limits: Arc<DirtyLimits>,
    ) -> Result<Self, TunableError> {
        let block = u64::from(options.block_size.bytes());
        options.memory_max = options.memory_max.max(block * BLOCKS_MIN);
        // Folios and chunks stay small next to a small memory.
        let power = |bytes: u64, max: usize| {
            let max = max as u64;
            1u64 << bytes.clamp(block, max.max(block)).ilog2()
        };
        let folio_max = power(
            options.memory_max / 32,
            BUFFER_MAX.min(BLOCKS_MAX * block as usize),
        );
        let bdi = Bdi::new(limits.domain(), &options.tunables)?;
        limits.set_dirtyable(0, options.memory_max);
        Ok(Self {
            shape: Shape {
                block_shift: options.block_size.log2(),
                folio_shift_max: folio_max.ilog2(),
                // Several readers may each take one at once.
                window_max: power(options.memory_max / 64, COPY_MAX),
            },
            chunk: power(options.memory_max / 64, COPY_MAX),
            limit: AtomicU64::new(options.memory_max),
            gate: Arc::new(Gate {
                bdi,
                number: limits.number(),
                limits,
                clock,
                cancelled: AtomicU64::new(0),
            }),
            pool: Pool::new(options.memory_max),
            counters: Counters::default(),
            dirty: DirtyList::new(),
            reclaim: ReclaimClock::new(),
            flushers: Flushers::new(),
            losses: Errors::new(),
            options,
        })
    }

    /// Sets the memory it may hold from now on.
    pub(crate) fn set_limit(&self, bytes: u64) {
        let least = u64::from(self.options.block_size.bytes()) * BLOCKS_MIN;
        let bytes = bytes.clamp(least, self.options.memory_max);
        let before = self.limit.swap(bytes, Relaxed);
        if before != bytes {
            self.gate.limits.set_dirtyable(before, bytes);
            self.pool.set_total_max(bytes);
            self.limits_changed();
        }
    }

    /// There may be more to write than there should be, or writers may go on.
    pub(crate) fn limits_changed(&self) {
        self.kick_if_needed();
        self.gate.limits.waiters.free(self.gate.number, u64::MAX);
    }

    /// Wakes a flusher if there is more to write than there should be.
    pub(crate) fn kick_if_needed(&self) {
        if self.is_over_background() && self.flushers.kick() {
            trace::queue(&self.gate, Reason::Background);
        }
    }

    /// True while more is unwritten than flushers should leave.
    pub(crate) fn is_over_background(&self) -> bool {
        self.counters.dirty.load(Relaxed) > 0 && self.gate.bdi.over_background(self.gate.now())
    }

    /// Bytes that reclaim could evict, about.
    pub(crate) fn reclaimable(&self) -> u64 {
        let resident = self.pool.resident();
        resident.saturating_sub(self.counters.unwritten())
    }

    /// Bytes of folios above which some are evicted; at least the rest is for free buffers.
    pub(crate) fn memory_limit(&self) -> u64 {
        let limit = self.limit.load(Relaxed);
        limit - limit / 16
    }

    /// How often flushers look, if at all.
    pub(crate) fn interval(&self) -> Option<Duration> {
        let tunables = self.gate.limits.domain().tunables();
        let interval = centiseconds(tunables.dirty_writeback_centisecs);
        Some(interval).filter(|interval| !interval.is_zero())
    }

    /// How long a file may be dirty before the next flusher that wakes writes it.
    pub(crate) fn expire(&self) -> Duration {
        let tunables = self.gate.limits.domain().tunables();
        centiseconds(tunables.dirty_expire_centisecs)
    }

    pub(crate) fn stats(&self) -> Stats {
        let (counters, domain) = (&self.counters, self.gate.limits.domain());
        let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE);
        Stats {
            nr_file_pages: self.pool.resident(),
            nr_free: self.pool.free_bytes(),
            nr_dirty: counters.dirty.load(Relaxed),
            nr_writeback: counters.writeback.load(Relaxed),
            nr_dirtied: counters.dirtied.load(Relaxed),
            nr_written: counters.written.load(Relaxed),
            nr_dirty_threshold: bytes(domain.thresh()),
            nr_dirty_background_threshold: bytes(domain.background()),
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

impl<E: MappingError, F> Drop for Shared<E, F> {
    fn drop(&mut self) {
        self.gate.limits.set_dirtyable(*self.limit.get_mut(), 0);
    }
}

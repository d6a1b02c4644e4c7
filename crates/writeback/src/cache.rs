//! The cache of one file system.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uext4_blockdev::Clock;

use crate::dirty_list::Queues;
use crate::file::{Cache, File};
use crate::limits::{DirtyLimits, Member};
use crate::stats::DeviceStats;
use crate::throttle::{TunableError, Tunables};
use crate::{Error, FilePages, Mapping, MappingError, Options, Place, Stats, flusher};

/// The page cache of one file system. Dropping it stops the flushers; what is dirty then stays in
/// the files, whose owners may still flush them.
#[derive(Debug)]
pub struct PageCache<E: MappingError> {
    shared: Arc<Cache<E>>,
    flushers: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl<E: MappingError> PageCache<E> {
    /// An empty cache without flushers. Times are measured by the clock's monotonic time; who
    /// sleeps does so in real time.
    ///
    /// # Errors
    ///
    /// A tunable is out of range.
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Result<Self, TunableError> {
        let limits = DirtyLimits::new(&options.tunables)?;
        Self::with_limits(options, clock, &limits)
    }

    /// The same of a device that shares limits with others: policy, ratios, bytes, and times are
    /// those of the limits, what belongs to a device is as the options say.
    ///
    /// # Errors
    ///
    /// A tunable is out of range, or the devices' `min_ratio` are above 100 together.
    pub fn with_limits(
        options: Options,
        clock: Arc<dyn Clock>,
        limits: &Arc<DirtyLimits>,
    ) -> Result<Self, TunableError> {
        let shared = Arc::new(Cache::new(options, clock, Arc::clone(limits))?);
        let member: Arc<dyn Member> = shared.clone();
        limits.join(Arc::downgrade(&member));
        Ok(Self {
            shared,
            flushers: Mutex::new(Vec::new()),
        })
    }

    /// What it may share with others, and the thread that does.
    #[must_use]
    pub fn limits(&self) -> &Arc<DirtyLimits> {
        &self.shared.gate.limits
    }

    /// The pages of a file, none yet, that lies anywhere. One a file: two of one file would not
    /// know each other.
    #[must_use]
    pub fn file(&self, mapping: Weak<dyn Mapping<Error = E>>) -> FilePages<E> {
        self.file_at(mapping, Place::default())
    }

    /// The same of a file that lies there, about.
    #[must_use]
    pub fn file_at(&self, mapping: Weak<dyn Mapping<Error = E>>, place: Place) -> FilePages<E> {
        FilePages(File::new(Arc::clone(&self.shared), mapping, place))
    }

    /// Starts `count` more flusher threads. They sleep in real time, whatever the clock.
    ///
    /// # Errors
    ///
    /// The system has no thread for us; those started before run.
    pub fn start_flushers(&self, count: usize) -> std::io::Result<()> {
        let mut flushers = self.flushers.lock();
        for _ in 0..count {
            self.shared.flushers.start();
            match flusher::spawn(&self.shared, flushers.len()) {
                Ok(handle) => flushers.push(handle),
                Err(error) => {
                    self.shared.flushers.unstart();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Ends the flusher threads and waits for them. Nothing is written on account of that.
    pub fn stop_flushers(&self) {
        let mut flushers = self.flushers.lock();
        self.shared.flushers.stop();
        // They help themselves now.
        let gate = &self.shared.gate;
        gate.limits.waiters.wake_all(gate.number);
        let me = std::thread::current().id();
        for handle in flushers.drain(..) {
            // A flusher that dropped the last user of the cache cannot wait for itself.
            if handle.thread().id() != me {
                // It only fails if the flusher panicked, which was reported there.
                let _ = handle.join();
            }
        }
    }

    /// Calls off all writers that are throttled now: they get [`Error::Cancelled`], or have written
    /// less than they wanted. Does not wait for them.
    pub fn cancel_writers(&self) {
        let gate = &self.shared.gate;
        gate.cancelled.fetch_add(1, SeqCst);
        gate.limits.waiters.wake_all(gate.number);
    }

    /// Changes a tunable by the kernel's name. It holds for all that share the limits.
    ///
    /// # Errors
    ///
    /// As [`Domain::set_tunable`](crate::throttle::Domain::set_tunable): a device's are set when
    /// the cache is made. Nothing has changed then.
    pub fn set_tunable(&self, name: &str, value: &str) -> Result<(), TunableError> {
        let domain = self.shared.gate.limits.domain();
        domain.set_tunable(name, value)?;
        self.shared.limits_changed();
        self.shared.gate.limits.wake_flushers();
        if name == "dirty_writeback_centisecs" {
            self.shared.gate.limits.intervals_changed();
        }
        Ok(())
    }

    /// What was set for the device when the cache was made.
    #[must_use]
    pub fn bdi_tunables(&self) -> Tunables {
        *self.shared.gate.bdi.tunables()
    }

    /// What throttling knows of the device, in the form of the kernel's `bdi` stats file.
    #[must_use]
    pub fn bdi_stats(&self) -> DeviceStats {
        let gate = &self.shared.gate;
        let Queues {
            b_dirty,
            b_io,
            b_more_io,
        } = self.shared.dirty.queues();
        DeviceStats {
            bdi: gate.bdi.stats(gate.now()),
            b_dirty,
            b_io,
            b_more_io,
            b_dirty_time: 0,
        }
    }

    /// Writes all that is dirty when the call begins and waits for what is being written.
    ///
    /// # Errors
    ///
    /// The first error; all the rest was tried nevertheless. After [`crate::FAILURES_MAX`] calls
    /// nothing that was dirty before the first is dirty any more.
    pub fn sync_all(&self) -> Result<(), Error<E>> {
        self.shared.sync_all()
    }

    /// What a caller that comes now has been notified of data that were given up, for
    /// [`PageCache::error_since`].
    #[must_use]
    pub fn error_token(&self) -> u64 {
        self.shared.losses.token()
    }

    /// What sync reports next to [`PageCache::sync_all`]: whether data of any file were given up
    /// since `seen` was brought up to date last, any thread that tried to write them. Now it is.
    /// Of two threads that come with one `seen`, one gets what was lost before.
    ///
    /// # Errors
    ///
    /// The last error that data were given up for.
    pub fn error_since(&self, seen: &AtomicU64) -> Result<(), Error<E>> {
        self.shared.losses.report(seen).map_or(Ok(()), Err)
    }

    /// Writes the files that have been dirty for `dirty_expire_centisecs` or longer, as a flusher
    /// does every `dirty_writeback_centisecs`. Errors stay with the files.
    pub fn flush_expired(&self) {
        self.shared.flush_expired();
    }

    /// Bytes of clean folios, about: what [`PageCache::scan`] could free.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.reclaimable()
    }

    /// Frees about `bytes` of clean folios, but those used since the last time round, and the
    /// memory reserved for new folios; returns how many bytes of folios.
    pub fn scan(&self, bytes: u64) -> u64 {
        self.shared.scan(bytes)
    }

    /// Bytes that wait to be written, over all files.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.stats().nr_dirty
    }

    /// Bytes of memory taken: folios, snapshots being written, and buffers reserved for new
    /// folios.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.shared.pool.resident() + self.shared.pool.free_bytes()
    }

    /// Sets how many bytes of memory it may hold from now on, at least 64 blocks and at most what
    /// it was made with. What may be dirty shrinks in proportion, and flushers are woken if that
    /// is less than there is. What is over goes when the next folio comes, or with
    /// [`PageCache::scan`].
    pub fn set_limit(&self, bytes: u64) {
        self.shared.set_limit(bytes);
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }
}

impl<E: MappingError> Drop for PageCache<E> {
    fn drop(&mut self) {
        self.stop_flushers();
    }
}

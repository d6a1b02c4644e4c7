//! The cache of one file system.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uext4_blockdev::Clock;

use crate::file::File;
use crate::shared::Shared;
use crate::{Error, FilePages, Mapping, MappingError, Options, Place, Stats, flusher};

/// The page cache of one file system. Dropping it stops the flushers; what is dirty then stays in
/// the files, whose owners may still flush them.
#[derive(Debug)]
pub struct PageCache<E: MappingError> {
    shared: Arc<Shared<E>>,
    flushers: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl<E: MappingError> PageCache<E> {
    /// An empty cache without flushers. Ages are told by the clock's monotonic time.
    #[must_use]
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Self {
        Self {
            shared: Arc::new(Shared::new(options, clock)),
            flushers: Mutex::new(Vec::new()),
        }
    }

    /// The pages of a file, none yet, that lies anywhere. One a file: two of one file would not know
    /// each other.
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
            self.shared.throttle.start();
            match flusher::spawn(&self.shared, flushers.len()) {
                Ok(handle) => flushers.push(handle),
                Err(error) => {
                    self.shared.throttle.unstart();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Ends the flusher threads and waits for them. Nothing is written on account of that.
    pub fn stop_flushers(&self) {
        let mut flushers = self.flushers.lock();
        self.shared.throttle.stop();
        let me = std::thread::current().id();
        for handle in flushers.drain(..) {
            // A flusher that dropped the last user of the cache cannot wait for itself.
            if handle.thread().id() != me {
                // It only fails if the flusher panicked, which was reported there.
                let _ = handle.join();
            }
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

    /// Writes the files that have been dirty for `expire` or longer, as a flusher does every
    /// `interval`. Errors stay with the files.
    pub fn flush_expired(&self) {
        self.shared.flush_expired();
    }

    /// Bytes of clean folios, about: what [`PageCache::scan`] could free.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.reclaimable()
    }

    /// Frees about `bytes` of clean folios, but those used since the last time round, and the
    /// memory kept for new folios; returns how many bytes of folios.
    pub fn scan(&self, bytes: u64) -> u64 {
        self.shared.scan(bytes)
    }

    /// Bytes that wait to be written, over all files.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.stats().nr_dirty
    }

    /// Bytes of memory taken: folios, snapshots being written, and buffers kept for new folios.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.shared.pool.resident() + self.shared.pool.free_bytes()
    }

    /// Sets how many bytes of memory it may hold from now on, at least 64 blocks and at most what it
    /// was made with. What may be dirty shrinks in proportion, and flushers are woken if that is
    /// less than there is. What is over goes when the next folio comes, or with
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

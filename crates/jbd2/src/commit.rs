//! Closing a transaction and making it durable; checkpointing what is.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use uext4_buffer_cache::Buffer;
use uext4_ondisk::Pblk;
use uext4_ondisk::checksum::crc32_be;
use uext4_ondisk::inode::Timestamp;
use uext4_ondisk::journal::{JournalCompat, commit_block};

use crate::Error;
use crate::journal::{CommitCallbacks, Journal};
use crate::ring::{LogImage, Ring};
use crate::transaction::{Closed, Tid, Transaction};

/// What the log's superblock says once blocks are checkpointed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The log goes on behind them.
    Tail,
    /// There is nothing to replay. All that is committed was checkpointed.
    Nothing,
}

impl Journal {
    /// Returns when transaction `tid` is durable (without a log: when it has been checkpointed,
    /// not flushed). All who wait share one commit: the first does it, the others find it done,
    /// and the thread that comes meanwhile is in the next.
    ///
    /// The thread must hold no handle.
    ///
    /// # Errors
    /// [`Error::Aborted`], also if this very commit failed; device errors.
    pub fn commit(&self, tid: Tid, callbacks: &dyn CommitCallbacks) -> Result<(), Error> {
        while self.committed() < tid {
            self.check()?;
            let needless = || self.committed() >= tid || self.is_aborted();
            let Some(turn) = self.turn.take_or_wait(needless) else {
                continue;
            };
            let mut log = self.log.lock();
            self.check()?;
            if self.committed() < tid {
                if let Err(error) = self.commit_running(log.as_mut(), callbacks) {
                    self.failed(&error);
                    // An earlier transaction may have become durable before this one failed.
                    if self.committed() < tid {
                        return Err(error);
                    }
                }
                drop(log);
                drop(turn);
                callbacks.commit_ended();
            }
        }
        Ok(())
    }

    /// Commits the running transaction, whatever is in it.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn commit_now(&self, callbacks: &dyn CommitCallbacks) -> Result<(), Error> {
        self.commit(self.running(), callbacks)
    }

    /// What a write of a commit or checkpoint that failed leads to. Where the host has no room for
    /// the image, nothing of the log is lost: what was to be written is in memory, and the next
    /// commit writes the same blocks again.
    fn failed(&self, error: &Error) {
        if !is_host_full(error) {
            self.abort(error);
        }
    }

    fn commit_running(
        &self,
        mut log: Option<&mut Ring>,
        callbacks: &dyn CommitCallbacks,
    ) -> Result<(), Error> {
        // A transaction that found no room on the host comes first: a later one may change the
        // same blocks, and recovery applies transactions in the order of the log.
        let earlier = self.unwritten.lock().take();
        if let Some(closed) = earlier {
            self.write_closed(log.as_deref_mut(), closed, callbacks)?;
        }
        let closed = self.close(callbacks)?;
        self.write_closed(log, closed, callbacks)
    }

    fn write_closed(
        &self,
        mut log: Option<&mut Ring>,
        closed: Closed,
        callbacks: &dyn CommitCallbacks,
    ) -> Result<(), Error> {
        let tid = closed.tid;
        let written = match log.as_deref_mut() {
            Some(ring) => self.write_log(ring, &closed),
            None => Ok(()),
        };
        if let Err(error) = written {
            if is_host_full(&error) {
                *self.unwritten.lock() = Some(closed);
                return Err(error);
            }
            // The blocks stay pinned for good: an evicted block would be read again from the
            // device, where its contents are older than what callers have seen.
            let pins = closed.blocks.into_iter().map(|(buffer, _)| buffer);
            self.lost.lock().extend(pins);
            return Err(error);
        }
        self.counters
            .commits
            .fetch_add(u64::from(!closed.blocks.is_empty()), Relaxed);
        self.checkpoint.add(tid, closed.blocks);
        // A block that an earlier transaction changed and this one freed must not be written to
        // its home location any more: the data of another file may lie there soon.
        self.checkpoint.forget(&closed.revoked);
        for &block in &closed.revoked {
            self.cache.forget(block);
        }
        if log.is_none() {
            let written = self.write_home(None, tid, Left::Nothing);
            self.is_behind
                .store(written.as_ref().is_err_and(is_host_full), Relaxed);
            written?;
        }
        // Freed blocks are handed over for reuse only now: had they been used before the commit
        // was durable, a power cut would leave the old file with another file's bytes.
        // `committed` is stored after that: a thread that waited for space looks for them as
        // soon as it sees the number.
        callbacks.after_commit(tid);
        self.committed.store(tid, Ordering::Release);
        Ok(())
    }

    /// Keeps handles out, lets the file system finish, takes the content of every block, and opens
    /// the next transaction.
    fn close(&self, callbacks: &dyn CommitCallbacks) -> Result<Closed, Error> {
        // New handles wait until the next transaction is in place: a change that started now
        // would be in neither.
        let mut closing = self.running.close();
        // One of the handles that were waited for may have left its change half-done.
        self.check()?;
        // Descriptors, the superblock and inodes that changed only in memory enter the
        // transaction while no handle can change them, and before the contents of its blocks are
        // taken.
        let finished = callbacks.before_commit(&self.pre_commit(closing.transaction()));
        finished.map_err(|reason| Error::Aborted {
            reason: reason.to_string(),
        })?;
        let tid = closing.transaction().tid;
        let closed = closing.replace(Transaction::new(tid + 1, self.limits));
        let revoked = mem::take(&mut *closed.revoked.lock());
        let mut blocks: Vec<(Buffer, Arc<[u8]>)> = closed
            .take_buffers()
            .into_iter()
            .filter(|buffer| !revoked.contains(&buffer.block()))
            .map(|buffer| {
                let block = buffer.block();
                let data = buffer.checksummed(|rule, bytes| callbacks.rule(rule, block, bytes));
                (buffer, data)
            })
            .collect();
        // From here on the next transaction runs: the contents that the log gets are fixed.
        drop(closing);
        blocks.sort_unstable_by_key(|(buffer, _)| buffer.block());
        Ok(Closed {
            tid,
            blocks,
            revoked,
        })
    }

    /// Writes a transaction to the log: all but its commit block, flush, commit block, flush. The
    /// first flush also makes the data of files durable that was written before.
    fn write_log(&self, ring: &mut Ring, closed: &Closed) -> Result<(), Error> {
        if closed.blocks.is_empty() && closed.revoked.is_empty() {
            return Ok(());
        }
        let block_len = self.cache.block_size().len();
        let sequence = ring.sequence();
        let revoked: Vec<Pblk> = closed.revoked.iter().copied().collect();
        let data = closed
            .blocks
            .iter()
            .map(|(buffer, data)| (buffer.block(), &data[..]));
        let sb = ring.sb;
        let image = LogImage::new(&sb, sequence, block_len, data, &revoked);
        // OK to truncate: a transaction is at most a quarter of the log, and its tags less than
        // that.
        let len = image.blocks.len() as u32;
        // The log has no room: what is committed is checkpointed, up to the transaction before
        // this one, whose own blocks are not in the log yet.
        if ring.free() < len + 1 {
            self.write_home(Some(&mut *ring), closed.tid - 1, Left::Tail)?;
        }
        if ring.free() < len + 1 {
            return Err(Error::LogFull {
                needed: len + 1,
                free: ring.free(),
            });
        }
        let mut blocks: Vec<&[u8]> = image.blocks.iter().map(|block| block.bytes()).collect();
        // Zeroes where the commit block will be: if only its first sector reaches the medium, its
        // checksum is right all the same. The kernel and e2fsck refuse a log that ends in a wrong
        // one.
        let zeroes = vec![0; block_len];
        blocks.push(&zeroes);
        // What the log was opened with may lie there: that it need not be replayed is durable
        // before it is written over. Mostly a flush has made it so already.
        self.barrier.wait(ring.tail_written())?;
        ring.write(&*self.device, 0, &blocks)?;
        blocks.pop();
        self.barrier.flush()?;
        // Everything but the commit block is durable now. Written together, the device could
        // make the commit block durable first, and recovery could replay blocks that were never
        // written.
        let sum = if sb.compat().contains(JournalCompat::CHECKSUM) {
            let summed = &blocks[..image.summed];
            summed.iter().fold(!0, |sum, block| crc32_be(sum, block))
        } else {
            0
        };
        let (sec, nsec) = self.clock.now();
        let commit = commit_block(&sb, sequence, block_len, Timestamp { sec, nsec }, sum);
        // An empty log begins when it has something: what must be durable before it begins, such as
        // the mark that the file system is in use, needs no flush but the one above. Without one of
        // these two writes recovery finds no transaction, and none counts on it before the flush.
        if ring.is_idle() {
            let head = ring.head();
            ring.write_superblock(&*self.device, head, sequence)?;
        }
        ring.write(&*self.device, len, &[&commit])?;
        self.barrier.flush()?;
        // Only now may others count on the transaction: the flush above has made its commit
        // block durable.
        ring.committed(closed.tid, len + 1);
        self.counters
            .log_blocks
            .fetch_add(u64::from(len) + 1, Relaxed);
        Ok(())
    }

    /// Checkpoints what is committed, up to and with `tid`, and frees its part of the log.
    fn write_home(&self, log: Option<&mut Ring>, tid: Tid, left: Left) -> Result<(), Error> {
        let size = self.cache.block_size();
        let written = |blocks| {
            self.counters.checkpoints.fetch_add(1, Relaxed);
            self.counters.home_blocks.fetch_add(blocks as u64, Relaxed);
            let Some(ring) = log else {
                return Ok(());
            };
            if blocks > 0 {
                // The home blocks are durable before the tail moves past their copies in the log.
                self.barrier.flush()?;
            }
            self.move_tail(ring, tid, left)
        };
        self.checkpoint
            .write_home(&*self.device, size, |_| true, written)
    }

    /// What was committed up to and with `tid` is durable at home: frees its part of the log.
    fn move_tail(&self, ring: &mut Ring, tid: Tid, left: Left) -> Result<(), Error> {
        match left {
            Left::Tail if ring.holds(tid) => ring.write_tail(&*self.device, tid)?,
            // Start 0 says that nothing is to be replayed.
            Left::Nothing if !ring.is_idle() => {
                let sequence = ring.sequence();
                ring.write_superblock(&*self.device, 0, sequence)?;
            }
            // The superblock says it already.
            _ => return self.barrier.wait(ring.tail_written()),
        }
        // Not before the tail is durable may what lies before it be written over.
        ring.note_tail(self.barrier.seq());
        self.barrier.wait(ring.tail_written())?;
        ring.reclaim(tid);
        Ok(())
    }

    /// Checkpoints everything that is committed.
    ///
    /// # Errors
    /// [`Error::Aborted`], device errors; the journal is aborted then.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let mut log = self.log.lock();
        self.check()?;
        let tid = self.committed();
        self.write_home(log.as_mut(), tid, Left::Tail)
            .inspect_err(|error| self.failed(error))
    }

    /// Checkpoints everything that is committed but the block `last`, which may go home only after
    /// the others are durable there. The log keeps all of it.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`].
    pub fn checkpoint_but(&self, last: Pblk) -> Result<(), Error> {
        let _log = self.log.lock();
        self.check()?;
        let size = self.cache.block_size();
        let others = |block| block != last;
        let written = |blocks: usize| {
            self.counters.home_blocks.fetch_add(blocks as u64, Relaxed);
            self.barrier.flush()
        };
        self.checkpoint
            .write_home(&*self.device, size, others, written)
            .inspect_err(|error| self.failed(error))
    }

    /// Commits and checkpoints everything, and leaves a log that says there is nothing to replay.
    /// All that is durable then. Nothing is flushed where nothing was written since it was so, but
    /// for a journal without a log. Handles may be started again afterwards.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn flush(&self, callbacks: &dyn CommitCallbacks) -> Result<(), Error> {
        self.commit_now(callbacks)?;
        let mut log = self.log.lock();
        self.check()?;
        let tid = self.committed();
        let result = self.write_home(log.as_mut(), tid, Left::Nothing);
        let result = result.and_then(|()| match log.is_some() {
            true => Ok(()),
            false => self.barrier.flush(),
        });
        result.inspect_err(|error| self.failed(error))
    }
}

/// See [`uext4_blockdev::Error::is_host_full`].
fn is_host_full(error: &Error) -> bool {
    matches!(error, Error::Device(error) if error.is_host_full())
}

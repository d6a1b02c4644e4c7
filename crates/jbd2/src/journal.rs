//! The journal of a mounted file system: starting handles, committing, checkpointing.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use uext4_blockdev::{BlockDevice, Clock};
use uext4_buffer_cache::{Buffer, BufferCache, ChecksumRule, VerifyTag};
use uext4_ondisk::Pblk;
use uext4_ondisk::journal::JournalIncompat;
use zerocopy::IntoBytes;

use crate::barrier::{Barrier, FlushSeq};
use crate::checkpoint::Checkpoint;
use crate::handle::Handle;
use crate::log::Log;
use crate::ring::Ring;
use crate::running::Running;
use crate::transaction::{Closed, Limits, Tid, Transaction};
use crate::turn::Turn;
use crate::{Error, LogRun, Recovery, recover};

/// Most buffers of one transaction, whatever the log's size: bounds the memory a commit pins.
const BUFFERS_MAX: u32 = 32_768;
/// Bytes of a block of revokes that name none: its head and its checksum.
const REVOKE_OVERHEAD: u32 = 16 + 4;
/// Most bytes of one that is named.
const REVOKE_LEN: u32 = 8;
/// Blocks that wait to be checkpointed when there is no log to bound them.
const WAITING_MAX: usize = 8192;

/// What the file system does when its changes are committed. The journal calls it with new
/// handles waiting, so it must not start one.
pub trait CommitCallbacks: Sync {
    /// The last changes of a transaction: what is encoded once for all operations, such as counts.
    ///
    /// # Errors
    /// Anything: the journal is aborted then.
    fn before_commit(&self, pre_commit: &PreCommit<'_>) -> Result<(), Box<dyn std::error::Error>>;

    /// Puts the checksum into a block, as `rule` says.
    fn rule(&self, rule: ChecksumRule, block: Pblk, bytes: &mut [u8]);

    /// Transaction `tid` is durable, and every one before it. Blocks it freed may be used again.
    fn after_commit(&self, tid: Tid);

    /// The same thread has let go of every lock of the journal since: what takes long and need
    /// not be done before others commit. A caller that waited for the commit does not wait for
    /// this.
    fn commit_ended(&self) {}
}

/// A transaction that takes no more handles, while [`CommitCallbacks::before_commit`] runs.
#[derive(Debug)]
pub struct PreCommit<'a> {
    transaction: &'a Transaction,
}

impl PreCommit<'_> {
    /// The transaction's number.
    pub fn tid(&self) -> Tid {
        self.transaction.tid
    }

    /// As [`Handle::modify`].
    pub fn modify<R>(
        &self,
        buffer: &Buffer,
        tag: VerifyTag,
        rule: ChecksumRule,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let (first, result) = buffer.modify_pinned(self.transaction.tid, tag, rule, f);
        if first {
            self.transaction.add([buffer.clone()]);
        }
        result
    }
}

/// Counters since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions committed, empty ones left out.
    pub commits: u64,
    /// Blocks written to the log, all kinds.
    pub log_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks checkpointed.
    pub home_blocks: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) log_blocks: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) home_blocks: AtomicU64,
}

/// A function that hears of the abort.
type AbortHook = Box<dyn Fn(&str) + Send + Sync>;

/// Where the function is, once it was set.
#[derive(Default)]
struct OnAbort(OnceLock<AbortHook>);

impl fmt::Debug for OnAbort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnAbort")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// A journal, or the same order of events without a log. See the head of the crate.
#[derive(Debug)]
pub struct Journal {
    pub(crate) cache: Arc<BufferCache>,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Handles share it; commit takes it alone for the moment between two transactions.
    pub(crate) running: Running,
    /// Held by the thread that commits; the others wait for it.
    pub(crate) turn: Turn,
    /// One commit or checkpoint at a time; `None` without a log.
    pub(crate) log: Mutex<Option<Ring>>,
    /// The last transaction that is durable.
    pub(crate) committed: AtomicU64,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) barrier: Barrier,
    pub(crate) limits: Limits,
    has_log: bool,
    aborted: AtomicBool,
    /// Why.
    reason: Mutex<String>,
    on_abort: OnAbort,
    /// Buffers of a transaction that could not be committed: their content is newer than any on the
    /// device, and readers must go on seeing it.
    pub(crate) lost: Mutex<Vec<Buffer>>,
    /// A closed transaction that the host had no room for. Taken and put back under `log`.
    pub(crate) unwritten: Mutex<Option<Closed>>,
    /// Without a log: the last commit found no room to checkpoint its blocks.
    pub(crate) is_behind: AtomicBool,
    pub(crate) counters: Counters,
}

impl Journal {
    /// Opens the log on `runs` for writing and replays it: afterwards nothing is left to replay.
    /// What was replayed is durable; that it need not be again is written, and durable before the
    /// log is written over. `cache` must not hold blocks of before the replay.
    ///
    /// Whatever waits in the fast-commit area is lost by that: [`recover`] reports beforehand
    /// whether anything does, and [`Journal::open_behind`] keeps it. The second result is what
    /// was found.
    ///
    /// # Errors
    /// Those of [`recover`]; [`Error::FailedCommit`] for a log that ends in a transaction whose
    /// commit block is damaged; device errors.
    pub fn open(
        cache: Arc<BufferCache>,
        clock: Arc<dyn Clock>,
        blocks_count: u64,
        runs: &[LogRun],
    ) -> Result<(Self, Recovery), Error> {
        let (journal, recovery) = Self::open_behind(cache, clock, blocks_count, runs)?;
        if let Some(ring) = journal.log.lock().as_mut()
            && !ring.is_idle()
        {
            // The blocks are home and flushed. This needs no flush of its own: until it is durable,
            // a power cut leaves a log that is whole and replayed once more.
            ring.restart(&*journal.device)?;
            ring.note_tail(journal.barrier.seq());
        }
        Ok((journal, recovery))
    }

    /// The same, but what the log holds stays there, home though it is, until the first commit's
    /// blocks are checkpointed or need the room. So fast commits that wait stay valid up to that
    /// commit, and are no longer with it: they carry the sequence that it takes. A caller that
    /// puts all that they say into one transaction and commits it replays them, and may be cut
    /// short at any time.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_behind(
        cache: Arc<BufferCache>,
        clock: Arc<dyn Clock>,
        blocks_count: u64,
        runs: &[LogRun],
    ) -> Result<(Self, Recovery), Error> {
        let device = Arc::clone(cache.device());
        let block_size = cache.block_size();
        let recovery = recover(&*device, block_size, blocks_count, runs)?;
        if let Some(sequence) = recovery.failed_commit {
            return Err(Error::FailedCommit { sequence });
        }
        let barrier = Barrier::new(Arc::clone(&device));
        // A process that ended without a flush may have written what the log's superblock says.
        let opened = barrier.seq();
        if !recovery.replay.is_empty() {
            // A process that was killed may have left a commit block that is not durable yet: a
            // block must not be home before that.
            barrier.flush()?;
            recovery.replay.write_home(&*device, block_size)?;
            // They are home before the log may say that there is nothing to replay.
            barrier.flush()?;
        }
        let log = Log::open(&*device, block_size, blocks_count, runs)?;
        let ring = Ring::behind(&log, &recovery, opened);
        let credits_max = (ring.len() / 4).clamp(1, BUFFERS_MAX);
        let journal = Self::new(cache, clock, barrier, credits_max, Some(ring));
        Ok((journal, recovery))
    }

    /// The same without a log: a commit checkpoints in place.
    pub fn without_log(cache: Arc<BufferCache>, clock: Arc<dyn Clock>) -> Self {
        let barrier = Barrier::new(Arc::clone(cache.device()));
        Self::new(cache, clock, barrier, BUFFERS_MAX, None)
    }

    fn new(
        cache: Arc<BufferCache>,
        clock: Arc<dyn Clock>,
        barrier: Barrier,
        credits_max: u32,
        ring: Option<Ring>,
    ) -> Self {
        // Whatever the log's features are or become.
        let named = (cache.block_size().bytes() - REVOKE_OVERHEAD) / REVOKE_LEN;
        let limits = Limits {
            credits: credits_max,
            revokes: named.max(1),
        };
        Self {
            device: Arc::clone(cache.device()),
            cache,
            clock,
            running: Running::new(Transaction::new(1, limits)),
            has_log: ring.is_some(),
            turn: Turn::default(),
            log: Mutex::new(ring),
            committed: AtomicU64::new(0),
            checkpoint: Checkpoint::default(),
            barrier,
            limits,
            aborted: AtomicBool::new(false),
            reason: Mutex::default(),
            on_abort: OnAbort::default(),
            lost: Mutex::default(),
            unwritten: Mutex::default(),
            is_behind: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Blocks that one transaction can change if it has the empty log for itself: more than handles
    /// are given credits for. `None` without a log.
    pub fn blocks_max(&self) -> Option<u32> {
        let log = self.log.lock();
        let ring = log.as_ref()?;
        // Each block has a tag of at most 16 bytes in a block of tags, which begins with a header
        // and a UUID and ends with a checksum.
        let tags = (self.cache.block_size().bytes() - 32) / 16;
        let with_commit = ring.len().saturating_sub(2);
        let tag_blocks = with_commit.div_ceil(tags.max(1));
        Some(with_commit.saturating_sub(tag_blocks))
    }

    /// The cache whose blocks it writes.
    pub fn cache(&self) -> &Arc<BufferCache> {
        &self.cache
    }

    /// Lets the log use what the file system needs or what makes it safer: 64-bit block numbers
    /// (`BIT64`), and checksums (`CSUM_V3`: CRC-32C, of every block by itself). To be called while
    /// the log is empty, and before a handle is started. Other flags of `wanted` are ignored.
    /// Written if anything changes, durable with the first commit.
    ///
    /// # Errors
    /// [`Error::Version`] for a journal too old to say so, of a file system that needs it; device
    /// errors.
    pub fn set_features(&self, wanted: JournalIncompat) -> Result<(), Error> {
        let mut log = self.log.lock();
        let Some(ring) = log.as_mut() else {
            return Ok(());
        };
        let before = ring.sb;
        if !ring.sb.set_features(wanted) {
            return match wanted.contains(JournalIncompat::BIT64) {
                true => Err(Error::Version),
                false => Ok(()),
            };
        }
        if ring.sb.as_bytes() == before.as_bytes() {
            return Ok(());
        }
        // No flush: an empty log has no features to be read by, and the write that begins it writes
        // them again.
        let sequence = ring.sequence();
        ring.write_superblock(&*self.device, 0, sequence)
    }

    /// Starts a handle that may change up to `credits` different blocks. Waits while a transaction
    /// is being closed, and commits first if there is no room for so many.
    ///
    /// The thread must not hold another handle, nor a lock that the owner of one may want.
    ///
    /// # Errors
    /// [`Error::Aborted`], [`Error::Credits`] for more than any transaction has.
    pub fn start(
        &self,
        credits: u32,
        callbacks: &dyn CommitCallbacks,
    ) -> Result<Handle<'_>, Error> {
        if credits > self.limits.credits {
            return Err(Error::Credits {
                wanted: credits,
                most: self.limits.credits,
            });
        }
        loop {
            self.check()?;
            let transaction = self.running.share();
            if transaction.reserve(credits) {
                transaction.begin(|| self.clock.monotonic());
                return Ok(Handle::new(transaction, credits));
            }
            let full = transaction.tid;
            drop(transaction);
            self.commit(full, callbacks)?;
        }
    }

    /// Most credits a handle may have.
    pub fn credits_max(&self) -> u32 {
        self.limits.credits
    }

    /// Whether there is a log. Without one [`Journal::commit`] protects nothing from a power cut.
    pub fn has_log(&self) -> bool {
        self.has_log
    }

    /// The running transaction's number.
    pub fn running(&self) -> Tid {
        self.running.share().tid
    }

    /// The last transaction that is durable.
    pub fn committed(&self) -> Tid {
        self.committed.load(Ordering::Acquire)
    }

    /// When the running transaction got its first handle, if it did.
    pub fn began(&self) -> Option<Duration> {
        self.running.share().began()
    }

    /// Flushes of the device that all waiters share.
    pub fn barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// Makes durable what was written before now.
    ///
    /// As [`Barrier::wait`]; the journal is aborted then, for no code knows what the device has
    /// lost.
    pub fn flush_device(&self) -> Result<(), Error> {
        self.barrier.flush().inspect_err(|error| self.abort(error))
    }

    /// Returns when what was written before `seq`, and what was committed since, is durable.
    ///
    /// # Errors
    /// As [`Journal::flush_device`].
    pub fn wait_durable(&self, seq: FlushSeq) -> Result<(), Error> {
        // A commit ends with a flush, but without a log with what it wrote home.
        let since = if self.has_log {
            seq
        } else {
            self.barrier.seq()
        };
        self.barrier
            .wait(since)
            .inspect_err(|error| self.abort(error))
    }

    /// Counters since the journal was opened.
    pub fn stats(&self) -> Stats {
        Stats {
            commits: self.counters.commits.load(Relaxed),
            log_blocks: self.counters.log_blocks.load(Relaxed),
            checkpoints: self.counters.checkpoints.load(Relaxed),
            home_blocks: self.counters.home_blocks.load(Relaxed),
        }
    }

    /// Whether a commit waits for room on the host, so that it should be tried again.
    pub fn has_unwritten(&self) -> bool {
        // Without a log nothing is set aside: what was closed waits among the blocks to be
        // checkpointed.
        self.unwritten.lock().is_some() || self.is_behind.load(Relaxed)
    }

    /// Whether an error has ended all writing.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    /// Whether anything may still be written.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn check(&self) -> Result<(), Error> {
        if !self.is_aborted() {
            return Ok(());
        }
        let reason = self.reason.lock().clone();
        Err(Error::Aborted { reason })
    }

    /// Ends all writing after an error. Every later start and commit fails. The first time, the
    /// function of [`Journal::on_abort`] is called, perhaps with locks of the caller held.
    pub fn abort(&self, reason: &dyn fmt::Display) {
        if self.end(reason)
            && let Some(hook) = self.on_abort.0.get()
        {
            hook(&reason.to_string());
        }
    }

    /// The same without an error, when the file system is closed. True the first time.
    pub fn end(&self, reason: &dyn fmt::Display) -> bool {
        let mut first = self.reason.lock();
        let is_first = !self.aborted.swap(true, Relaxed);
        if is_first {
            *first = reason.to_string();
        }
        is_first
    }

    /// Notes in the log's superblock which error (a positive number of errno) has ended writing, so
    /// that the file system is checked, whatever the log leaves of its superblock; 0: the error is
    /// noted elsewhere now. Flushed. Nothing without a log, and where it says so already. No handle
    /// may be held.
    ///
    /// # Errors
    /// Device errors.
    pub fn note_errno(&self, errno: u32) -> Result<(), Error> {
        self.note_errno_after(errno, || ()).1
    }

    /// The same after something that no commit and no checkpoint may run at the same time; the
    /// results of both.
    pub fn note_errno_after<R>(
        &self,
        errno: u32,
        first: impl FnOnce() -> R,
    ) -> (R, Result<(), Error>) {
        let mut log = self.log.lock();
        let result = first();
        (result, self.write_errno(log.as_mut(), errno))
    }

    fn write_errno(&self, log: Option<&mut Ring>, errno: u32) -> Result<(), Error> {
        if let Some(ring) = log
            && ring.errno() != errno
        {
            ring.write_errno(&*self.device, errno)?;
            self.device.flush()?;
        }
        Ok(())
    }

    /// Has `hook` called with the reason when an error ends all writing. It must not use the
    /// journal, nor wait. Only the first hook counts.
    pub fn on_abort(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.on_abort.0.set(Box::new(hook));
    }

    /// Everything committed so far, seen from inside a closed transaction.
    pub(crate) fn pre_commit<'a>(&self, transaction: &'a Transaction) -> PreCommit<'a> {
        PreCommit { transaction }
    }

    /// Blocks that are held in the cache until they are checkpointed: those of the running
    /// transaction whose handles have ended, and those that are committed. Waits while a
    /// transaction is being closed.
    pub fn pinned(&self) -> usize {
        let running = self.running.share().len();
        running + self.checkpoint.len()
    }

    /// Whether so much waits to be checkpointed that it should happen now.
    pub fn wants_checkpoint(&self) -> bool {
        match self.log.try_lock().as_deref() {
            Some(Some(ring)) => ring.free() < ring.len() / 2,
            _ => self.checkpoint.len() > WAITING_MAX,
        }
    }
}

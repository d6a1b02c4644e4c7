//! The running transaction, and the handles that operations change metadata through.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, RwLockReadGuard};
use rustc_hash::FxHashSet;
use uext4_buffer_cache::{Buffer, Seal, VerifyTag};
use uext4_ondisk::Pblk;

/// Number of a transaction: grows by one, never 0, never wraps. The sequence in the log is its low
/// half, offset by where the log began.
pub type Tid = u64;

/// Says that no handle was started yet.
const NEVER: u64 = u64::MAX;

/// What the operations since the last commit changed.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) tid: Tid,
    pub(crate) buffers: Mutex<Vec<Buffer>>,
    pub(crate) revoked: Mutex<FxHashSet<Pblk>>,
    /// Buffers in it, blocks of the log for what it revokes, and those of both that handles may still add.
    pub(crate) reserved: AtomicU32,
    /// Nanoseconds of the clock when its first handle started.
    began: AtomicU64,
}

impl Transaction {
    pub(crate) fn new(tid: Tid) -> Self {
        Self {
            tid,
            buffers: Mutex::default(),
            revoked: Mutex::default(),
            reserved: AtomicU32::new(0),
            began: AtomicU64::new(NEVER),
        }
    }

    /// Notes that a handle starts at `now`, if it is the first.
    pub(crate) fn begin(&self, now: impl FnOnce() -> Duration) {
        if self.began.load(Relaxed) == NEVER {
            let nanos = u64::try_from(now().as_nanos()).unwrap_or(NEVER - 1);
            self.began.fetch_min(nanos, Relaxed);
        }
    }

    /// When its first handle started, if one did.
    pub(crate) fn began(&self) -> Option<Duration> {
        match self.began.load(Relaxed) {
            NEVER => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

/// The right to change metadata: all changes made through one handle reach the disk together or not
/// at all. While a handle lives its transaction cannot commit, so it must be short, and nothing may
/// be waited for that needs a commit or another handle's owner.
#[derive(Debug)]
pub struct Handle<'a> {
    transaction: RwLockReadGuard<'a, Transaction>,
    claimed: RefCell<Vec<Buffer>>,
    /// Credits not used yet.
    credits: Cell<u32>,
    limits: Limits,
}

/// What holds for every transaction of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most credits: buffers, and blocks of the log for what is revoked.
    pub(crate) credits: u32,
    /// Revoked blocks that one block of the log names, at least 1.
    pub(crate) revokes: u32,
}

impl<'a> Handle<'a> {
    /// On a transaction that `credits` have been reserved of.
    pub(crate) fn new(
        transaction: RwLockReadGuard<'a, Transaction>,
        credits: u32,
        limits: Limits,
    ) -> Self {
        Self {
            transaction,
            claimed: RefCell::default(),
            credits: Cell::new(credits),
            limits,
        }
    }

    /// The transaction's number: commit it to make the handle's changes durable.
    pub fn tid(&self) -> Tid {
        self.transaction.tid
    }

    /// Buffers that may still be added.
    pub fn credits(&self) -> u32 {
        self.credits.get()
    }

    /// Credits that revoking `blocks` blocks may take.
    pub fn credits_revoke(&self, blocks: u32) -> u32 {
        blocks.div_ceil(self.limits.revokes)
    }

    /// Blocks that may be revoked with `credits` credits.
    pub fn revokes(&self, credits: u32) -> u32 {
        credits.saturating_mul(self.limits.revokes)
    }

    /// Asks for `more` buffers; false if the transaction has no room for them. Then the operation
    /// must come to a consistent state, end this handle and start another.
    pub fn extend(&self, more: u32) -> bool {
        let reserved = &self.transaction.reserved;
        if reserved.fetch_add(more, Relaxed).saturating_add(more) > self.limits.credits {
            reserved.fetch_sub(more, Relaxed);
            return false;
        }
        self.credits.set(self.credits.get() + more);
        true
    }

    /// Changes a block. `tag` and `seal` as in [`Buffer::modify_pinned`]; `f` runs under the
    /// buffer's lock and must not touch it otherwise.
    pub fn modify<R>(
        &self,
        buffer: &Buffer,
        tag: VerifyTag,
        seal: Seal,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let (first, result) = buffer.modify_pinned(self.transaction.tid, tag, seal, f);
        if first {
            self.claimed.borrow_mut().push(buffer.clone());
            self.charge();
        }
        result
    }

    /// Takes one credit. Whoever is the transaction's first to ask for a block that is changed once for
    /// many handles, by [`crate::Sealing::modify`], does so for that block.
    pub fn charge(&self) {
        match self.credits.get().checked_sub(1) {
            Some(left) => self.credits.set(left),
            // More than was asked for: counted all the same, so that the limit holds.
            None => _ = self.transaction.reserved.fetch_add(1, Relaxed),
        }
    }

    /// Declares blocks of metadata freed: nothing of them is replayed or written home any more once
    /// this transaction has committed. The blocks must not be used again before that. Takes a credit
    /// for each block of the log that it begins: [`Handle::credits_revoke`].
    pub fn revoke(&self, blocks: Range<u64>) {
        let mut revoked = self.transaction.revoked.lock();
        for block in blocks {
            let before = revoked.len();
            if revoked.insert(Pblk(block)) && before.is_multiple_of(self.limits.revokes as usize) {
                self.charge();
            }
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        let claimed = mem::take(self.claimed.get_mut());
        if !claimed.is_empty() {
            self.transaction.buffers.lock().extend(claimed);
        }
        self.transaction
            .reserved
            .fetch_sub(self.credits.get(), Relaxed);
    }
}

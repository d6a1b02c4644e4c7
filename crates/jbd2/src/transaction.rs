//! The running transaction, and the handles that operations change metadata through.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use uext4_buffer_cache::{Buffer, Seal, VerifyTag};
use uext4_ondisk::Pblk;
use uext4_percpu::PerThread;

use crate::running::Shared;

/// Number of a transaction: grows by one, never 0, never wraps. The sequence in the log is its low
/// half, offset by where the log began.
pub type Tid = u64;

/// Says that no handle was started yet.
const NEVER: u64 = u64::MAX;

/// What the operations since the last commit changed.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) tid: Tid,
    limits: Limits,
    parts: PerThread<Part>,
    pub(crate) revoked: Mutex<FxHashSet<Pblk>>,
    /// Buffers in it, blocks of the log for what it revokes, those of both that handles may still
    /// add, and what the slots have in stock: at most `limits.credits`, but for what handles add
    /// beyond their credits.
    reserved: CachePadded<AtomicU32>,
    /// Nanoseconds of the clock when its first handle started.
    began: AtomicU64,
}

/// What the threads of one slot have of a transaction.
#[derive(Debug, Default)]
struct Part {
    /// Credits for its next handles: reserved of the transaction.
    stock: AtomicU32,
    /// Buffers that its handles were the first to change.
    buffers: Mutex<Vec<Buffer>>,
}

/// A slot stocks credits for so many handles like the one that finds none, unless that were much
/// of the transaction.
const STOCK_HANDLES: u32 = 16;
/// A slot stocks at most this part of a transaction's credits at once.
const STOCK_PART: u32 = 128;

impl Transaction {
    pub(crate) fn new(tid: Tid, limits: Limits) -> Self {
        Self {
            tid,
            limits,
            parts: PerThread::default(),
            revoked: Mutex::default(),
            reserved: CachePadded::new(AtomicU32::new(0)),
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

    /// Reserves credits; false if there are no longer so many. Takes them of the slot's stock if it
    /// can, so that threads do not meet in the transaction's count.
    pub(crate) fn reserve(&self, credits: u32) -> bool {
        let stock = &self.parts.get().stock;
        let rest = |stock: u32| stock.checked_sub(credits);
        if stock.fetch_update(Relaxed, Relaxed, rest).is_ok() {
            return true;
        }
        let more = credits
            .saturating_mul(STOCK_HANDLES)
            .min(self.limits.credits / STOCK_PART);
        if self.reserve_more(credits.saturating_add(more)) {
            stock.fetch_add(more, Relaxed);
            return true;
        }
        if self.reserve_more(credits) {
            return true;
        }
        // What other slots have in stock is not used: only when that is gone, too, is it full.
        for part in &self.parts {
            self.reserved
                .fetch_sub(part.stock.swap(0, Relaxed), Relaxed);
        }
        self.reserve_more(credits)
    }

    fn reserve_more(&self, credits: u32) -> bool {
        let sum = |reserved: u32| {
            let sum = reserved.checked_add(credits)?;
            (sum <= self.limits.credits).then_some(sum)
        };
        self.reserved.fetch_update(Relaxed, Relaxed, sum).is_ok()
    }

    /// Gives credits that were not used back to the slot's stock.
    fn give_back(&self, credits: u32) {
        if credits > 0 {
            self.parts.get().stock.fetch_add(credits, Relaxed);
        }
    }

    /// Adds buffers that were not in it.
    pub(crate) fn add(&self, buffers: impl IntoIterator<Item = Buffer>) {
        self.parts.get().buffers.lock().extend(buffers);
    }

    /// Its buffers, in no order, and from now on none.
    pub(crate) fn take_buffers(&self) -> Vec<Buffer> {
        let mut all = Vec::new();
        for part in &self.parts {
            all.append(&mut part.buffers.lock());
        }
        all
    }

    /// Buffers of handles that have ended.
    pub(crate) fn len(&self) -> usize {
        self.parts
            .iter()
            .map(|part| part.buffers.lock().len())
            .sum()
    }
}

/// The right to change metadata: all changes made through one handle reach the disk together or not
/// at all. While a handle lives its transaction cannot commit, so it must be short, and nothing may
/// be waited for that needs a commit or another handle's owner.
#[derive(Debug)]
pub struct Handle<'a> {
    transaction: Shared<'a>,
    claimed: RefCell<Vec<Buffer>>,
    /// Credits not used yet.
    credits: Cell<u32>,
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
    pub(crate) fn new(transaction: Shared<'a>, credits: u32) -> Self {
        Self {
            transaction,
            claimed: RefCell::default(),
            credits: Cell::new(credits),
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
        blocks.div_ceil(self.transaction.limits.revokes)
    }

    /// Blocks that may be revoked with `credits` credits.
    pub fn revokes(&self, credits: u32) -> u32 {
        credits.saturating_mul(self.transaction.limits.revokes)
    }

    /// Asks for `more` buffers; false if the transaction has no room for them. Then the operation
    /// must come to a consistent state, end this handle and start another.
    pub fn extend(&self, more: u32) -> bool {
        if !self.transaction.reserve(more) {
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
            if revoked.insert(Pblk(block))
                && before.is_multiple_of(self.transaction.limits.revokes as usize)
            {
                self.charge();
            }
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        let claimed = mem::take(self.claimed.get_mut());
        if !claimed.is_empty() {
            self.transaction.add(claimed);
        }
        self.transaction.give_back(self.credits.get());
    }
}

//! A transaction: what handles changed since the last commit, and the credits they have of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use uext4_buffer_cache::Buffer;
use uext4_ondisk::Pblk;
use uext4_support::PerThread;

/// Number of a transaction: grows by one, never 0, never wraps. The sequence in the log is its low
/// half, offset by where the log began.
pub type Tid = u64;

/// Says that no handle was started yet.
const NEVER: u64 = u64::MAX;

/// What the operations since the last commit changed.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) tid: Tid,
    pub(crate) limits: Limits,
    parts: PerThread<Part>,
    pub(crate) revoked: Mutex<FxHashSet<Pblk>>,
    /// Buffers in it, blocks of the log for what it revokes, those of both that handles may still
    /// add, and what the slots have in stock: at most `limits.credits`, but for what handles add
    /// beyond their credits.
    reserved: CachePadded<AtomicU32>,
    /// Nanoseconds of the clock when its first handle started.
    began: AtomicU64,
}

/// A transaction that no handle can change any more, and the contents that it commits.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) tid: Tid,
    /// Sorted by block, without what it freed.
    pub(crate) blocks: Vec<(Buffer, Arc<[u8]>)>,
    pub(crate) revoked: FxHashSet<Pblk>,
}

/// What holds for every transaction of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most credits: buffers, and blocks of the log for what is revoked.
    pub(crate) credits: u32,
    /// Revoked blocks that one block of the log names, at least 1.
    pub(crate) revokes: u32,
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

    /// Counts a credit that was not asked for beforehand, so that the limit holds.
    pub(crate) fn reserve_beyond(&self) {
        self.reserved.fetch_add(1, Relaxed);
    }

    /// Gives credits that were not used back to the slot's stock.
    pub(crate) fn give_back(&self, credits: u32) {
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

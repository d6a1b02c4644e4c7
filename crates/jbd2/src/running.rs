//! The running transaction behind a lock that handles share.
//!
//! The kernel's handles add to `t_updates` of the one running transaction, so the processors that
//! start handles pass one cache line around. Here each thread's slot has a lock of its own in front
//! of the same transaction: a handle locks its slot's shared, closing a transaction takes all of
//! them, in order. Closing is rare (a commit), and 16 free locks cost it less than a microsecond.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use uext4_percpu::PerThread;

use crate::transaction::Transaction;

/// What a handle holds: the transaction cannot be closed under it.
pub(crate) type Shared<'a> = RwLockReadGuard<'a, Arc<Transaction>>;

/// The running transaction. The lock of a slot is never waited for by a thread that has any.
#[derive(Debug)]
pub(crate) struct Running(PerThread<RwLock<Arc<Transaction>>>);

impl Running {
    /// Begins with a first transaction.
    pub(crate) fn new(first: Transaction) -> Self {
        let first = Arc::new(first);
        Self(PerThread::new(|| RwLock::new(Arc::clone(&first))))
    }

    /// Keeps the transaction from being closed. Waits while one is.
    pub(crate) fn share(&self) -> Shared<'_> {
        self.0.get().read()
    }

    /// Waits for all handles and lets no others start.
    pub(crate) fn close(&self) -> Closing<'_> {
        // Every closer takes the slots in the same order, so two of them cannot deadlock.
        Closing(self.0.iter().map(RwLock::write).collect())
    }
}

/// The transaction that no handle has, until this is dropped.
pub(crate) struct Closing<'a>(Vec<RwLockWriteGuard<'a, Arc<Transaction>>>);

impl Closing<'_> {
    /// The transaction.
    pub(crate) fn transaction(&self) -> &Arc<Transaction> {
        // There is at least one slot.
        &self.0[0]
    }

    /// Puts `next` in its place.
    pub(crate) fn replace(&mut self, next: Transaction) -> Arc<Transaction> {
        let next = Arc::new(next);
        let closed = Arc::clone(self.transaction());
        for slot in &mut self.0 {
            **slot = Arc::clone(&next);
        }
        closed
    }
}

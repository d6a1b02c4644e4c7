//! The running transaction behind a lock that handles share.
//!
//! The kernel's handles add to `t_updates` of the one running transaction, so the processors that
//! start handles pass one cache line around. Here each thread's slot has a lock of its own in front
//! of the same transaction: a handle locks its slot's shared, closing a transaction takes all of
//! them, in order. Closing is rare (a commit), and 16 free locks cost it less than a microsecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use uext4_support::PerThread;

use crate::transaction::Transaction;

/// What a handle holds: the transaction cannot be closed under it.
pub(crate) type Shared<'a> = RwLockReadGuard<'a, Arc<Transaction>>;

/// The running transaction. The lock of a slot is never waited for by a thread that has any.
#[derive(Debug)]
pub(crate) struct Running {
    slots: PerThread<RwLock<Arc<Transaction>>>,
    /// A thread waits for the slots: no handle starts in those that it has not locked yet, so it
    /// waits for the handles that there are, and not for one generation of them in each slot.
    is_closing: CachePadded<AtomicBool>,
    /// Held by the thread that closes, and waited for by those that would start a handle.
    door: Mutex<()>,
}

impl Running {
    /// Begins with a first transaction.
    pub(crate) fn new(first: Transaction) -> Self {
        let first = Arc::new(first);
        Self {
            slots: PerThread::new(|| RwLock::new(Arc::clone(&first))),
            is_closing: CachePadded::default(),
            door: Mutex::default(),
        }
    }

    /// Keeps the transaction from being closed. Waits while one is.
    pub(crate) fn share(&self) -> Shared<'_> {
        // Only a hint: a handle that misses it starts in a slot that is not locked yet.
        if self.is_closing.load(Relaxed) {
            drop(self.door.lock());
        }
        self.slots.get().read()
    }

    /// Waits for all handles and lets no others start.
    pub(crate) fn close(&self) -> Closing<'_> {
        let door = self.door.lock();
        self.is_closing.store(true, Relaxed);
        Closing {
            is_closing: &self.is_closing,
            slots: self.slots.iter().map(RwLock::write).collect(),
            _door: door,
        }
    }
}

/// The transaction that no handle has, until this is dropped.
pub(crate) struct Closing<'a> {
    is_closing: &'a AtomicBool,
    slots: Vec<RwLockWriteGuard<'a, Arc<Transaction>>>,
    _door: MutexGuard<'a, ()>,
}

impl Closing<'_> {
    /// The transaction.
    pub(crate) fn transaction(&self) -> &Arc<Transaction> {
        // There is at least one slot.
        &self.slots[0]
    }

    /// Puts `next` in its place.
    pub(crate) fn replace(&mut self, next: Transaction) -> Arc<Transaction> {
        let next = Arc::new(next);
        let closed = Arc::clone(self.transaction());
        for slot in &mut self.slots {
            **slot = Arc::clone(&next);
        }
        closed
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.is_closing.store(false, Relaxed);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::thread;
    use std::time::Duration;

    use uext4_support::SLOTS;

    use super::Running;
    use crate::transaction::{Limits, Transaction};

    fn running() -> (Running, Limits) {
        let limits = Limits {
            credits: 100,
            revokes: 10,
        };
        (Running::new(Transaction::new(1, limits)), limits)
    }

    #[test]
    fn no_handle_starts_in_any_slot_while_a_transaction_waits_to_be_closed() {
        let (running, limits) = running();
        let (closed, started) = (AtomicBool::new(false), AtomicBool::new(false));
        let first = running.share();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut closing = running.close();
                closed.store(true, SeqCst);
                closing.replace(Transaction::new(2, limits));
            });
            while !running.is_closing.load(SeqCst) {
                thread::yield_now();
            }
            for _ in 0..2 * SLOTS {
                scope.spawn(|| {
                    assert_eq!(running.share().tid, 2);
                    started.store(true, SeqCst);
                });
            }
            thread::sleep(Duration::from_millis(20));
            assert!(!closed.load(SeqCst) && !started.load(SeqCst));
            drop(first);
        });
        assert!(closed.load(SeqCst) && started.load(SeqCst));
        assert_eq!(running.share().tid, 2);
    }

    #[test]
    fn credits_in_stock_do_not_make_a_transaction_full() {
        let transaction = Transaction::new(1, running().1);
        thread::scope(|scope| {
            scope.spawn(|| assert!(transaction.reserve(40)));
        });
        assert!(transaction.reserve(60));
        assert!(!transaction.reserve(1));
    }
}

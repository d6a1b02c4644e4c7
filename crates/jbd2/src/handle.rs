//! The handles that operations change metadata through.

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;

use uext4_buffer_cache::{Buffer, ChecksumRule, VerifyTag};
use uext4_ondisk::Pblk;

use crate::running::Shared;
use crate::transaction::Tid;

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

    /// Changes a block. `tag` and `rule` as in [`Buffer::modify_pinned`]; `f` runs under the
    /// buffer's lock and must not touch it otherwise.
    pub fn modify<R>(
        &self,
        buffer: &Buffer,
        tag: VerifyTag,
        rule: ChecksumRule,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let (first, result) = buffer.modify_pinned(self.transaction.tid, tag, rule, f);
        if first {
            self.claimed.borrow_mut().push(buffer.clone());
            self.charge();
        }
        result
    }

    /// Takes one credit. The first handle of a transaction that asks for a block which is changed
    /// once for many handles, by [`crate::PreCommit::modify`], takes it for that block.
    pub fn charge(&self) {
        match self.credits.get().checked_sub(1) {
            Some(left) => self.credits.set(left),
            None => self.transaction.reserve_beyond(),
        }
    }

    /// Declares blocks of metadata freed: nothing of them is replayed or checkpointed any more
    /// once this transaction has committed. The blocks must not be used again before that. Takes
    /// a credit for each block of the log that it begins: [`Handle::credits_revoke`].
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

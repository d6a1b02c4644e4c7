//! One block in memory, and the pin its holder has.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use uext4_ondisk::Pblk;

use crate::dirty_set::DirtySet;
use crate::{ChecksumRule, VerifyTag};

/// Stands for the data of a block that has not come in.
static NO_DATA: LazyLock<Arc<[u8]>> = LazyLock::new(|| Arc::from([]));

/// A block as the table holds it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) block: Pblk,
    /// Where the block is noted while it is dirty: that of its shard.
    dirty_set: Arc<DirtySet>,
    /// Used since the clock hand last came by.
    pub(crate) referenced: AtomicBool,
    /// Held by the one thread that reads the block from the device.
    pub(crate) io: Mutex<()>,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) data: Arc<[u8]>,
    /// `data` is the block's content.
    pub(crate) uptodate: bool,
    /// How often the content was declared of no use: what a read begun before brings is not taken.
    pub(crate) forgotten: u32,
    /// `data` differs from the device.
    pub(crate) dirty: bool,
    pub(crate) verified: Option<VerifyTag>,
    /// What its journal must do to the content before it is written, from the last pinned change.
    rule: Option<ChecksumRule>,
    /// The transaction that changed the block last; 0 if none ever did.
    claimed_by: u64,
}

impl Inner {
    pub(crate) fn new(block: Pblk, dirty_set: Arc<DirtySet>) -> Self {
        Self {
            block,
            dirty_set,
            referenced: AtomicBool::new(true),
            io: Mutex::new(()),
            state: Mutex::new(State {
                data: Arc::clone(&NO_DATA),
                uptodate: false,
                forgotten: 0,
                dirty: false,
                verified: None,
                rule: None,
                claimed_by: 0,
            }),
        }
    }

    /// Notifies the clock that the block is in use; writes only if that is news.
    pub(crate) fn touch(&self) {
        if !self.referenced.load(Relaxed) {
            self.referenced.store(true, Relaxed);
        }
    }

    /// Notes that the data differs from the device; `state` is this buffer's.
    pub(crate) fn set_dirty(&self, state: &mut State) {
        state.uptodate = true;
        if !state.dirty {
            state.dirty = true;
            self.dirty_set.insert(self.block);
        }
    }

    /// Notes that the data needs no write; `state` is this buffer's.
    pub(crate) fn clear_dirty(&self, state: &mut State) {
        if state.dirty {
            state.dirty = false;
            self.dirty_set.remove(self.block);
        }
    }
}

/// A pinned block: it stays in the cache as long as this value or a clone of it lives.
///
/// Cheap to clone, and usable from any thread. A buffer may outlive its cache; changes made
/// after that are lost.
#[derive(Clone)]
pub struct Buffer(pub(crate) Arc<Inner>);

impl Buffer {
    /// The block's number.
    pub fn block(&self) -> Pblk {
        self.0.block
    }

    /// A handle that does not pin the block.
    pub fn downgrade(&self) -> WeakBuffer {
        WeakBuffer(Arc::downgrade(&self.0))
    }

    /// Whether both are the same block in memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The block's content as it is now, always a whole block. Later changes do not show in it.
    pub fn data(&self) -> Arc<[u8]> {
        Arc::clone(&self.0.state.lock().data)
    }

    /// Changes the content and marks the block dirty.
    ///
    /// Snapshots that others hold stay as they were: the block is copied first if there are any.
    /// The buffer is locked while `f` runs, so changes of one block are made one after the other;
    /// `f` must not touch this buffer through another handle.
    pub fn modify<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut state = self.0.state.lock();
        let result = f(Arc::make_mut(&mut state.data));
        self.0.set_dirty(&mut state);
        result
    }

    /// Changes the content on behalf of transaction `tid` (not 0), without marking it dirty: who
    /// calls keeps a clone of this buffer, and with it the block in the cache, until the change
    /// is checkpointed. Returns whether this is the transaction's first change of the block, and
    /// what `f` did.
    ///
    /// The block counts as verified under `tag` from here on; its checksum may be wrong until
    /// [`Buffer::checksummed`] is called. Locking as for [`Buffer::modify`].
    pub fn modify_pinned<R>(
        &self,
        tid: u64,
        tag: VerifyTag,
        rule: ChecksumRule,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> (bool, R) {
        let mut state = self.0.state.lock();
        let result = f(Arc::make_mut(&mut state.data));
        state.uptodate = true;
        state.verified = Some(tag);
        state.rule = Some(rule);
        let first = state.claimed_by != tid;
        state.claimed_by = tid;
        (first, result)
    }

    /// Lets `rule` put the checksum into a block that was changed by [`Buffer::modify_pinned`], and
    /// gives the content that is to be written.
    pub fn checksummed(&self, rule: impl FnOnce(ChecksumRule, &mut [u8])) -> Arc<[u8]> {
        let mut state = self.0.state.lock();
        if let Some(how) = state.rule.take() {
            rule(how, Arc::make_mut(&mut state.data));
        }
        Arc::clone(&state.data)
    }

    /// Whether the block was changed since it was last written.
    pub fn is_dirty(&self) -> bool {
        self.0.state.lock().dirty
    }
}

/// A handle of a block that does not pin it.
#[derive(Clone, Debug, Default)]
pub struct WeakBuffer(Weak<Inner>);

impl WeakBuffer {
    /// A handle of no block.
    pub const fn new() -> Self {
        Self(Weak::new())
    }

    /// The block, pinned, if it is still in its cache.
    pub fn upgrade(&self) -> Option<Buffer> {
        self.0.upgrade().map(Buffer)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("block", &self.0.block)
            .finish_non_exhaustive()
    }
}

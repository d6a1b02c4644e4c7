//! The memory budget of a mounted file system: which caches share it, and how memory is freed
//! when they have nothing clean to evict.

use uext4_blockdev::host;

use crate::base::memory::{Caches, MemoryUse};
use crate::journal::rw::Rw;
use crate::journal::sbi::Sbi;

/// How often the memory pressure of the machine is read.
const PRESSURE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(2);

/// Everything that takes part in the budget.
fn caches<'a>(sbi: &'a Sbi, rw: &'a Rw) -> Caches<'a> {
    let extents = &**rw.inodes.room();
    [
        &rw.names,
        &rw.inodes,
        extents,
        &rw.allocator,
        &**sbi.cache(),
        &rw.pages,
        &rw.xattrs,
    ]
}

impl Sbi {
    /// Frees memory if too much is in use, by evicting clean entries. May be called under any
    /// lock.
    pub(crate) fn relieve(&self) {
        if let Some(rw) = self.rw() {
            rw.memory.look(&caches(self, rw));
        }
    }

    /// Like [`Sbi::relieve`]; if that is not enough, also writes everything that waits for the
    /// journal. The caller must be allowed to start a handle.
    pub(crate) fn make_room(&self) {
        if let Some(rw) = self.rw()
            && rw.memory.look(&caches(self, rw))
        {
            self.drain(rw);
        }
    }

    /// Commits if so many inodes wait for a commit that no transaction would have space for more;
    /// otherwise like [`Sbi::make_room`]. To be called after a change that is stored later; the
    /// caller must be allowed to start a handle.
    pub(crate) fn bound_later(&self) {
        let Some(rw) = self.rw() else {
            return;
        };
        // Handles may have used all of a transaction, which is a quarter of the log: then the
        // total is at most half of the log.
        if rw.inodes.later_count() >= rw.journal.credits_max() as usize {
            // An error aborts the journal: the next change returns it.
            _ = rw.journal.commit_now(self);
        }
        self.make_room();
    }

    /// The work of the reclaim thread.
    pub(crate) fn reclaim(&self) {
        let Some(rw) = self.rw() else {
            return;
        };
        if rw.memory.background(&caches(self, rw)) {
            self.drain(rw);
        }
    }

    /// Reads the memory pressure of the machine if the interval has passed.
    pub(crate) fn watch_pressure(&self) {
        let Some(rw) = self.rw() else {
            return;
        };
        let now = rw.clock.monotonic();
        let mut asked = rw.pressure_asked.lock();
        if now.saturating_sub(*asked) >= PRESSURE_INTERVAL {
            *asked = now;
            rw.memory.pressed(host::memory_pressure().as_deref());
        }
    }

    /// Current usage of the memory budget.
    pub(crate) fn memory_use(&self) -> MemoryUse {
        match self.rw() {
            Some(rw) => rw.memory.usage(&caches(self, rw)),
            None => MemoryUse {
                budget: self.cache().limit() as u64,
                limit: self.cache().limit() as u64,
                buffers: self.cache().memory() as u64,
                ..MemoryUse::default()
            },
        }
    }

    /// Commits and checkpoints, so that nothing waits for the journal, if much does. One thread
    /// at a time; other threads continue meanwhile, unless memory use exceeds the limit.
    fn drain(&self, rw: &Rw) {
        let limit = rw.memory.limit();
        let pinned = rw.journal.pinned() + rw.xattrs.blocks.counts.len();
        let blocks = (pinned * self.cache().block_memory()) as u64;
        if blocks + rw.inodes.later_memory() < limit / 16 {
            return;
        }
        let draining = if self.memory_use().total() > limit {
            Some(rw.draining.lock())
        } else {
            rw.draining.try_lock()
        };
        // Another thread may have done it meanwhile.
        if draining.is_none() || !rw.memory.look(&caches(self, rw)) {
            return;
        }
        // An error aborts the journal: the next change returns it.
        let written = rw.journal.commit_now(self);
        _ = written.and_then(|()| rw.journal.checkpoint());
        rw.memory.drained();
        rw.memory.look(&caches(self, rw));
    }
}

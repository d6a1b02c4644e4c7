//! The budget of a mounted file system: what its subsystems are, and what is done where they have
//! nothing clean to give.

use uext4_blockdev::host;

use crate::base::memory::{Caches, MemoryUse};
use crate::journal::rw::Rw;
use crate::journal::sbi::Sbi;

/// How often the machine is asked how short of memory it is.
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
    /// Frees memory if too much is taken; what is clean goes. May be called under any lock.
    pub(crate) fn relieve(&self) {
        if let Some(rw) = self.rw() {
            rw.memory.look(&caches(self, rw));
        }
    }

    /// The same; if that is not enough, what waits for the journal is written. To be called where a
    /// handle may be started.
    pub(crate) fn make_room(&self) {
        if let Some(rw) = self.rw()
            && rw.memory.look(&caches(self, rw))
        {
            self.drain(rw);
        }
    }

    /// Commits if so many inodes wait for it that no transaction would have room for more; else as
    /// [`Sbi::make_room`]. To be called after a change that waits, where a handle may be started.
    pub(crate) fn bound_later(&self) {
        let Some(rw) = self.rw() else {
            return;
        };
        // Handles may have taken all of a transaction, which is a quarter of the log: then it is
        // half of it at most.
        if rw.inodes.later_count() >= rw.journal.credits_max() as usize {
            // What fails aborts the journal: who changes something next is notified.
            _ = rw.journal.commit_now(self);
        }
        self.make_room();
    }

    /// What the reclaim thread does.
    pub(crate) fn reclaim(&self) {
        let Some(rw) = self.rw() else {
            return;
        };
        if rw.memory.background(&caches(self, rw)) {
            self.drain(rw);
        }
    }

    /// Asks the machine how short of memory it is, if it is time to.
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

    /// What is taken of the budget.
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

    /// Commits and checkpoints, so that nothing waits for the journal, if much does. One at a
    /// time; the others go on meanwhile, unless it gets worse.
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
        // What fails aborts the journal: who changes something next is notified.
        let written = rw.journal.commit_now(self);
        _ = written.and_then(|()| rw.journal.checkpoint());
        rw.memory.drained();
        rw.memory.look(&caches(self, rw));
    }
}

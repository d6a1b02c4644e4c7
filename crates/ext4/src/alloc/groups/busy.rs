//! In which group a thread takes inodes while another thread is at the group that both would
//! choose.
//!
//! Everything that is no directory goes to the first group of its directory's flex group that has
//! a free inode. So threads that create files in different directories would meet in one group's
//! lock. A thread that finds the lock taken goes on to the next group of the flex group that has
//! free inodes and whose lock is free, and takes its next inodes there, up to [`STAY`] of them.
//! The kernel's block allocator skips busy groups in the same way (`ext4_try_lock_group`). Where
//! one thread creates files, they go where they always went.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::MutexGuard;
use uext4_ondisk::{Geometry, GroupNr};
use uext4_support::PerThread;

use super::{Groups, Slot};
use crate::alloc::ialloc::{Counts, Parent};

/// Inodes that a thread takes in a group that it turned to, before it looks at the usual one again.
const STAY: u32 = 512;

/// The group that the threads of each slot turned to, in the low half, and in the high half how
/// many inodes they take there still.
#[derive(Debug, Default)]
pub(super) struct Turned(PerThread<AtomicU64>);

impl Turned {
    /// The group to take the next inode in, if it is not the usual one.
    fn next(&self) -> Option<GroupNr> {
        let slot = self.0.get();
        let turned = slot.load(Relaxed);
        let left = (turned >> 32).checked_sub(1)?;
        // A thread that shares the slot may have counted, too: the count need not be exact.
        slot.store(left << 32 | turned & u64::from(u32::MAX), Relaxed);
        // OK to truncate: the low half.
        Some(GroupNr(turned as u32))
    }

    fn to(&self, group: GroupNr) {
        let turned = u64::from(STAY) << 32 | u64::from(group.0);
        self.0.get().store(turned, Relaxed);
    }
}

impl Groups {
    /// The group for anything but a directory; `None` if no inode is free anywhere.
    pub(super) fn for_file(&self, geometry: &Geometry, parent: Parent) -> Option<GroupNr> {
        let is_near = |turned: GroupNr| {
            turned.0 < self.groups()
                && self.flex_range(turned) == self.flex_range(parent.group)
                && self.group(turned).free_inodes > 0
        };
        if let Some(turned) = self.turned.next().filter(|&turned| is_near(turned)) {
            return Some(turned);
        }
        let counts: &dyn Counts = self;
        counts.for_other(geometry, parent)
    }

    /// Locks a group in which an inode that is no directory is to be taken: `group`, or another of
    /// its flex group if a thread is at that one.
    pub(super) fn lock_for_file(&self, group: GroupNr) -> (GroupNr, MutexGuard<'_, Slot>) {
        let slot = |group: GroupNr| &self.slots[group.0 as usize];
        if let Some(guard) = slot(group).try_lock() {
            return (group, guard);
        }
        let (first, end) = self.flex_range(group);
        for other in (group.0 + 1..end).chain(first..group.0).map(GroupNr) {
            if self.group(other).free_inodes > 0
                && let Some(guard) = slot(other).try_lock()
            {
                self.turned.to(other);
                return (other, guard);
            }
        }
        (group, slot(group).lock())
    }

    /// The first group of the flex group that `group`, one of the file system's, is in, and the one
    /// behind its last; `group` alone where there are no flex groups.
    fn flex_range(&self, group: GroupNr) -> (u32, u32) {
        let len = 1u32
            .checked_shl(self.log_groups_per_flex.into())
            .unwrap_or(u32::MAX);
        let first = group.0 - group.0 % len;
        (first, first.saturating_add(len).min(self.groups()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use crate::alloc::groups::NewIno;
    use crate::alloc::ialloc::Parent;
    use crate::base::edit::Direct;
    use crate::testing::{mke2fs, mount};
    use uext4_ondisk::GroupNr;

    #[test]
    fn a_thread_that_finds_a_group_busy_takes_inodes_of_the_next_and_stays_there() {
        let device = mke2fs("-t ext4 -b 1024 -g 1024 -N 1024 -O ^has_journal", 8192);
        let sbi = mount(&device);
        let groups = &sbi.writable().unwrap().groups;
        let parent = Parent {
            group: GroupNr(0),
            is_top: false,
            last_group: None,
        };
        let take = || -> NewIno {
            let taken = groups.take_inode(&sbi, &Direct(&sbi), parent, None);
            taken.unwrap()
        };
        let alone = take().group;
        let (busy, done) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = groups.slots[alone.0 as usize].lock();
                busy.wait();
                done.wait();
            });
            busy.wait();
            let neighbour = thread::scope(|scope| {
                let other = scope.spawn(|| [take().group, take().group]);
                other.join().unwrap()
            });
            done.wait();
            assert_eq!(neighbour, [GroupNr(alone.0 + 1); 2]);
        });
        // This thread found no lock taken.
        assert_eq!(take().group, alone);
    }
}

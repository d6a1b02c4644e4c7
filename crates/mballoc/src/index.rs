//! What is known of a group without its lock, and the index that a design of the search may keep
//! of it.

use std::fmt;

use crate::buddy::Buddy;

/// A group as it looks without its lock: a hint, to be tested under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// Free blocks; 0 for a group that is marked bad.
    pub free: u32,
    /// Free runs; 1 if the group is not loaded and any block is free.
    pub fragments: u32,
    /// Order of the largest free chunk; if the group is not loaded, what the number of free blocks
    /// allows at best. `None` if nothing is free.
    pub largest_order: Option<u32>,
    /// Its bitmap was read.
    pub loaded: bool,
}

impl GroupState {
    /// As it looks under the lock.
    pub fn of(buddy: &Buddy) -> Self {
        Self {
            free: buddy.free(),
            fragments: buddy.fragments(),
            largest_order: buddy.largest_order(),
            loaded: true,
        }
    }

    /// Blocks of the average free run, rounded down; 0 if nothing is free.
    pub fn average_run(&self) -> u32 {
        self.free / self.fragments.max(1)
    }
}

/// An index over the groups that a design of the search has for itself.
pub trait Index: fmt::Debug + Send + Sync {
    /// The group of this number now looks like `state`. Called under the group's lock, for all
    /// groups once at first and then at each change but that its buddy is dropped: it must not
    /// wait.
    fn update(&self, group: u32, state: &GroupState);
}

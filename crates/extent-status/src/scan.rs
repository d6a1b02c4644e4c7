//! What one scan did, counted so that designs can be compared without a clock.

/// The record of one call of
/// [`ExtentStatusCache::scan_recorded`](crate::ExtentStatusCache::scan_recorded).
///
/// A *step* is an extent or a tree looked at, a leaf taken off a queue, a handle copied for a new
/// index of leaves, or a comparison made by a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Extents dropped.
    pub freed: usize,
    /// Extents looked at one by one. Those of a leaf that goes as a whole are not.
    pub visited: usize,
    /// Delayed extents among them.
    pub delayed_seen: usize,
    /// Trees looked at, each time anew.
    pub trees: u64,
    /// Leaves taken off a queue, each time anew.
    pub leaves: u64,
    /// Leaves dropped.
    pub leaves_evicted: u64,
    /// Handles of leaves and of index nodes copied for a new index.
    pub copied: u64,
    /// Comparisons of a sort.
    pub compares: u64,
    /// How often the lock of a list or queue was taken.
    pub list_locks: u64,
    /// The most steps between taking any one lock and letting go of it.
    pub max_steps_under_lock: u64,
    /// Trees in use, passed over.
    pub trylock_failed: u64,
    /// Rounds after the first, because it got nothing.
    pub second_rounds: u64,
}

impl Scan {
    /// All steps.
    pub fn steps(&self) -> u64 {
        self.visited as u64 + self.trees + self.leaves + self.copied + self.compares
    }

    /// Notes how many steps were made under one lock.
    pub fn held(&mut self, steps: u64) {
        self.max_steps_under_lock = self.max_steps_under_lock.max(steps);
    }
}

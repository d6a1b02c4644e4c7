//! The seam: how what is known of a file is indexed, and what is dropped when memory is short.
//!
//! # Why one seam for both
//!
//! A shrinker finds what may go by the shape of the index. One that takes trees in turn needs
//! them on a list, and in each a way past the extents that must stay; one that takes leaves needs
//! extents that lie in leaves. So a design is both: a [`Shrinker`] for the file system, which
//! makes an [`EsTree`] for each inode. What any design must do is here; what it costs is its own.
//!
//! # What a design must do
//!
//! - It never drops a delayed extent, in whatever order threads call: [`Shrinker::scan`] next to
//!   every method of every tree, and all methods of one tree side by side.
//! - A lookup returns what was inserted or cached last and not removed since, or nothing:
//!   dropping an extent makes it unknown, never another.
//! - It brings the [`Counters`] of the cache after every change before the call returns.
//! - Its locks are leaves of the lock order. A scan only *tries* the lock of a tree: the thread
//!   that calls may be using one.
//!
//! [`ExtentStatusCache`](crate::ExtentStatusCache) and [`Tree`](crate::Tree) check ranges, count
//! lookups and scans, and trace; a design sees extents that fit ([`Extent::PLACES`], no block
//! beyond the last).
//!
//! # The designs
//!
//! Shipped: [`LeafQueue`](crate::LeafQueue). An object of another is given in
//! [`Options::shrinker`](crate::Options::shrinker) and serves one cache at a time. The shrinkers
//! of Linux 3.11 to today, those of the thread of 2014 and a clock over leaves are in
//! `lab/policies`, with the tests that any design must pass.
//!
//! Source: "ext4: extents status tree shrinker improvement" (Zheng Liu, linux-ext4, April 2014),
//! which compared three of them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::extent::{Extent, StatusSet};
use crate::scan::Scan;
use crate::stats::Counters;

/// What is dropped of all trees of a file system, and in which order.
pub trait Shrinker: fmt::Debug + Send + Sync {
    /// A tree that knows nothing.
    fn tree(&self) -> Arc<dyn EsTree>;

    /// Drops about `nr` extents: see [`ExtentStatusCache::scan`](crate::ExtentStatusCache::scan).
    /// Records each step.
    fn scan(&self, counters: &Counters, nr: usize) -> Scan;

    /// Bytes in addition to those of [`Counters::bytes`]: queues, and what is remembered of
    /// dropped extents.
    fn memory(&self) -> u64 {
        0
    }
}

/// What a lookup found, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The whole known extent that contains the block; `None` if it is not known.
    pub extent: Option<Extent>,
    /// Whether a lock was taken.
    pub locked: bool,
}

/// What is known of the blocks of one inode. The contract of each method is that of its namesake in
/// [`Tree`](crate::Tree).
///
/// Extents that come in are not empty and end at `u32::MAX` at the latest; those of
/// [`cache`](Self::cache) and [`cache_all`](Self::cache_all) are reclaimable.
pub trait EsTree: fmt::Debug + Send + Sync {
    /// Looks up the extent that contains `lblk`, which counts as a use of it.
    fn lookup(&self, counters: &Counters, lblk: u32) -> Lookup;

    /// Puts an extent in place of what is known of its range. Returns the delayed blocks replaced.
    fn insert(&self, counters: &Counters, extent: &Extent) -> u32;

    /// Forgets a range. Returns the delayed blocks in it.
    fn remove(&self, counters: &Counters, range: Range<u32>) -> u32;

    /// Fills the gaps in the range of `extent`, over its first [`FILL_MAX`](crate::FILL_MAX) parts.
    fn cache(&self, counters: &Counters, extent: &Extent);

    /// Puts those extents in of whose range nothing is known.
    fn cache_all(&self, counters: &Counters, extents: &mut dyn Iterator<Item = Extent>);

    /// The first extent of a wanted status that ends after `from`, cut to start there at the
    /// earliest.
    fn find(&self, from: u32, wanted: StatusSet) -> Option<Extent>;

    /// Drops all that is not delayed, and the mark of [`set_precached`](Self::set_precached).
    fn clear_cache(&self, counters: &Counters);

    /// Marks the tree as loaded in advance by request: it is shrunk last.
    fn set_precached(&self);

    /// The mark of [`set_precached`](Self::set_precached).
    fn is_precached(&self) -> bool;

    /// Delayed blocks. Takes no lock.
    fn delayed_blocks(&self) -> u64;

    /// A number that [`insert`](Self::insert) and [`remove`](Self::remove) raise before anything of
    /// the change can be seen. Takes no lock.
    fn seq(&self) -> u64;

    /// All that is known, in order.
    fn extents(&self) -> Vec<Extent>;

    /// Forgets everything, delayed extents too. Called once, last; a scan may still be at the tree.
    fn close(&self, counters: &Counters);
}

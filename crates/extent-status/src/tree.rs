//! What is known of the blocks of one inode.

use std::sync::Arc;

use uext4_ondisk::{Lblk, Pblk};

use crate::extent::{self, Extent, Status, StatusSet};
use crate::leaf_queue::TREE_MEMORY;
use crate::room::ExtentStatusCache;
use crate::shrinker::EsTree;
use crate::trace;

/// What is known of the blocks of one inode.
///
/// `Send + Sync`. Its locks are leaves of the lock order. Dropping it forgets everything, delayed
/// extents too: settle their reservation before.
#[derive(Debug)]
pub struct Tree {
    room: Arc<ExtentStatusCache>,
    tree: Arc<dyn EsTree>,
}

impl Tree {
    /// What a tree takes in addition to its extents, in bytes.
    pub const MEMORY: u64 = TREE_MEMORY;

    /// A tree that knows nothing.
    pub fn new(room: &Arc<ExtentStatusCache>) -> Self {
        room.counters().trees(1);
        Self {
            room: Arc::clone(room),
            tree: room.tree(),
        }
    }

    /// The whole known extent that contains `lblk`; `None` if it is not known. Marks it as used.
    pub fn lookup(&self, lblk: Lblk) -> Option<Extent> {
        let counters = self.room.counters();
        let found = self.tree.lookup(counters, lblk.0);
        counters.looked_up(found.extent.is_some(), found.locked);
        trace::lookup(lblk.0, found.extent.as_ref());
        found.extent
    }

    /// Notes what a range now is, in place of all that was known there.
    ///
    /// Answers how many delayed blocks it replaced, also if they are delayed again: the caller owns
    /// their reservation. A length beyond the last block is cut; an extent that cannot be (its
    /// place passes [`Extent::PLACES`]) makes the range unknown.
    pub fn insert(&self, extent: Extent) -> u32 {
        let Some((lblk, len)) = extent::bounded(extent.lblk, extent.len) else {
            return 0;
        };
        let Some(extent) = extent.bounded() else {
            return self.remove(lblk, len);
        };
        let delayed = self.tree.insert(self.room.counters(), &extent);
        let name = match extent.status {
            Status::Delayed => "ext4_es_insert_delayed_extent",
            _ => "ext4_es_insert_extent",
        };
        trace::change(name, &extent, || self.seq());
        delayed
    }

    /// Notes what the map on the device says of a range, where nothing is known yet.
    ///
    /// Never replaces anything. It begins at the first block, and ends where 64 parts have been
    /// gone over, known ones and others: what a lookup that fails costs does not grow with what
    /// is known.
    ///
    /// The caller must have read the map under a lock that prevented it from changing until now.
    /// Delayed extents are not the map's to report, and are ignored.
    pub fn cache(&self, extent: Extent) {
        let known = extent.bounded().filter(|e| e.status.is_reclaimable());
        if let Some(extent) = &known {
            self.tree.cache(self.room.counters(), extent);
        }
        trace::cached(known.into_iter(), || self.seq());
    }

    /// Notes what a whole leaf of the map on the device says, its extents and its holes, in any
    /// order. Each of them is noted only if nothing at all is known of its range: a search an
    /// extent, and what was dropped between known ones stays so. Else as [`cache`](Self::cache).
    pub fn cache_all(&self, extents: &[Extent]) {
        let bounded = extents.iter().filter_map(|extent| extent.bounded());
        let known = bounded.filter(|extent| extent.status.is_reclaimable());
        let counters = self.room.counters();
        self.tree.cache_all(counters, &mut known.clone());
        // When the lock is free again: nothing is called under it.
        trace::cached(known, || self.seq());
    }

    /// Forgets a range; answers how many delayed blocks it held: their reservation is the caller's.
    pub fn remove(&self, lblk: Lblk, len: u32) -> u32 {
        let Some((lblk, len)) = extent::bounded(lblk, len) else {
            return 0;
        };
        let range = lblk.0..lblk.0 + len;
        let delayed = self.tree.remove(self.room.counters(), range);
        let gone = Extent {
            lblk,
            len,
            pblk: Pblk(0),
            status: Status::Hole,
        };
        trace::change("ext4_es_remove_extent", &gone, || self.seq());
        delayed
    }

    /// The first known extent with a wanted status that contains `from` or lies after it, cut to
    /// start at `from` at the earliest. Walks over the extents in between; marks nothing.
    pub fn find(&self, from: Lblk, wanted: impl Fn(Status) -> bool) -> Option<Extent> {
        // Asked before the lock is taken: nothing is called under it.
        self.tree.find(from.0, StatusSet::of(wanted))
    }

    /// Drops all that is not delayed, and the mark of [`set_precached`](Self::set_precached).
    pub fn clear_cache(&self) {
        self.tree.clear_cache(self.room.counters());
    }

    /// Marks the tree as one whose whole map was loaded in advance by request: it is shrunk last.
    pub fn set_precached(&self) {
        self.tree.set_precached();
    }

    /// The mark of [`set_precached`](Self::set_precached).
    pub fn is_precached(&self) -> bool {
        self.tree.is_precached()
    }

    /// Delayed blocks. Takes no lock.
    pub fn delayed_blocks(&self) -> u64 {
        self.tree.delayed_blocks()
    }

    /// A number that grows with every [`insert`](Self::insert) and [`remove`](Self::remove), also
    /// of what was not known, and with nothing else. Takes no lock.
    pub fn seq(&self) -> u64 {
        self.tree.seq()
    }

    /// All that is known, in order: for tests and tools.
    pub fn extents(&self) -> Vec<Extent> {
        self.tree.extents()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.tree.close(self.room.counters());
        self.room.counters().trees(-1);
    }
}

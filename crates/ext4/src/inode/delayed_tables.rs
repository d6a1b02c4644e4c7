//! The tables that delayed blocks of a file without extents may take, as far as blocks are
//! reserved for them.
//!
//! Every table of numbers in which a delayed block will stand is reserved, together with all
//! above it, as if none of them were there: from the first delayed block in it to the last. That
//! is never too little, and too much by 3 blocks at most for each table, which has 256 numbers
//! and more.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use uext4_extent_status::{Extent as Known, Status, Tree};
use uext4_ondisk::Lblk;
use uext4_ondisk::indirect::{Reach, Segment};

/// Of one file. Its lock is a leaf, but for that of what is known of the file's blocks.
#[derive(Debug)]
pub(crate) struct DelayedTables {
    reach: Reach,
    /// How many blocks in a table are delayed, by the first logical block of those that stand in
    /// it.
    delayed: Mutex<BTreeMap<u32, u32>>,
}

/// What is reserved and not needed any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unneeded {
    /// Blocks that were delayed.
    pub(crate) data: u32,
    /// Their tables.
    pub(crate) tables: u32,
}

impl DelayedTables {
    pub(crate) fn new(reach: Reach) -> Self {
        Self {
            reach,
            delayed: Mutex::default(),
        }
    }

    /// How many of `len` blocks from `lblk` on stand in one table, and how many tables must be
    /// reserved before these become delayed.
    pub(crate) fn part(&self, lblk: Lblk, len: u32) -> (u32, u32) {
        match self.reach.segment(lblk.0.into(), len.into()) {
            // OK to truncate: no more than was asked for; 3 levels.
            Some(segment) => (segment.len as u32, segment.tree as u32),
            // No file is that large.
            None => (len, 0),
        }
    }

    /// Notes what is known of blocks. Delayed ones must stand in one table, and have been
    /// reserved with what [`DelayedTables::part`] says.
    pub(crate) fn insert(&self, known: &Tree, extent: Known) -> Unneeded {
        let delayed = &mut *self.delayed.lock();
        let mut unneeded = Unneeded::default();
        let mut skip = 0;
        while skip < extent.len {
            let lblk = Lblk(extent.lblk.0 + skip);
            let (len, tables) = self.part(lblk, extent.len - skip);
            let replaced = known.insert(Known {
                lblk,
                len,
                pblk: extent.pblk_at(lblk).unwrap_or(extent.pblk),
                status: extent.status,
            });
            unneeded.data += replaced;
            let added = match extent.status {
                Status::Delayed => len,
                _ => 0,
            };
            let was = count(delayed, self.table(lblk), added, replaced);
            let is = was + added > replaced;
            // Reserved before and just now; or before, and for nothing any more.
            if was > 0 && (added > 0 || !is) {
                unneeded.tables += tables;
            }
            skip += len;
        }
        unneeded
    }

    /// Forgets what is known of blocks.
    pub(crate) fn remove(&self, known: &Tree, from: Lblk, len: u32) -> Unneeded {
        let delayed = &mut *self.delayed.lock();
        let end = u64::from(from.0) + u64::from(len);
        let first = self.table(from).unwrap_or(from.0);
        let tables = delayed.range(first..).map(|(table, _)| *table);
        let tables: Vec<u32> = tables.take_while(|t| u64::from(*t) < end).collect();
        let mut unneeded = Unneeded::default();
        for table in tables {
            let Some(all) = self.reach.segment(table.into(), u64::MAX) else {
                continue;
            };
            let from = table.max(from.0);
            // Fits: no table reaches past the last block.
            let len = end.min(u64::from(table) + all.len) - u64::from(from);
            let removed = known.remove(Lblk(from), len as u32);
            unneeded.data += removed;
            if count(delayed, Some(table), 0, removed) == removed && removed > 0 {
                unneeded.tables += all.tree as u32;
            }
        }
        // Those whose numbers stand in the inode, and what is no reservation.
        unneeded.data += known.remove(from, len);
        unneeded
    }

    /// The first block of those that stand in the same table; none if they stand in the inode.
    fn table(&self, lblk: Lblk) -> Option<u32> {
        let of_table = |segment: &Segment| segment.tree > 0;
        let segment = self.reach.segment(lblk.0.into(), 1).filter(of_table)?;
        let numbers = self.reach.size(1);
        // OK to truncate: not above `lblk`.
        Some(lblk.0 - (segment.place % numbers) as u32)
    }
}

/// Counts blocks of a table that have become delayed, and others that are so no more. Answers
/// with how many there were.
fn count(delayed: &mut BTreeMap<u32, u32>, table: Option<u32>, added: u32, gone: u32) -> u32 {
    let Some(table) = table else { return 0 };
    let before = delayed.get(&table).copied().unwrap_or(0);
    match (before + added).saturating_sub(gone) {
        0 => delayed.remove(&table),
        now => delayed.insert(table, now),
    };
    before
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use uext4_extent_status::ExtentStatusCache;
    use uext4_ondisk::Pblk;

    use super::*;

    /// The tables of lowest level, by first block, with the levels above the data: 4 numbers each.
    fn table(lblk: u32) -> (u32, u64) {
        match lblk {
            0..12 => (0, 0),
            12..16 => (12, 1),
            16..32 => (lblk & !3, 2),
            _ => (lblk & !3, 3),
        }
    }

    #[test]
    fn reservations_cover_the_tables_of_delayed_blocks() {
        let known = Tree::new(&ExtentStatusCache::new(|| Duration::ZERO));
        let tables = DelayedTables::new(Reach { log: 2 });
        let mut delayed = BTreeSet::new();
        let mut reserved = (0, 0);
        let mut numbers = uext4_testkit::SplitMix64::new(1);
        let mut random = |below: u32| numbers.below(below.into()) as u32;
        for _ in 0..20_000 {
            let lblk = random(96);
            let mut len = 1 + random(96 - lblk).min(random(40));
            let kind = random(4);
            if kind < 2 {
                let part = tables.part(Lblk(lblk), len);
                len = part.0;
                reserved.0 += u64::from(part.0);
                reserved.1 += u64::from(part.1);
            }
            let status = if kind < 2 {
                Status::Delayed
            } else {
                Status::Written
            };
            let extent = Known {
                lblk: Lblk(lblk),
                len,
                pblk: Pblk(u64::from(kind / 2) * 1000),
                status,
            };
            let unneeded = match kind {
                3 if len > 30 => tables.remove(&known, Lblk(lblk), u32::MAX),
                3 => tables.remove(&known, Lblk(lblk), len),
                _ => tables.insert(&known, extent),
            };
            reserved.0 -= u64::from(unneeded.data);
            reserved.1 -= u64::from(unneeded.tables);
            let end = if kind == 3 && len > 30 {
                96
            } else {
                lblk + len
            };
            for block in lblk..end {
                match kind < 2 {
                    true => delayed.insert(block),
                    false => delayed.remove(&block),
                };
            }
            let needed: BTreeSet<_> = delayed.iter().map(|block| table(*block)).collect();
            let needed = needed.iter().map(|(_, levels)| levels).sum();
            assert_eq!(reserved, (delayed.len() as u64, needed));
        }
        assert!(!delayed.is_empty());
    }
}

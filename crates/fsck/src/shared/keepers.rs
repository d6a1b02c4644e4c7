//! Which owner keeps which cluster: ranges, so that large files cost little.

use std::collections::BTreeMap;
use std::ops::Range;

use uext4_ondisk::Ino;

/// Clusters and the inodes that keep them.
#[derive(Debug, Default)]
pub struct Keepers {
    /// By first cluster; ranges do not overlap.
    ranges: BTreeMap<u64, Keeper>,
}

#[derive(Clone, Copy, Debug)]
struct Keeper {
    end: u64,
    ino: Ino,
}

impl Keepers {
    /// Notes the keeper of clusters that have none yet.
    pub fn put(&mut self, clusters: Range<u64>, ino: Ino) {
        if let Some((_, before)) = self.ranges.range_mut(..=clusters.start).next_back()
            && before.end == clusters.start
            && before.ino == ino
        {
            before.end = clusters.end;
            return;
        }
        let end = clusters.end;
        self.ranges.insert(clusters.start, Keeper { end, ino });
    }

    /// Who keeps a cluster.
    pub fn of(&self, cluster: u64) -> Option<Ino> {
        let (_, keeper) = self.ranges.range(..=cluster).next_back()?;
        (cluster < keeper.end).then_some(keeper.ino)
    }

    /// Where the range of a cluster ends: the keeper is the same up to there.
    pub fn end_of(&self, cluster: u64) -> Option<u64> {
        let (_, keeper) = self.ranges.range(..=cluster).next_back()?;
        (cluster < keeper.end).then_some(keeper.end)
    }
}

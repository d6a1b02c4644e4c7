//! Which clusters are taken, as runs: a few per group however large the groups are.

use std::collections::BTreeMap;
use std::ops::Range;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// First block.
    pub start: u64,
    /// Blocks, at least one.
    pub len: u64,
}

impl Run {
    /// First block past the run.
    pub fn end(self) -> u64 {
        self.start + self.len
    }
}

/// The used clusters of a file system. All arguments and results are block numbers; a block is used
/// when its cluster is.
///
/// Adjacent runs stay merged, so that finding a free run looks at each gap once.
#[derive(Clone, Debug, Default)]
pub struct SpaceMap {
    /// First cluster → cluster past the last, disjoint and not touching.
    used: BTreeMap<u64, u64>,
    cluster_bits: u32,
}

impl SpaceMap {
    /// An empty map; clusters are of 2^`cluster_bits` blocks.
    pub fn new(cluster_bits: u8) -> Self {
        Self {
            used: BTreeMap::new(),
            cluster_bits: cluster_bits.into(),
        }
    }

    /// The same use in clusters of 2^`cluster_bits` blocks; this map counts single blocks.
    pub fn in_clusters(&self, cluster_bits: u8) -> Self {
        let mut map = Self::new(cluster_bits);
        self.runs().for_each(|run| map.mark(run));
        map
    }

    /// Clusters in use.
    pub fn used_clusters(&self) -> u64 {
        self.used.iter().map(|(start, end)| end - start).sum()
    }

    /// Marks every cluster of the run used; parts that are used already stay so.
    pub fn mark(&mut self, run: Run) {
        if run.len == 0 {
            return;
        }
        let mut start = run.start >> self.cluster_bits;
        let mut end = ((run.end() - 1) >> self.cluster_bits) + 1;
        if let Some((&s, &e)) = self.used.range(..=start).next_back()
            && e >= start
        {
            start = s;
            end = end.max(e);
        }
        while let Some((&s, &e)) = self.used.range(start..=end).next() {
            end = end.max(e);
            self.used.remove(&s);
        }
        self.used.insert(start, end);
    }

    /// True if no cluster of the run is used.
    pub fn is_free(&self, run: Run) -> bool {
        run.len == 0
            || self
                .used_after(run.start)
                .is_none_or(|used| used.start >= run.end())
    }

    /// The first used run that ends after `block`.
    fn used_after(&self, block: u64) -> Option<Range<u64>> {
        let cluster = block >> self.cluster_bits;
        let before = self.used.range(..=cluster).next_back();
        before
            .filter(|&(_, &end)| end > cluster)
            .or_else(|| self.used.range(cluster..).next())
            .map(|(&s, &e)| s << self.cluster_bits..e << self.cluster_bits)
    }

    /// Free run at or after `from` and before `to`, as long as it goes.
    pub fn next_free(&self, from: u64, to: u64) -> Option<Run> {
        let mut start = from;
        while start < to {
            match self.used_after(start) {
                Some(used) if used.start <= start => start = used.end,
                next => {
                    let end = next.map_or(to, |used| used.start.min(to));
                    return Some(Run {
                        start,
                        len: end - start,
                    });
                }
            }
        }
        None
    }

    /// The first `len` free blocks in a row at or after `from` that end by `to`. After a used run
    /// only the start of a cluster is considered.
    pub fn find(&self, from: u64, to: u64, len: u64) -> Option<u64> {
        let mut from = from;
        loop {
            let run = self.next_free(from, to)?;
            if run.len >= len {
                return Some(run.start);
            }
            from = run.end();
        }
    }

    /// All used runs, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.used.iter().map(|(&s, &e)| Run {
            start: s << self.cluster_bits,
            len: (e - s) << self.cluster_bits,
        })
    }

    /// Used runs that lie in or reach into `range`, cut to it.
    pub fn runs_in(&self, range: Range<u64>) -> impl Iterator<Item = Run> + '_ {
        let first = range.start >> self.cluster_bits;
        let before = self
            .used
            .range(..first)
            .next_back()
            .filter(|&(_, &end)| end > first);
        let rest = self
            .used
            .range(first..range.end.div_ceil(1 << self.cluster_bits));
        before.into_iter().chain(rest).map(move |(&s, &e)| {
            let start = (s << self.cluster_bits).max(range.start);
            let end = (e << self.cluster_bits).min(range.end);
            Run {
                start,
                len: end - start,
            }
        })
    }

    /// Used blocks in `range`.
    pub fn used_in(&self, range: Range<u64>) -> u64 {
        self.runs_in(range).map(|run| run.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u64) -> Run {
        Run { start, len }
    }

    #[test]
    fn runs_merge() {
        let mut map = SpaceMap::new(0);
        [run(10, 5), run(20, 5), run(15, 5), run(30, 1), run(0, 40)]
            .into_iter()
            .take(3)
            .for_each(|r| map.mark(r));
        assert_eq!(map.runs().collect::<Vec<_>>(), [run(10, 15)]);
        map.mark(run(0, 40));
        assert_eq!(map.runs().collect::<Vec<_>>(), [run(0, 40)]);
    }

    #[test]
    fn finds_the_first_gap_that_is_long_enough() {
        let mut map = SpaceMap::new(0);
        map.mark(run(0, 10));
        map.mark(run(14, 6));
        assert_eq!(map.find(0, 100, 4), Some(10));
        assert_eq!(map.find(0, 100, 5), Some(20));
        assert_eq!(map.find(11, 100, 3), Some(11));
        assert_eq!(map.find(0, 24, 5), None);
        assert!(map.is_free(run(10, 4)));
        assert!(!map.is_free(run(10, 5)));
        assert!(!map.is_free(run(12, 20)));
        assert_eq!(map.used_in(5..16), 7);
    }

    #[test]
    fn clusters_are_taken_whole() {
        let mut map = SpaceMap::new(4);
        map.mark(run(3, 1));
        assert_eq!(map.runs().collect::<Vec<_>>(), [run(0, 16)]);
        assert_eq!(map.find(0, 1000, 1), Some(16));
        assert_eq!(map.used_in(0..1000), 16);
        let mut blocks = SpaceMap::new(0);
        blocks.mark(run(3, 1));
        blocks.mark(run(15, 2));
        let map = blocks.in_clusters(4);
        assert_eq!(map.runs().collect::<Vec<_>>(), [run(0, 32)]);
        assert_eq!(map.used_clusters(), 2);
    }
}

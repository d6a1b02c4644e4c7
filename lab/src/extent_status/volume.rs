//! Files whose maps are read from the device a leaf at a time, and requests to them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use uext4_extent_status::{BATCH, Extent, ExtentStatusCache, Status, Tree};
use uext4_lab_policies::extent_status::Policy;
use uext4_ondisk::{Lblk, Pblk};

use super::policy;
use uext4_testkit::SplitMix64;

/// Scans of one shortage: where nothing can be dropped any more, one must give up.
const CALLS: usize = 100_000;

/// What the files look like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub files: usize,
    /// Leaves of a file's map on the device, and extents of each.
    pub leaves: usize,
    pub extents: usize,
    /// Delayed extents behind each leaf's range.
    pub delayed: usize,
}

impl Shape {
    pub fn all_leaves(&self) -> usize {
        self.files * self.leaves
    }

    pub fn all_extents(&self) -> usize {
        self.all_leaves() * self.extents
    }

    /// Blocks from one leaf to the next.
    fn span(&self) -> usize {
        2 * (self.extents + self.delayed)
    }
}

/// The files, of which nothing is known at first but what is delayed.
#[derive(Debug)]
pub struct Volume {
    pub room: Arc<ExtentStatusCache>,
    shape: Shape,
    trees: Vec<Tree>,
    /// More droppable extents than these are a shortage.
    cap: usize,
}

impl Volume {
    pub fn new(shape: Shape, policy: Policy, cap: usize) -> Self {
        let clock = Arc::new(AtomicU64::new(1));
        let room = policy::room(policy, true, &clock);
        let trees: Vec<Tree> = (0..shape.files).map(|_| Tree::new(&room)).collect();
        for tree in &trees {
            for leaf in 0..shape.leaves {
                let first = leaf * shape.span() + 2 * shape.extents;
                for at in 0..shape.delayed {
                    tree.insert(Extent {
                        lblk: Lblk((first + 2 * at) as u32),
                        len: 1,
                        pblk: Pblk(0),
                        status: Status::Delayed,
                    });
                }
            }
        }
        Self {
            room,
            shape,
            trees,
            cap,
        }
    }

    /// Looks up an extent of a leaf of the volume; reads the leaf if it is not known. Answers
    /// whether it was.
    pub fn read(&self, leaf: usize, extent: usize) -> bool {
        let tree = &self.trees[leaf / self.shape.leaves];
        let first = leaf % self.shape.leaves * self.shape.span();
        let known = tree.lookup(Lblk((first + 2 * extent) as u32)).is_some();
        if !known {
            let all: Vec<Extent> = (0..self.shape.extents)
                .map(|at| Extent {
                    lblk: Lblk((first + 2 * at) as u32),
                    len: 2,
                    // In descending order: no two of them adjoin.
                    pblk: Pblk((u64::from(u32::MAX) - (first + 2 * at) as u64) * 2),
                    status: Status::Written,
                })
                .collect();
            tree.cache_all(&all);
        }
        known
    }

    /// Says whether more is known than there is memory for.
    pub fn is_short(&self) -> bool {
        self.room.count() > self.cap
    }

    /// Drops until there is memory again. Answers the steps and the extents dropped.
    pub fn shrink(&self) -> (u64, usize) {
        let (mut steps, mut freed) = (0, 0);
        for _ in 0..CALLS {
            if !self.is_short() {
                break;
            }
            let scan = self.room.scan_recorded(BATCH);
            (steps, freed) = (steps + scan.steps(), freed + scan.freed);
        }
        (steps, freed)
    }
}

/// Numbers of which the first few are asked for most: the n-th with a weight of 1 / n^0.9.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Sums of the weights.
    sums: Vec<f64>,
    /// What the n-th most wanted is.
    order: Vec<usize>,
}

impl Zipf {
    const EXPONENT: f64 = 0.9;

    /// Of the numbers below `count`, in an order of the seed's.
    pub fn new(count: usize, random: &mut SplitMix64) -> Self {
        let mut sum = 0.0;
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let add = |rank: usize| {
            sum += (rank as f64).powf(-Self::EXPONENT);
            sum
        };
        Self {
            sums: (1..=count).map(add).collect(),
            order,
        }
    }

    pub fn next(&self, random: &mut SplitMix64) -> usize {
        let wanted = random.unit() * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|sum| *sum <= wanted);
        self.order.get(rank).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_read_once_and_cached_within_memory() {
        let shape = Shape {
            files: 3,
            leaves: 4,
            extents: 10,
            delayed: 5,
        };
        for policy in Policy::ALL {
            let volume = Volume::new(shape, policy, 60);
            for leaf in 0..shape.all_leaves() {
                assert!(!volume.read(leaf, 9));
                assert!((0..10).all(|extent| volume.read(leaf, extent)));
                volume.shrink();
                assert!(volume.room.count() <= 60, "{policy}");
            }
            let stats = volume.room.stats();
            assert_eq!(stats.es_stats_all_cnt - stats.es_stats_shk_cnt, 60);
        }
    }

    #[test]
    fn some_are_wanted_more_than_others() {
        let mut random = SplitMix64::new(1);
        let zipf = Zipf::new(1000, &mut random);
        let mut count = vec![0; 1000];
        (0..100_000).for_each(|_| count[zipf.next(&mut random)] += 1);
        let most = count[zipf.order[0]];
        // Of all weights, 1 to 1000, the first has 1 in 10.5.
        assert!((9_000..10_100).contains(&most), "{most}");
        assert!(count[zipf.order[99]] < most / 40);
    }
}

//! What orphans held. The next mount takes it back in bitmaps, counts and quotas when it deletes or
//! cuts them, so that it is no damage; the passes over quotas and bitmaps do the same, and whatever
//! else is wrong there is.

use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::Scratch;
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::{Geometry, Ino};

use crate::clusters::ClusterSet;
use crate::report::Cause;

/// Most bytes of nodes that are read for all orphans together: maps of a hundred million blocks.
const NODE_BYTES_MAX: u64 = 256 << 20;
/// Runs of clusters of which it is known whose they were.
const OWNERS_MAX: usize = 4096;

/// An inode that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldInode {
    pub ino: Ino,
    pub is_directory: bool,
}

/// What an owner does not use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldUse {
    pub kind: QuotaKind,
    pub owner: u32,
    pub bytes: u64,
    pub inodes: u64,
}

/// What orphans held, in no order. Their clusters are a set: hostile maps name the same blocks over
/// and over.
#[derive(Debug)]
pub struct Held {
    /// What the changes name as their cause; `None` if there were no orphans.
    pub cause: Option<Cause>,
    pub inodes: Vec<HeldInode>,
    pub used: Vec<HeldUse>,
    /// Bytes of nodes that may still be read.
    pub node_bytes: u64,
    /// `None` if they held none.
    clusters: Option<ClusterSet>,
    /// The first runs of clusters, and who held them.
    owners: Vec<(Range<u64>, Ino)>,
    scratch: Arc<Scratch>,
}

impl Default for Held {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl Held {
    /// Nothing yet. Clusters that `memory` has no room for are in a temporary file.
    pub fn new(memory: u64) -> Self {
        Self {
            cause: None,
            inodes: Vec::new(),
            used: Vec::new(),
            node_bytes: NODE_BYTES_MAX,
            clusters: None,
            owners: Vec::new(),
            scratch: Arc::new(Scratch::new(memory)),
        }
    }

    /// The set of their clusters, made if it is the first time that it is asked for.
    pub fn clusters_of(&mut self, geometry: &Geometry) -> &ClusterSet {
        let make = || ClusterSet::new(geometry, &self.scratch);
        self.clusters.get_or_insert_with(make)
    }

    /// The clusters that they held, if they held any.
    pub fn clusters(&self) -> Option<&ClusterSet> {
        self.clusters.as_ref()
    }

    /// Adds clusters of an orphan; returns how many of them orphans held before.
    pub fn add(&mut self, geometry: &Geometry, ino: Ino, clusters: Range<u64>) -> u64 {
        let mut again = 0;
        let count = |run: Range<u64>| again += run.end.saturating_sub(run.start);
        self.clusters_of(geometry).add(clusters.clone(), count);
        let room = OWNERS_MAX - self.owners.len();
        match self.owners.last_mut() {
            Some((last, owner)) if *owner == ino && last.end == clusters.start => {
                last.end = clusters.end;
            }
            _ if room != 0 => self.owners.push((clusters, ino)),
            _ => {}
        }
        again
    }

    /// Who held a cluster, and the end of the run that is known to be theirs.
    pub fn owner_of(&self, cluster: u64) -> Option<(Ino, u64)> {
        let mut owners = self.owners.iter();
        let found = owners.find(|(run, _)| run.contains(&cluster));
        found.map(|(run, ino)| (*ino, run.end))
    }
}

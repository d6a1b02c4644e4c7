//! What any design must do. The tests of `lab/policies` include this file and run it for the
//! designs there; a file that includes it has a function `designs` in addition to the module.

mod edges;
mod model;
pub mod shrink;
mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use uext4_extent_status::{Extent, ExtentStatusCache, Options, Shrinker, StatsMode, Status};
use uext4_ondisk::{Lblk, Pblk};

use super::designs;

/// A design, and what differs where the contract leaves it open.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    pub name: &'static str,
    pub make: fn(Merge) -> Arc<dyn Shrinker>,
    /// Extents lie in leaves: these go as a whole, and lookups take no lock.
    pub has_leaves: bool,
    /// Trees that hold nothing to drop may be on its list, and the first scan may only sort it.
    pub lists_idle_trees: bool,
}

/// Whether neighbours of one kind become one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    On,
    Off,
}

/// A design with its cache.
pub struct Subject {
    pub design: Design,
    pub shrinker: Arc<dyn Shrinker>,
    pub room: Arc<ExtentStatusCache>,
}

impl Subject {
    pub fn new(design: Design, merge: Merge) -> Self {
        let shrinker = (design.make)(merge);
        Self {
            design,
            room: room(Arc::clone(&shrinker)),
            shrinker,
        }
    }

    /// Bytes that are taken when all trees have gone.
    pub fn memory_without_trees(&self) -> usize {
        self.shrinker.memory() as usize
    }
}

/// A cache whose clock moves by a microsecond whenever it is read, and which counts all.
pub fn room(shrinker: Arc<dyn Shrinker>) -> Arc<ExtentStatusCache> {
    let reads = AtomicU64::new(0);
    let options = Options {
        stats: StatsMode::On,
        shrinker: Some(shrinker),
    };
    ExtentStatusCache::with_options(options, move || {
        Duration::from_micros(reads.fetch_add(1, Relaxed))
    })
}

/// Runs a test with each design.
fn with_each(test: impl Fn(&Subject)) {
    for design in designs() {
        test(&Subject::new(design, Merge::On));
    }
}

/// Runs a test in a cache of each design.
fn for_each_design(test: impl Fn(&Arc<ExtentStatusCache>)) {
    with_each(|subject| test(&subject.room));
}

pub fn extent(lblk: u32, len: u32, pblk: u64, status: Status) -> Extent {
    Extent {
        lblk: Lblk(lblk),
        len,
        pblk: Pblk(pblk),
        status,
    }
}

pub fn written(lblk: u32, len: u32, pblk: u64) -> Extent {
    extent(lblk, len, pblk, Status::Written)
}

pub fn delayed(lblk: u32, len: u32) -> Extent {
    extent(lblk, len, 0, Status::Delayed)
}

pub fn hole(lblk: u32, len: u32) -> Extent {
    extent(lblk, len, 0, Status::Hole)
}

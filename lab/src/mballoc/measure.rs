//! What is measured after a step.

use serde_json::{Value, json};
use uext4_lab_policies::mballoc::KernelStats;
use uext4_mballoc::Stats;

use crate::mballoc::disk::Counters;
use crate::mballoc::file::FileNr;
use crate::mballoc::free_space::{self, share};
use crate::mballoc::volume::Volume;

/// Bytes of an extent in a block of the extent tree, and of that block's header.
const EXTENT_BYTES: u64 = 12;

/// What an allocator and its designs count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// The allocator.
    pub stats: Stats,
    /// The kernel's searches, if it has one of them.
    pub kernel: KernelStats,
}

/// Where the counters stood before a step.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    allocator: Counted,
    disk: Counters,
}

impl Volume {
    /// Where the counters stand.
    pub fn before(&mut self) -> Before {
        Before {
            allocator: self.counted(),
            disk: self.disk.counters(),
        }
    }

    /// What its allocator and designs counted so far.
    pub fn counted(&self) -> Counted {
        Counted {
            stats: self.allocator.stats(),
            kernel: self.made.stats(),
        }
    }

    /// What a step did that made these files.
    pub fn measure(&mut self, before: &Before, files: &[FileNr]) -> Value {
        let disk = self.disk.counters();
        let runs = self.bitmaps.free_runs();
        let (blocks, bytes) = (self.geometry.blocks_count, self.setup.block_bytes);
        json!({
            "files": self.extents_of(files),
            "free": free_space::summary(&runs, blocks, bytes),
            "allocator": counters(&before.allocator, &self.counted()),
            "disk": {
                "time_ms": (disk.ns - before.disk.ns) as f64 / 1e6,
                "writes": disk.writes - before.disk.writes,
                "blocks_written": disk.written - before.disk.written,
                "read_modify_writes": disk.read_modify_writes - before.disk.read_modify_writes,
            },
        })
    }

    /// Extents and extent trees of files.
    fn extents_of(&self, files: &[FileNr]) -> Value {
        let per_block = self.setup.block_bytes / EXTENT_BYTES - 1;
        let found = files.iter().filter_map(|nr| self.files.get(nr));
        let mut extents: Vec<u64> = found.clone().map(|file| file.extents.len()).collect();
        extents.sort_unstable();
        let at = |part: f64| {
            let index = (extents.len() as f64 * part) as usize;
            extents.get(index).or(extents.last()).copied().unwrap_or(0)
        };
        let sum: u64 = extents.iter().sum();
        let leaves = found.map(|file| file.extents.tree_blocks(per_block));
        json!({
            "files": extents.len(),
            "extents": sum,
            "extents_mean": share(sum, extents.len() as u64),
            "extents_p50": at(0.50),
            "extents_p99": at(0.99),
            "leaf_blocks": leaves.sum::<u64>(),
        })
    }
}

/// A counter and its value.
type Named = (&'static str, u64);

/// The counters by name: those that add up, then those that are a maximum.
fn named(counted: &Counted) -> ([Named; 19], [Named; 2]) {
    let Counted { stats, kernel } = counted;
    let adding = [
        ("reqs", stats.reqs),
        ("success", stats.success),
        ("blocks_allocated", stats.allocated),
        ("shortened", stats.shortened),
        ("goal_hits", stats.goal_hits),
        ("len_goal_hits", stats.len_goal_hits),
        ("stream_goal_hits", stats.stream_goal_hits),
        ("pow2_hits", kernel.pow2_hits),
        ("groups_considered", stats.groups_considered),
        ("groups_scanned", stats.groups_scanned),
        ("extents_scanned", stats.extents_scanned),
        ("breaks", stats.breaks),
        ("lost", kernel.lost),
        ("buddies_generated", stats.buddies_generated),
        ("preallocated", stats.preallocated),
        ("discarded", stats.discarded),
        ("lock_acquired", stats.lock_acquired),
        ("lock_contended", stats.lock_contended),
        ("trylock_skipped", stats.trylock_skipped),
    ];
    let largest = [
        ("max_groups", stats.max_groups),
        ("max_extents", stats.max_extents),
    ];
    (adding, largest)
}

/// What the allocator did between two snapshots; maxima are those since it was made.
pub fn counters(before: &Counted, after: &Counted) -> Value {
    let (adding, largest) = named(after);
    let differences = adding
        .into_iter()
        .zip(named(before).0)
        .map(|((name, after), (_, before))| (name, after - before));
    report(differences.chain(largest))
}

/// What several allocators did.
pub fn sum(all: &[Counted]) -> Value {
    let (mut adding, mut largest) = named(&Counted::default());
    for counted in all {
        let (this, this_largest) = named(counted);
        adding
            .iter_mut()
            .zip(this)
            .for_each(|(sum, one)| sum.1 += one.1);
        let maxima = largest.iter_mut().zip(this_largest);
        maxima.for_each(|(most, one)| most.1 = most.1.max(one.1));
    }
    report(adding.into_iter().chain(largest))
}

fn report(counters: impl Iterator<Item = (&'static str, u64)>) -> Value {
    counters
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

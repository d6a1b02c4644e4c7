//! What is measured after a step.

use serde_json::{Value, json};
use uext4_mballoc::Stats;

use crate::mballoc::disk::Counters;
use crate::mballoc::file::FileNr;
use crate::mballoc::free_space::{self, share};
use crate::mballoc::volume::Volume;

/// Bytes of an extent in a block of the extent tree, and of that block's header.
const EXTENT_BYTES: u64 = 12;

/// Where the counters stood before a step.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    stats: Stats,
    disk: Counters,
}

impl Volume {
    /// Where the counters stand.
    pub fn before(&mut self) -> Before {
        Before {
            stats: self.allocator.stats(),
            disk: self.disk.counters(),
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
            "allocator": counters(&before.stats, &self.allocator.stats()),
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

/// What the allocator did between two snapshots.
pub fn counters(before: &Stats, after: &Stats) -> Value {
    json!({
        "reqs": after.reqs - before.reqs,
        "success": after.success - before.success,
        "blocks_allocated": after.allocated - before.allocated,
        "goal_hits": after.goal_hits - before.goal_hits,
        "groups_considered": after.groups_considered - before.groups_considered,
        "buddies_generated": after.buddies_generated - before.buddies_generated,
    })
}

//! Where the superblocks, descriptors, bitmaps and inode tables lie.

use std::ops::Range;

use uext4_mkfs::without_short_group;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::{Geometry, GroupNr};

use crate::Result;
use crate::state::State;

/// Clusters with metadata of groups, counted from the first block: runs that ascend and do not
/// touch.
#[derive(Debug, Default)]
pub struct Metadata {
    runs: Vec<Range<u64>>,
    /// The first block past the bitmaps and tables of the groups up to each.
    ends: Vec<u64>,
}

impl Metadata {
    /// That of the first `groups` groups, whose superblocks and descriptors lie as `geometry` says.
    ///
    /// # Errors
    /// Those of reading descriptors.
    pub fn of(state: &State, geometry: &Geometry, groups: u32) -> Result<Self> {
        let (first, bits) = (u64::from(geometry.first_data_block), geometry.cluster_bits);
        let mut runs = Vec::new();
        let mut ends = Vec::new();
        let mut end = 0;
        for group in (0..groups).map(GroupNr) {
            let desc = state.desc(group)?;
            let base = geometry.group_base_blocks(group).into();
            for (start, len) in [
                (geometry.group_start(group).0, base),
                (desc.block_bitmap.0, 1),
                (desc.inode_bitmap.0, 1),
                (desc.inode_table.0, u64::from(geometry.itable_blocks())),
            ] {
                let blocks = start.saturating_sub(first)..start.saturating_add(len) - first;
                if len > 0 {
                    runs.push(blocks.start >> bits..blocks.end.div_ceil(1 << bits));
                    end = end.max(blocks.end.saturating_add(first));
                }
            }
            ends.push(end);
        }
        runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for run in runs {
            match merged.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => merged.push(run),
            }
        }
        Ok(Self { runs: merged, ends })
    }

    /// Clusters from `from` up to `to`.
    pub fn count(&self, from: u64, to: u64) -> u64 {
        let part = |run: &Range<u64>| run.end.min(to).saturating_sub(run.start.max(from));
        self.runs.iter().map(part).sum()
    }

    /// Whether a cluster has metadata.
    pub fn holds(&self, cluster: u64) -> bool {
        let after = self.runs.partition_point(|run| run.start <= cluster);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        run.is_some_and(|run| run.contains(&cluster))
    }

    /// Clusters up to and with the one where so many are without metadata.
    fn with_others(&self, mut others: u64) -> u64 {
        let mut at = 0;
        for run in &self.runs {
            let gap = run.start - at;
            if others <= gap {
                return at + others;
            }
            others -= gap;
            at = run.end;
        }
        at + others
    }
}

/// The fewest blocks that hold what there is, where it may have to be moved. Files whose extent
/// trees become larger may need a few more.
///
/// # Errors
/// Those of reading descriptors.
pub fn least_blocks(state: &State) -> Result<u64> {
    let geometry = &state.geometry;
    let all = Metadata::of(state, geometry, geometry.groups_count.get())?;
    let (first, bits) = (u64::from(geometry.first_data_block), geometry.cluster_bits);
    let mut used = 0;
    let mut inodes = u64::from(geometry.inodes_count);
    for group in (0..geometry.groups_count.get()).map(GroupNr) {
        let desc = state.desc(group)?;
        let clusters = geometry.blocks_in_group(group).div_ceil(1 << bits);
        used += u64::from(clusters.saturating_sub(desc.free_clusters));
        inodes = inodes.saturating_sub(desc.free_inodes.into());
    }
    let others = used.saturating_sub(all.count(0, u64::MAX));
    let mut blocks = first + (all.with_others(others) << bits);
    let groups = inodes
        .div_ceil(geometry.inodes_per_group.get().into())
        .max(1);
    let per_group = u64::from(geometry.blocks_per_group.get());
    blocks = blocks.max(first + (groups - 1) * per_group + 1);
    // The block for multiple mount protection stays where it is.
    if geometry.features.incompat.contains(Incompat::MMP) {
        blocks = blocks.max(state.superblock.s_mmp_block.get().saturating_add(1));
    }
    Ok(with_metadata(geometry, &all, blocks))
}

/// As many blocks, or so many more that the groups that they reach have all of their metadata below
/// the end, and the last one is not too short. `all` is the metadata of all groups.
pub fn with_metadata(geometry: &Geometry, all: &Metadata, mut blocks: u64) -> u64 {
    let first = u64::from(geometry.first_data_block);
    let per_group = u64::from(geometry.blocks_per_group.get());
    // At most two steps a group, each of which makes it larger.
    loop {
        let groups = (blocks - first).div_ceil(per_group).max(1) as usize;
        let end = all.ends.get(groups - 1).copied().unwrap_or(0);
        let next = longer(geometry, blocks.max(end).min(geometry.blocks_count));
        if next == blocks {
            return blocks;
        }
        blocks = next;
    }
}

/// As many blocks in whole clusters, or so many more that the last group is not too short.
fn longer(geometry: &Geometry, blocks: u64) -> u64 {
    let ratio = 1 << geometry.cluster_bits;
    let mut blocks = blocks.next_multiple_of(ratio);
    let per_group = u64::from(geometry.blocks_per_group.get());
    let (mut low, mut high) = (0, per_group / ratio);
    if without_short_group(geometry, blocks) == blocks || blocks >= geometry.blocks_count {
        return blocks.min(geometry.blocks_count);
    }
    while low < high {
        let middle = (low + high) / 2;
        let more = blocks + middle * ratio;
        match without_short_group(geometry, more) == more {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    blocks += low * ratio;
    blocks.min(geometry.blocks_count)
}

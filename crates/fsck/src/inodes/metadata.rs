//! Claims the clusters of the file system itself.

use uext4_ondisk::features::Incompat;
use uext4_ondisk::{GroupNr, Pblk};

use crate::state::State;

/// Puts superblocks, descriptors, those reserved, bitmaps, inode tables and the block of multiple
/// mount protection into `metadata` and `used`.
pub fn claim(state: &State<'_>) {
    let geometry = state.geometry();
    let claim = |start: Pblk, len: u64| {
        let clusters = state.used.of_blocks(start, len);
        state.metadata.add(clusters.clone(), |_| ());
        clusters
    };
    for group in (0..geometry.groups_count.get()).map(GroupNr) {
        let base = geometry.group_base_blocks(group);
        let start = geometry.group_start(group);
        if base != 0 {
            let clusters = claim(start, base.into());
            state.used.add(clusters, |_| ());
        }
    }
    let table = geometry.itable_blocks();
    // Structures may share a cluster with each other: only what files claim later is a conflict.
    for desc in state.volume.groups() {
        let parts = [
            (desc.block_bitmap, 1),
            (desc.inode_bitmap, 1),
            (desc.inode_table, u64::from(table)),
        ];
        for (start, len) in parts {
            if geometry.contains(start, len) && start.0 != 0 {
                state.used.add(claim(start, len), |_| ());
            }
        }
    }
    if geometry.features.incompat.contains(Incompat::MMP) {
        let mmp = Pblk(state.volume.superblock().s_mmp_block.get());
        if geometry.contains(mmp, 1) {
            state.used.add(claim(mmp, 1), |_| ());
        }
    }
}

//! The bitmaps of one group, from the runs in use.

use uext4_ondisk::{Geometry, GroupNr};
use uext4_support::bits::{pad, set_range};

use crate::space::{Run, SpaceMap};

/// The block bitmap of a group: a whole block, bits past the group's end set.
pub(crate) fn block_bitmap(geometry: &Geometry, space: &SpaceMap, group: GroupNr) -> Vec<u8> {
    let mut bits = vec![0; geometry.block_size.len()];
    let start = geometry.group_start(group).0;
    let len = u64::from(geometry.blocks_in_group(group));
    let bit = |block: u64| ((block - start) >> geometry.cluster_bits) as u32;
    for run in space.runs_in(start..start + len) {
        let Run { start, .. } = run;
        let (first, last) = (bit(start), bit(run.end() - 1));
        set_range(&mut bits, first, last + 1 - first, true);
    }
    if len > 0 {
        pad(&mut bits, bit(start + len - 1) + 1);
    }
    bits
}

/// The inode bitmap of a group whose first `used` inodes are in use: a whole block, bits past the
/// group's inodes set.
pub(crate) fn inode_bitmap(geometry: &Geometry, used: u32) -> Vec<u8> {
    let mut bits = vec![0; geometry.block_size.len()];
    set_range(&mut bits, 0, used, true);
    pad(&mut bits, geometry.inodes_per_group.get());
    bits
}

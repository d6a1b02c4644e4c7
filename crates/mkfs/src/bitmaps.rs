//! The bitmaps of one group, from the runs in use.

use uext4_ondisk::{Geometry, GroupNr};

use crate::space::{Run, SpaceMap};

/// Sets bits `from..to`.
fn set_range(bits: &mut [u8], from: usize, to: usize) {
    let mut at = from;
    while at < to {
        if at.is_multiple_of(8) && to - at >= 8 {
            let whole = (to - at) / 8;
            bits[at / 8..at / 8 + whole].fill(0xFF);
            at += whole * 8;
        } else {
            bits[at / 8] |= 1 << (at % 8);
            at += 1;
        }
    }
}

/// The block bitmap of a group: a whole block, bits past the group's end set.
pub(crate) fn block_bitmap(geometry: &Geometry, space: &SpaceMap, group: GroupNr) -> Vec<u8> {
    let mut bits = vec![0; geometry.block_size.len()];
    let start = geometry.group_start(group).0;
    let len = u64::from(geometry.blocks_in_group(group));
    let bit = |block: u64| ((block - start) >> geometry.cluster_bits) as usize;
    for run in space.runs_in(start..start + len) {
        let Run { start, .. } = run;
        set_range(&mut bits, bit(start), bit(run.end() - 1) + 1);
    }
    let end = 8 * bits.len();
    if len > 0 {
        set_range(&mut bits, bit(start + len - 1) + 1, end);
    }
    bits
}

/// The inode bitmap of a group whose first `used` inodes are in use: a whole block, bits past the
/// group's inodes set.
pub(crate) fn inode_bitmap(geometry: &Geometry, used: u32) -> Vec<u8> {
    let mut bits = vec![0; geometry.block_size.len()];
    let end = 8 * bits.len();
    set_range(&mut bits, 0, used as usize);
    set_range(&mut bits, geometry.inodes_per_group.get() as usize, end);
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits() {
        for (from, to) in [(0, 0), (0, 8), (3, 5), (3, 21), (8, 31), (0, 64), (63, 64)] {
            let mut bits = [0u8; 8];
            set_range(&mut bits, from, to);
            for i in 0..64 {
                let set = bits[i / 8] >> (i % 8) & 1 == 1;
                assert_eq!(set, (from..to).contains(&i), "{from}..{to} at {i}");
            }
        }
    }
}

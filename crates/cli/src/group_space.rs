//! Free space of one group, as the block allocator sees it.

use uext4::format::GroupNr;
use uext4::{Image, Result};

/// The contents of a group's bitmap, in blocks, or in clusters with bigalloc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSpace {
    /// Free.
    pub free: u32,
    /// Free runs.
    pub fragments: u32,
    /// The first free one; the group's size if there is none.
    pub first: u32,
    /// The longest free run.
    pub largest: u32,
    /// Free chunks of each order: aligned, and as large as they can be.
    pub counters: Vec<u32>,
    /// Free as the descriptor says.
    pub descriptor: u32,
}

/// Largest order the allocator tracks: a quarter of a full group.
pub fn order_max(fs: &Image) -> u32 {
    let geometry = fs.geometry();
    (geometry.block_size.log2() + 1).min(geometry.blocks_per_group.get().ilog2())
}

impl GroupSpace {
    /// Reads a group's bitmap and descriptor.
    ///
    /// # Errors
    /// Damage of either, device errors.
    pub fn read(fs: &Image, group: GroupNr) -> Result<Self> {
        let geometry = fs.geometry();
        let units = geometry
            .blocks_in_group(group)
            .div_ceil(1 << geometry.cluster_bits);
        let bitmap = fs.block_bitmap(group)?;
        let mut space = Self::of(&bitmap, units, order_max(fs));
        space.descriptor = fs.group_desc(group)?.free_clusters;
        Ok(space)
    }

    /// Of a bitmap of `units` bits, set where in use.
    fn of(bitmap: &[u8], units: u32, order_max: u32) -> Self {
        let mut space = Self {
            first: units,
            counters: vec![0; order_max as usize + 1],
            ..Self::default()
        };
        let is_used = |at: u32| {
            let byte = bitmap.get((at / 8) as usize);
            at >= units || byte.is_none_or(|byte| byte >> (at % 8) & 1 != 0)
        };
        let mut at = 0;
        while at < units {
            if at % 8 == 0 && bitmap.get((at / 8) as usize) == Some(&0xFF) {
                at += 8;
                continue;
            }
            if is_used(at) {
                at += 1;
                continue;
            }
            let start = at;
            while !is_used(at) {
                at += 1;
            }
            space.add(start, at, order_max);
        }
        space
    }

    fn add(&mut self, start: u32, end: u32, order_max: u32) {
        let len = end - start;
        self.free += len;
        self.fragments += 1;
        self.first = self.first.min(start);
        self.largest = self.largest.max(len);
        let mut at = start;
        while at < end {
            let order = at.trailing_zeros().min((end - at).ilog2()).min(order_max);
            self.counters[order as usize] += 1;
            at += 1 << order;
        }
    }

    /// Order of the largest free chunk; `None` if nothing is free.
    pub fn largest_order(&self) -> Option<usize> {
        self.counters.iter().rposition(|&count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_into_aligned_chunks() {
        // Free: 3..8, 16..29 of 29.
        let space = GroupSpace::of(&[0b111, 0xFF, 0, 0], 29, 4);
        assert_eq!((space.free, space.fragments), (18, 2));
        assert_eq!((space.first, space.largest), (3, 13));
        // 3, 4..8, 16..24, 24..28, 28.
        assert_eq!(space.counters, [2, 0, 2, 1, 0]);
        assert_eq!(space.largest_order(), Some(3));
        let full = GroupSpace::of(&[0xFF; 4], 32, 4);
        assert_eq!((full.first, full.largest_order()), (32, None));
    }
}

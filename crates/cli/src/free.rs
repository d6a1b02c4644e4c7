//! Free space, as the block bitmaps have it: runs of free clusters and their lengths.

use uext4::{Error, Image};
use uext4_ondisk::GroupNr;

/// Buckets of the histogram: run lengths in clusters from 2ⁿ to 2ⁿ⁺¹ - 1.
const BUCKETS: usize = 48;

/// Runs of free clusters, counted by length. Runs go on over the border of groups.
#[derive(Debug)]
pub struct FreeSpace {
    /// Free clusters.
    pub free: u64,
    /// Runs of free clusters.
    pub runs: u64,
    /// Shortest run in clusters; `u64::MAX` if there is none.
    pub min: u64,
    /// Longest run in clusters.
    pub max: u64,
    /// Runs and clusters by binary logarithm of the run's length.
    pub buckets: [(u64, u64); BUCKETS],
    open: u64,
}

impl FreeSpace {
    /// Reads all bitmaps. Groups that cannot be read go to `failed` and count as used.
    pub fn read(fs: &Image, mut failed: impl FnMut(GroupNr, &Error)) -> Self {
        let mut space = Self::none();
        for group in 0..fs.geometry().groups_count.get() {
            let group = GroupNr(group);
            match fs.block_bitmap(group) {
                Ok(bitmap) => space.scan(&bitmap, clusters_in_group(fs, group)),
                Err(error) => {
                    space.end_run();
                    failed(group, &error);
                    // No descriptor, and all that follow lie farther beyond the end.
                    if fs
                        .group_desc(group)
                        .is_err_and(|error| error.is_beyond_end())
                    {
                        break;
                    }
                }
            }
        }
        space.end_run();
        space
    }

    fn none() -> Self {
        Self {
            free: 0,
            runs: 0,
            min: u64::MAX,
            max: 0,
            buckets: [(0, 0); BUCKETS],
            open: 0,
        }
    }

    /// Takes in one bitmap of `clusters` bits; a set bit is a cluster in use.
    fn scan(&mut self, bitmap: &[u8], clusters: u32) {
        let mut left = u64::from(clusters);
        for bytes in bitmap.chunks(8) {
            let mut padded = [0xFF; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            let mut word = u64::from_le_bytes(padded);
            let mut bits = left.min(64);
            left -= bits;
            // Runs of equal bits, lowest first.
            while bits > 0 {
                let zeroes = u64::from(word.trailing_zeros()).min(bits);
                self.open += zeroes;
                bits -= zeroes;
                word = word.checked_shr(zeroes as u32).unwrap_or(0);
                if bits == 0 {
                    break;
                }
                self.end_run();
                let ones = u64::from(word.trailing_ones()).min(bits);
                bits -= ones;
                word = word.checked_shr(ones as u32).unwrap_or(0);
            }
        }
    }

    fn end_run(&mut self) {
        let len = std::mem::take(&mut self.open);
        if len == 0 {
            return;
        }
        self.free += len;
        self.runs += 1;
        self.min = self.min.min(len);
        self.max = self.max.max(len);
        let bucket = &mut self.buckets[(len.ilog2() as usize).min(BUCKETS - 1)];
        bucket.0 += 1;
        bucket.1 += len;
    }
}

fn clusters_in_group(fs: &Image, group: GroupNr) -> u32 {
    let geometry = fs.geometry();
    geometry
        .blocks_in_group(group)
        .div_ceil(1 << geometry.cluster_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_on_over_words_and_groups() {
        let mut space = FreeSpace::none();
        // Bits 4..80 free, then 81..128 free and on through the next group's first 3.
        let mut bitmap = [0; 16];
        bitmap[0] = 0x0F;
        bitmap[10] = 0x01;
        space.scan(&bitmap, 128);
        space.scan(&[0b1000], 5);
        space.end_run();
        assert_eq!((space.runs, space.free), (3, 76 + 50 + 1));
        assert_eq!((space.min, space.max), (1, 76));
        assert_eq!(space.buckets[6], (1, 76));
        assert_eq!(space.buckets[5], (1, 50));
        assert_eq!(space.buckets[0], (1, 1));
    }

    #[test]
    fn full_and_empty_words() {
        let mut space = FreeSpace::none();
        space.scan(&[0xFF; 16], 128);
        space.scan(&[0; 16], 128);
        space.end_run();
        assert_eq!((space.runs, space.free, space.max), (1, 128, 128));
    }
}

//! Where a file's blocks are: extents that merge and split as ext4's do.

use std::collections::BTreeMap;

/// Blocks of the longest extent that is written (`EXT_INIT_MAX_LEN`).
pub const WRITTEN_MAX: u32 = 32768;
/// Blocks of the longest extent that is not (`EXT_UNWRITTEN_MAX_LEN`).
pub const UNWRITTEN_MAX: u32 = 32767;
/// Extents that fit into an inode.
const IN_INODE: u64 = 4;

/// Adjacent blocks of a file that are adjacent on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many.
    pub len: u32,
    /// The first one's place.
    pub pblk: u64,
    /// Nothing was written to them yet.
    pub unwritten: bool,
}

/// The extents of one file by their first block in it.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    map: BTreeMap<u32, Extent>,
}

impl Extents {
    /// How many.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Blocks of the extent tree outside the inode, with `per_block` entries a block.
    pub fn tree_blocks(&self, per_block: u64) -> u64 {
        let mut level = self.len();
        let mut blocks = 0;
        while level > IN_INODE {
            level = level.div_ceil(per_block);
            blocks += level;
        }
        blocks
    }

    /// All, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Extent)> + '_ {
        self.map.iter().map(|(&lblk, &extent)| (lblk, extent))
    }

    /// The extent with block `lblk`.
    pub fn at(&self, lblk: u32) -> Option<(u32, Extent)> {
        self.before(lblk.saturating_add(1))
            .filter(|(start, extent)| lblk - start < extent.len)
    }

    /// The last extent that starts before `lblk`.
    pub fn before(&self, lblk: u32) -> Option<(u32, Extent)> {
        let found = self.map.range(..lblk).next_back();
        found.map(|(&lblk, &extent)| (lblk, extent))
    }

    /// The first extent that starts at or after `lblk`.
    pub fn after(&self, lblk: u32) -> Option<(u32, Extent)> {
        let found = self.map.range(lblk..).next();
        found.map(|(&lblk, &extent)| (lblk, extent))
    }

    /// Maps blocks that are a hole.
    pub fn insert(&mut self, mut lblk: u32, mut extent: Extent) {
        let most = match extent.unwritten {
            true => UNWRITTEN_MAX,
            false => WRITTEN_MAX,
        };
        if let Some((start, left)) = self.before(lblk)
            && start + left.len == lblk
            && left.pblk + u64::from(left.len) == extent.pblk
            && left.unwritten == extent.unwritten
            && left.len + extent.len <= most
        {
            lblk = start;
            extent.pblk = left.pblk;
            extent.len += left.len;
        }
        let end = lblk + extent.len;
        if let Some(&right) = self.map.get(&end)
            && extent.pblk + u64::from(extent.len) == right.pblk
            && right.unwritten == extent.unwritten
            && right.len + extent.len <= most
        {
            self.map.remove(&end);
            extent.len += right.len;
        }
        self.map.insert(lblk, extent);
    }

    /// Unmaps `start..end`; what was there, as first block in the file and extent.
    pub fn remove(&mut self, start: u32, end: u32) -> Vec<(u32, Extent)> {
        let mut removed = Vec::new();
        let mut at = start;
        while let Some((lblk, extent)) = self.at(at).or_else(|| self.after(at)) {
            if lblk >= end {
                break;
            }
            let from = lblk.max(start);
            let upto = (lblk + extent.len).min(end);
            self.map.remove(&lblk);
            let part = |a: u32, b: u32| Extent {
                len: b - a,
                pblk: extent.pblk + u64::from(a - lblk),
                ..extent
            };
            for (a, b) in [(lblk, from), (upto, lblk + extent.len)] {
                if a < b {
                    self.map.insert(a, part(a, b));
                }
            }
            removed.push((from, part(from, upto)));
            at = upto;
        }
        removed
    }

    /// `start..end`, mapped, is written now.
    pub fn write(&mut self, start: u32, end: u32) {
        let unwritten = |e: &Extent| e.unwritten;
        let mut at = start;
        while at < end {
            let Some((lblk, extent)) = self.at(at) else {
                return;
            };
            let upto = (lblk + extent.len).min(end);
            if unwritten(&extent) {
                for (lblk, extent) in self.remove(at, upto) {
                    let unwritten = false;
                    self.insert(
                        lblk,
                        Extent {
                            unwritten,
                            ..extent
                        },
                    );
                }
            }
            at = upto;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(pblk: u64, len: u32, unwritten: bool) -> Extent {
        Extent {
            len,
            pblk,
            unwritten,
        }
    }

    #[test]
    fn neighbours_merge_up_to_the_longest_extent() {
        let mut extents = Extents::default();
        extents.insert(0, extent(1000, 16384, false));
        extents.insert(20000, extent(21000, 100, false));
        extents.insert(16384, extent(17384, 3616, false));
        assert_eq!(extents.len(), 1);
        extents.insert(20100, extent(21100, 20000, false));
        assert_eq!(extents.len(), 2);
        let mut unwritten = Extents::default();
        unwritten.insert(0, extent(0, 16384, true));
        unwritten.insert(16384, extent(16384, 16384, true));
        assert_eq!(unwritten.len(), 2);
        unwritten.write(0, 32768);
        assert_eq!(unwritten.len(), 1);
        // Windows of 8 MiB join: fifteen of them.
        let mut windows = Extents::default();
        (0..32).for_each(|i| windows.insert(i * 2048, extent(u64::from(i) * 2048, 2048, true)));
        assert_eq!(windows.len(), 3);
    }

    #[test]
    fn a_removal_from_the_middle_splits() {
        let mut extents = Extents::default();
        extents.insert(10, extent(100, 20, true));
        extents.insert(40, extent(500, 5, false));
        extents.write(15, 17);
        assert_eq!(extents.len(), 4);
        let removed = extents.remove(16, 42);
        let gone: u32 = removed.iter().map(|(_, e)| e.len).sum();
        assert_eq!(gone, 14 + 2);
        let left: Vec<_> = extents.iter().collect();
        assert_eq!(
            left,
            [
                (10, extent(100, 5, true)),
                (15, extent(105, 1, false)),
                (42, extent(502, 3, false)),
            ]
        );
    }

    #[test]
    fn trees_grow_by_level() {
        let mut extents = Extents::default();
        for i in 0..4 {
            extents.insert(i * 2, extent(u64::from(i) * 10, 1, false));
        }
        assert_eq!(extents.tree_blocks(340), 0);
        for i in 4..341 {
            extents.insert(i * 2, extent(u64::from(i) * 10, 1, false));
        }
        assert_eq!(extents.tree_blocks(340), 2);
        assert_eq!(extents.tree_blocks(40), 9 + 1);
    }
}

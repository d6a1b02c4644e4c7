//! Bitmaps in memory.

use std::fmt;

use parking_lot::Mutex;
use uext4_mballoc::{GroupBitmaps, Request, Run};
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Pblk};

/// One `Vec<u8>` a group, bit set = used.
pub struct Bitmaps {
    pub geometry: Geometry,
    pub groups: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug)]
pub struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}
impl std::error::Error for Refused {}

/// A file system of 1 KiB blocks and groups of `per_group` blocks.
pub fn geometry(blocks: u32, per_group: u32) -> Geometry {
    let mut sb = SuperBlock::zeroed();
    let groups = (blocks - 1).div_ceil(per_group);
    sb.s_magic = EXT4_SUPER_MAGIC.into();
    sb.s_rev_level = 1.into();
    sb.s_first_ino = 11.into();
    sb.s_inode_size = 128.into();
    sb.s_first_data_block = 1.into();
    sb.s_blocks_count_lo = blocks.into();
    sb.s_blocks_per_group = per_group.into();
    sb.s_clusters_per_group = per_group.into();
    sb.s_inodes_per_group = 16.into();
    sb.s_inodes_count = (16 * groups).into();
    Geometry::new(&sb).unwrap()
}

impl Bitmaps {
    pub fn new(blocks: u32, per_group: u32) -> Self {
        let geometry = geometry(blocks, per_group);
        let groups = geometry.groups_count.get() as usize;
        Self {
            groups: Mutex::new(vec![vec![0; per_group.div_ceil(8) as usize]; groups]),
            geometry,
        }
    }

    pub fn is_used(&self, block: u64) -> bool {
        let (group, offset) = self.geometry.group_of(Pblk(block)).unwrap();
        let groups = self.groups.lock();
        groups[group.0 as usize][(offset / 8) as usize] >> (offset % 8) & 1 != 0
    }

    pub fn free(&self) -> u64 {
        let all = 1..self.geometry.blocks_count;
        all.filter(|&b| !self.is_used(b)).count() as u64
    }

    fn change(&self, group: GroupNr, start: u32, len: u32, used: bool) -> Result<(), Refused> {
        assert!(start + len <= self.geometry.blocks_in_group(group));
        let mut groups = self.groups.lock();
        let bitmap = &mut groups[group.0 as usize];
        for bit in start..start + len {
            let byte = &mut bitmap[(bit / 8) as usize];
            let mask = 1 << (bit % 8);
            assert_eq!(
                *byte & mask == 0,
                used,
                "block {bit} of group {group} marked twice"
            );
            *byte ^= mask;
        }
        Ok(())
    }
}

impl GroupBitmaps for Bitmaps {
    type Error = Refused;

    fn free_blocks(&self, group: GroupNr) -> Result<u32, Refused> {
        let blocks = self.geometry.blocks_in_group(group);
        let start = self.geometry.group_start(group).0;
        Ok((0..blocks)
            .filter(|&b| !self.is_used(start + u64::from(b)))
            .count() as u32)
    }

    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<(), Refused> {
        bitmap.copy_from_slice(&self.groups.lock()[group.0 as usize]);
        Ok(())
    }

    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        self.change(group, start, len, true)
    }

    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<(), Refused> {
        self.change(group, start, len, false)
    }
}

/// So many blocks from `start` on.
pub fn run(start: u64, len: u32) -> Run {
    Run {
        start: Pblk(start),
        len,
    }
}

/// For up to `len` blocks, any of which will do.
pub fn request(goal: u64, len: u32) -> Request {
    Request {
        goal: Pblk(goal),
        len,
        min_len: 1,
        next_fit: false,
    }
}

//! Free blocks and inodes, of what stays.

use uext4_ondisk::group_desc::BG_INODE_UNINIT;
use uext4_ondisk::{GroupNr, Ino, Pblk};
use uext4_support::bits;

use crate::batch::Batch;
use crate::bitmap::Bitmap;
use crate::{Error, Result};

/// Groups that are looked at for one whole run.
const GROUPS_FOR_A_RUN: u32 = 16;

/// Neighbouring free clusters.
#[derive(Clone, Copy, Debug)]
pub struct FreeRun {
    /// Their first block.
    pub start: Pblk,
    /// Clusters.
    pub clusters: u32,
}

/// A run within a group, in clusters.
#[derive(Clone, Copy)]
struct Found {
    group: GroupNr,
    first: u32,
    len: u32,
}

impl Batch<'_> {
    /// Takes up to `want` neighbouring clusters of those that stay.
    ///
    /// # Errors
    /// [`Error::Full`]; those of reading bitmaps.
    pub fn allocate(&mut self, want: u32) -> Result<FreeRun> {
        let groups = self.limit_groups();
        let mut best: Option<Found> = None;
        let mut looked = 0;
        for step in 0..groups {
            let group = GroupNr((self.next_group.0 + step) % groups);
            if self.desc(group)?.free_clusters == 0 {
                continue;
            }
            let found = self.longest(group, want)?;
            if found.len > best.map_or(0, |best| best.len) {
                best = Some(found);
            }
            looked += 1;
            let is_enough = best.is_some_and(|best| best.len >= want);
            if is_enough || (looked >= GROUPS_FOR_A_RUN && best.is_some()) {
                break;
            }
        }
        let Found { group, first, len } = best.ok_or(Error::Full)?;
        self.next_group = group;
        let len = len.min(want);
        self.set_clusters(group, first, len, true)?;
        let ratio = u64::from(first) << self.geometry().cluster_bits;
        Ok(FreeRun {
            start: Pblk(self.geometry().group_start(group).0 + ratio),
            clusters: len,
        })
    }

    /// Groups that stay, the last one perhaps in part.
    fn limit_groups(&self) -> u32 {
        let geometry = self.geometry();
        let blocks = self.limit.0 - u64::from(geometry.first_data_block);
        blocks.div_ceil(geometry.blocks_per_group.get().into()) as u32
    }

    /// The first run of `want` free clusters in what stays of a group, or the longest.
    fn longest(&mut self, group: GroupNr, want: u32) -> Result<Found> {
        let geometry = self.geometry();
        let stays = self.limit.0 - geometry.group_start(group).0;
        let stays = (stays >> geometry.cluster_bits).min(u32::MAX.into()) as u32;
        let in_group = geometry.blocks_in_group(group) >> geometry.cluster_bits;
        let end = in_group.min(stays);
        let held = &self.bitmap(group)?.held;
        let mut best = Found {
            group,
            first: 0,
            len: 0,
        };
        let mut at = 0;
        while let Some(first) = bits::next_zero(held, at, end) {
            let mut to = first + 1;
            while to < end && to - first < want && !bits::get(held, to) {
                to += 1;
            }
            if to - first > best.len {
                best.first = first;
                best.len = to - first;
                if best.len >= want {
                    break;
                }
            }
            at = to + 1;
        }
        Ok(best)
    }

    /// Gives clusters back, from the one that holds `block` on.
    ///
    /// # Errors
    /// [`Error::Unsound`] if one of them is free; those of reading bitmaps.
    pub fn free(&mut self, block: Pblk, clusters: u32) -> Result<()> {
        let bits = self.geometry().cluster_bits;
        let per_group = self.geometry().clusters_per_group.get();
        let Some((group, offset)) = self.geometry().group_of(block) else {
            let what = "a file has a block outside the file system";
            return Err(Error::Unsound { what });
        };
        let first = offset >> bits;
        let here = clusters.min(per_group - first);
        let in_group = self.geometry().blocks_in_group(group).div_ceil(1 << bits);
        if first + here > in_group {
            let what = "a file has a block outside the file system";
            return Err(Error::Unsound { what });
        }
        let bitmap = self.bitmap(group)?;
        if !bits::all_are(&bitmap.bytes, first, here, true) {
            let what = "a block in use is marked as free, or used twice";
            return Err(Error::Unsound { what });
        }
        self.set_clusters(group, first, here, false)?;
        match clusters - here {
            0 => Ok(()),
            left => self.free(Pblk(block.0 + (u64::from(here) << bits)), left),
        }
    }

    fn set_clusters(&mut self, group: GroupNr, first: u32, len: u32, used: bool) -> Result<()> {
        self.bitmap(group)?.set(first, len, used);
        let count = |now: u64, len: u64| match used {
            true => now.saturating_sub(len),
            false => now.saturating_add(len),
        };
        let desc = self.desc_mut(group)?;
        desc.free_clusters = count(desc.free_clusters.into(), len.into()) as u32;
        let blocks = u64::from(len) << self.geometry().cluster_bits;
        let free = count(self.superblock.free_blocks_count(), blocks);
        self.superblock.set_free_blocks_count(free);
        Ok(())
    }

    fn bitmap(&mut self, group: GroupNr) -> Result<&mut Bitmap> {
        if !self.bitmaps.contains_key(&group) {
            let bytes = self.state.image.block_bitmap(group)?;
            self.bitmaps.insert(group, Bitmap::new(bytes.to_vec()));
        }
        self.bitmaps.get_mut(&group).ok_or(Error::Full)
    }

    fn inode_bitmap(&mut self, group: GroupNr) -> Result<&mut Bitmap> {
        if !self.inode_bitmaps.contains_key(&group) {
            let bytes = self.state.image.inode_bitmap(group)?;
            self.inode_bitmaps
                .insert(group, Bitmap::new(bytes.to_vec()));
        }
        self.inode_bitmaps.get_mut(&group).ok_or(Error::Full)
    }

    /// Takes a free inode of those that stay.
    ///
    /// # Errors
    /// [`Error::Full`]; those of reading bitmaps.
    pub fn allocate_inode(&mut self, is_dir: bool) -> Result<Ino> {
        let per_group = self.geometry().inodes_per_group.get();
        let groups = self.inodes / per_group;
        for step in 0..groups {
            let group = GroupNr((self.next_inode_group.0 + step) % groups);
            if self.desc(group)?.free_inodes == 0 {
                continue;
            }
            let reserved = match group {
                GroupNr(0) => self.geometry().first_ino.saturating_sub(1),
                _ => 0,
            };
            let held = &self.inode_bitmap(group)?.held;
            let Some(index) = bits::next_zero(held, reserved, per_group) else {
                continue;
            };
            self.next_inode_group = group;
            self.set_inode(group, index, is_dir, true)?;
            return Ok(Ino(group.0 * per_group + index + 1));
        }
        Err(Error::Full)
    }

    /// Gives an inode back.
    ///
    /// # Errors
    /// Those of reading bitmaps.
    pub fn free_inode(&mut self, ino: Ino, is_dir: bool) -> Result<()> {
        match self.geometry().inode_group(ino) {
            Some((group, index)) => self.set_inode(group, index, is_dir, false),
            None => Ok(()),
        }
    }

    fn set_inode(&mut self, group: GroupNr, index: u32, is_dir: bool, used: bool) -> Result<()> {
        let per_group = self.geometry().inodes_per_group.get();
        let has_uninit = self.has_uninit();
        self.inode_bitmap(group)?.set(index, 1, used);
        let dirs = u32::from(is_dir);
        let desc = self.desc_mut(group)?;
        if used {
            desc.used_dirs = desc.used_dirs.saturating_add(dirs);
            desc.free_inodes = desc.free_inodes.saturating_sub(1);
            if has_uninit {
                desc.flags &= !BG_INODE_UNINIT;
                desc.itable_unused = desc.itable_unused.min(per_group - index - 1);
            }
        } else {
            desc.used_dirs = desc.used_dirs.saturating_sub(dirs);
            desc.free_inodes = desc.free_inodes.saturating_add(1);
        }
        let free = self.superblock.s_free_inodes_count.get();
        let free = match used {
            true => free.saturating_sub(1),
            false => free.saturating_add(1),
        };
        self.superblock.s_free_inodes_count = free.into();
        Ok(())
    }
}

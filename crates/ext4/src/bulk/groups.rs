//! Descriptors and bitmaps while a file system is filled: counts in memory, bitmaps in the cache.
//!
//! Nothing here reaches the device before [`Groups::store`]. What the descriptors call uninitialised
//! is made up on first use, as the kernel does.

use std::cell::RefCell;
use std::sync::Arc;

use uext4_buffer_cache::Buffer;
use uext4_mballoc::GroupBitmaps;
use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, DescChecksum, GroupDesc, bitmap_checksum,
};
use uext4_ondisk::{Damage, Geometry, GroupNr, Ino, Pblk};

use crate::bitmap::{fresh_block_bitmap, is_uninit};
use crate::error::{Error, Result};
use crate::ialloc::{FlexStats, Parent, Population, flex_stats, total};
use crate::sbi::{Kind, Sbi, tag};

/// An inode just taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewIno {
    pub(super) ino: Ino,
    pub(super) group: GroupNr,
}

/// The state of one group that is not on disk.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// All inodes of the group before this index are in use.
    next_inode: u32,
    blocks_changed: bool,
    inodes_changed: bool,
}

#[derive(Debug)]
struct State {
    descs: Vec<GroupDesc>,
    memory: Vec<Memory>,
    flex: Vec<FlexStats>,
    /// Of all flex groups.
    total: FlexStats,
}

/// All groups of the file system.
#[derive(Debug)]
pub(super) struct Groups {
    sbi: Arc<Sbi>,
    state: RefCell<State>,
}

impl Groups {
    /// Reads all descriptors.
    ///
    /// # Errors
    /// Damage of the descriptors, device errors.
    pub(super) fn open(sbi: &Arc<Sbi>) -> Result<Self> {
        let geometry = sbi.geometry();
        let groups = geometry.groups_count.get();
        let mut descs = Vec::with_capacity(groups as usize);
        for group in (0..groups).map(GroupNr) {
            let desc = sbi.group_desc(group)?;
            check_places(geometry, group, &desc)?;
            descs.push(desc);
        }
        let flex = flex_stats(geometry, &descs);
        let state = State {
            memory: vec![Memory::default(); descs.len()],
            total: total(&flex),
            flex,
            descs,
        };
        Ok(Self {
            sbi: Arc::clone(sbi),
            state: RefCell::new(state),
        })
    }

    /// Free inodes in all groups.
    pub(super) fn free_inodes(&self) -> u64 {
        self.state.borrow().total.free_inodes
    }

    /// First block of the group's inode table.
    pub(super) fn inode_table(&self, group: GroupNr) -> Pblk {
        self.state.borrow().descs[group.0 as usize].inode_table
    }

    /// Takes an inode for a directory (with a hash of its name) or for anything else.
    ///
    /// # Errors
    /// [`Error::NoInodes`], damage of the bitmap, device errors.
    pub(super) fn take_inode(&self, parent: Parent, directory: Option<u32>) -> Result<NewIno> {
        let geometry = self.sbi.geometry();
        let group = {
            let state = self.state.borrow();
            let population = Population {
                geometry,
                groups: &state.descs,
                flex: &state.flex,
                total: state.total,
            };
            match directory {
                Some(hash) => population.for_directory(parent, hash),
                None => population.for_other(parent),
            }
        };
        let count = geometry.inodes_count;
        self.take_inode_in(group.ok_or(Error::NoInodes { count })?, directory.is_some())
    }

    /// Takes the first free inode of a group whose descriptor says that there is one.
    fn take_inode_in(&self, group: GroupNr, directory: bool) -> Result<NewIno> {
        let geometry = self.sbi.geometry();
        let per_group = geometry.inodes_per_group.get();
        let per_block = (geometry.block_size.bytes() / u32::from(geometry.inode_size)).max(1);
        let bitmap = self.inode_bitmap(group)?;
        let state = &mut *self.state.borrow_mut();
        let memory = &mut state.memory[group.0 as usize];
        let desc = &mut state.descs[group.0 as usize];
        let flex = group
            .0
            .checked_shr(geometry.log_groups_per_flex.into())
            .unwrap_or(0);
        let flex = &mut state.flex[flex as usize];
        let reserved = if group.0 == 0 {
            geometry.first_ino - 1
        } else {
            0
        };
        let from = memory.next_inode.max(reserved);
        let taken = bitmap.modify(|bytes| {
            let index = next_zero(bytes, from, per_group)?;
            let first = index - index % per_block;
            let fresh = (first..(first + per_block).min(per_group)).all(|i| !get(bytes, i));
            set_range(bytes, index, 1, true);
            Some((index, fresh))
        });
        memory.inodes_changed = true;
        let Some((index, fresh_block)) = taken else {
            return Err(Error::Corrupt(Damage::BitmapCount {
                group,
                what: "inode bitmap",
                bitmap: 0,
                descriptor: desc.free_inodes,
            }));
        };
        memory.next_inode = index + 1;
        desc.free_inodes -= 1;
        desc.used_dirs += u32::from(directory);
        for stats in [flex, &mut state.total] {
            stats.free_inodes -= 1;
            stats.used_dirs += u64::from(directory);
        }
        if geometry.desc_checksum != DescChecksum::None {
            desc.itable_unused = desc.itable_unused.min(per_group - (index + 1));
        }
        if fresh_block {
            // What lies there need not be read. Now, for the inodes of its attributes may follow it
            // into that block before it is written itself.
            let block = desc.inode_table.0 + u64::from(index / per_block);
            self.sbi.cache().getblk_zeroed(Pblk(block));
        }
        Ok(NewIno {
            ino: Ino(group.0 * per_group + index + 1),
            group,
        })
    }

    /// The group's inode bitmap, made if there is none yet.
    fn inode_bitmap(&self, group: GroupNr) -> Result<Buffer> {
        let state = &mut *self.state.borrow_mut();
        let desc = &mut state.descs[group.0 as usize];
        let memory = &mut state.memory[group.0 as usize];
        let inodes = self.sbi.geometry().inodes_per_group.get();
        if is_uninit(&self.sbi, desc, BG_INODE_UNINIT) {
            desc.flags &= !BG_INODE_UNINIT;
            memory.inodes_changed = true;
            let buffer = self.sbi.cache().getblk_zeroed(desc.inode_bitmap);
            buffer.modify(|bytes| pad(bytes, inodes));
            return Ok(buffer);
        }
        self.bitmap(
            "inode bitmap",
            group,
            desc.inode_bitmap,
            (
                inodes,
                (!memory.inodes_changed).then_some(desc.inode_bitmap_csum),
            ),
        )
    }

    /// Reads a bitmap whose checksum, if it is still good, is over `bits` bits.
    fn bitmap(
        &self,
        what: &'static str,
        group: GroupNr,
        block: Pblk,
        (bits, stored): (u32, Option<u32>),
    ) -> Result<Buffer> {
        let geometry = self.sbi.geometry();
        self.sbi.bread(what, block, tag(Kind::Bitmap), |bytes| {
            let (Some(seed), Some(stored)) = (geometry.csum_seed, stored) else {
                return Ok(());
            };
            let summed = bytes.get(..(bits / 8) as usize).unwrap_or(bytes);
            let computed = bitmap_checksum(seed, summed, geometry.desc_size.into());
            if stored == computed {
                return Ok(());
            }
            Err(Damage::BitmapChecksum {
                group,
                what,
                stored,
                computed,
            })
        })
    }

    /// The group's block bitmap, which must be initialised; `changed`: not as it was read.
    fn block_bitmap(&self, group: GroupNr, desc: &GroupDesc, changed: bool) -> Result<Buffer> {
        let blocks = self.sbi.geometry().clusters_per_group.get();
        self.bitmap(
            "block bitmap",
            group,
            desc.block_bitmap,
            (blocks, (!changed).then_some(desc.block_bitmap_csum)),
        )
    }

    fn mark(&self, group: GroupNr, start: u32, len: u32, used: bool) -> Result<()> {
        let geometry = self.sbi.geometry();
        let state = &mut *self.state.borrow_mut();
        let memory = &mut state.memory[group.0 as usize];
        let desc = &mut state.descs[group.0 as usize];
        let buffer = if is_uninit(&self.sbi, desc, BG_BLOCK_UNINIT) {
            let fresh = fresh_block_bitmap(&self.sbi, group, desc);
            let buffer = self.sbi.cache().getblk_zeroed(desc.block_bitmap);
            buffer.modify(|bytes| bytes.copy_from_slice(&fresh));
            desc.flags &= !BG_BLOCK_UNINIT;
            buffer
        } else {
            self.block_bitmap(group, desc, memory.blocks_changed)?
        };
        buffer.modify(|bytes| set_range(bytes, start, len, used));
        let flex = group
            .0
            .checked_shr(geometry.log_groups_per_flex.into())
            .unwrap_or(0);
        let flex = &mut state.flex[flex as usize];
        let blocks = u64::from(len);
        if used {
            desc.free_clusters -= len;
            flex.free_blocks -= blocks;
            state.total.free_blocks -= blocks;
        } else {
            desc.free_clusters += len;
            flex.free_blocks += blocks;
            state.total.free_blocks += blocks;
        }
        memory.blocks_changed = true;
        Ok(())
    }

    /// Puts the checksums of changed bitmaps and all descriptors into the cache, backups included.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn store(&self) -> Result<()> {
        self.sum_bitmaps()?;
        let geometry = self.sbi.geometry();
        let state = self.state.borrow();
        let len = usize::from(geometry.desc_size);
        let per_block = geometry.descs_per_block();
        for (index, descs) in (0u32..).zip(state.descs.chunks(per_block as usize)) {
            let primary = geometry.gdt_block(index);
            let kind = tag(Kind::GroupDesc);
            let buffer = self
                .sbi
                .bread("group descriptors", primary, kind, |_| Ok(()))?;
            let content = buffer.modify(|bytes| {
                for (i, desc) in (0u32..).zip(descs) {
                    let group = GroupNr(index * per_block + i);
                    let at = i as usize * len;
                    if let Some(bytes) = bytes.get_mut(at..at + len) {
                        desc.store(bytes, group, geometry.desc_checksum);
                    }
                }
                bytes.to_vec()
            });
            for backup in geometry.gdt_backups(index) {
                let buffer = self.sbi.cache().getblk_zeroed(backup);
                buffer.modify(|bytes| bytes.copy_from_slice(&content));
            }
        }
        Ok(())
    }

    fn sum_bitmaps(&self) -> Result<()> {
        let geometry = self.sbi.geometry();
        let Some(seed) = geometry.csum_seed else {
            return Ok(());
        };
        let desc_size = usize::from(geometry.desc_size);
        let sum = |block: Pblk, bits: u32| -> Result<u32> {
            let buffer = self
                .sbi
                .bread("bitmap", block, tag(Kind::Bitmap), |_| Ok(()))?;
            let data = buffer.data();
            let summed = data.get(..(bits / 8) as usize).unwrap_or(&data);
            Ok(bitmap_checksum(seed, summed, desc_size))
        };
        let state = &mut *self.state.borrow_mut();
        for (desc, memory) in state.descs.iter_mut().zip(&state.memory) {
            if memory.blocks_changed {
                desc.block_bitmap_csum = sum(desc.block_bitmap, geometry.clusters_per_group.get())?;
            }
            if memory.inodes_changed {
                desc.inode_bitmap_csum = sum(desc.inode_bitmap, geometry.inodes_per_group.get())?;
            }
        }
        Ok(())
    }
}

impl GroupBitmaps for Groups {
    type Error = Error;

    fn free_blocks(&self, group: GroupNr) -> Result<u32> {
        Ok(self.state.borrow().descs[group.0 as usize].free_clusters)
    }

    fn read_bitmap(&self, group: GroupNr, bitmap: &mut [u8]) -> Result<()> {
        let (desc, changed) = {
            let state = self.state.borrow();
            let at = group.0 as usize;
            (state.descs[at], state.memory[at].blocks_changed)
        };
        let mut copy = |data: &[u8]| {
            let len = bitmap.len().min(data.len());
            bitmap[..len].copy_from_slice(&data[..len]);
        };
        if is_uninit(&self.sbi, &desc, BG_BLOCK_UNINIT) {
            copy(&fresh_block_bitmap(&self.sbi, group, &desc));
        } else {
            copy(&self.block_bitmap(group, &desc, changed)?.data());
        }
        Ok(())
    }

    fn mark_used(&self, group: GroupNr, start: u32, len: u32) -> Result<()> {
        self.mark(group, start, len, true)
    }

    fn mark_free(&self, group: GroupNr, start: u32, len: u32) -> Result<()> {
        self.mark(group, start, len, false)
    }
}

/// Everything a descriptor points to must lie in the file system.
fn check_places(geometry: &Geometry, group: GroupNr, desc: &GroupDesc) -> Result<()> {
    let table_blocks = u64::from(geometry.itable_blocks());
    for (what, block, len) in [
        ("block bitmap", desc.block_bitmap, 1),
        ("inode bitmap", desc.inode_bitmap, 1),
        ("inode table", desc.inode_table, table_blocks),
    ] {
        if !geometry.contains(block, len) {
            return Err(Error::Corrupt(Damage::DescLocation { group, what, block }));
        }
    }
    if desc.free_inodes > geometry.inodes_per_group.get()
        || desc.free_clusters > geometry.blocks_in_group(group)
    {
        return Err(Error::Corrupt(Damage::BitmapCount {
            group,
            what: "group descriptor",
            bitmap: geometry.blocks_in_group(group),
            descriptor: desc.free_clusters.max(desc.free_inodes),
        }));
    }
    Ok(())
}

/// Marks all bits from `from` to the end of a bitmap used.
fn pad(bytes: &mut [u8], from: u32) {
    let end = bytes.len() as u32 * 8;
    set_range(bytes, from, end.saturating_sub(from), true);
}

fn get(bytes: &[u8], bit: u32) -> bool {
    bytes
        .get((bit / 8) as usize)
        .is_none_or(|byte| byte >> (bit % 8) & 1 != 0)
}

/// Sets or clears `len` bits from `start`; those past the end do not exist.
fn set_range(bytes: &mut [u8], start: u32, len: u32, value: bool) {
    let end = start.saturating_add(len).min(bytes.len() as u32 * 8);
    let mut bit = start;
    while bit < end {
        if bit.is_multiple_of(8) && end - bit >= 8 {
            let whole = (bit / 8) as usize..(end / 8) as usize;
            bytes[whole].fill(if value { 0xFF } else { 0 });
            bit = end / 8 * 8;
            continue;
        }
        let upto = (bit / 8 * 8).saturating_add(8).min(end);
        let mask = (0xFFu8 >> (8 - (upto - bit))) << (bit % 8);
        let byte = &mut bytes[(bit / 8) as usize];
        if value {
            *byte |= mask;
        } else {
            *byte &= !mask;
        }
        bit = upto;
    }
}

/// First clear bit in `from..end`.
fn next_zero(bytes: &[u8], from: u32, end: u32) -> Option<u32> {
    let mut bit = from;
    while bit < end {
        if bit.is_multiple_of(8) && bytes.get((bit / 8) as usize) == Some(&0xFF) {
            bit += 8;
        } else if get(bytes, bit) {
            bit += 1;
        } else {
            return Some(bit);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bits() {
        let mut bytes = [0u8; 8];
        set_range(&mut bytes, 3, 20, true);
        assert_eq!(bytes, [0xF8, 0xFF, 0x7F, 0, 0, 0, 0, 0]);
        assert_eq!(next_zero(&bytes, 3, 64), Some(23));
        set_range(&mut bytes, 8, 8, false);
        assert_eq!(next_zero(&bytes, 3, 64), Some(8));
        pad(&mut bytes, 30);
        assert_eq!(bytes[3..], [0xC0, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(next_zero(&bytes, 30, 64), None);
        set_range(&mut bytes, 60, 100, false);
        assert_eq!(next_zero(&bytes, 30, 64), Some(60));
    }
}

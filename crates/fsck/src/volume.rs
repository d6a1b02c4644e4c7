//! The file system as it will be: superblock, descriptors, blocks and inodes, read and changed
//! through the overlay.
//!
//! Locking: one lock around superblock and descriptors each, held for a copy, or while a change of
//! them goes into the overlay. Two threads must not change the same inode or descriptor at a time;
//! passes divide the work by group or by directory, so that they do not.

use parking_lot::RwLock;
use uext4_ondisk::group_desc::{BG_INODE_UNINIT, DescChecksum, GroupDesc};
use uext4_ondisk::inode::{CHECKSUM_HI_OFFSET, CHECKSUM_LO_OFFSET, RawInode, update_checksum};
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::overlay::Overlay;
use crate::report::Cause;

/// A file system whose shape is known.
#[derive(Debug)]
pub struct Volume {
    overlay: Overlay,
    geometry: Geometry,
    superblock: RwLock<SuperBlock>,
    groups: RwLock<Vec<GroupDesc>>,
}

impl Volume {
    /// A file system of this shape. `groups` has one descriptor for each group of `geometry`.
    pub fn new(
        overlay: Overlay,
        geometry: Geometry,
        superblock: SuperBlock,
        groups: Vec<GroupDesc>,
    ) -> Self {
        Self {
            overlay,
            geometry,
            superblock: RwLock::new(superblock),
            groups: RwLock::new(groups),
        }
    }

    /// The device with the changes.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// The overlay alone, when the examination is over.
    pub fn into_overlay(self) -> Overlay {
        self.overlay
    }

    /// The shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The superblock as it will be.
    pub fn superblock(&self) -> SuperBlock {
        *self.superblock.read()
    }

    /// The descriptor of a group as it will be; all zero past the last group.
    pub fn group(&self, group: GroupNr) -> GroupDesc {
        let groups = self.groups.read();
        groups.get(index(group.0)).copied().unwrap_or_default()
    }

    /// How many inodes of a group, from its first on, were ever used by its descriptor. What lies
    /// behind them in the table may be of an older file system.
    pub fn inodes_ever_used(&self, group: GroupNr) -> u32 {
        let per_group = self.geometry.inodes_per_group.get();
        let desc = self.group(group);
        match self.geometry.desc_checksum {
            DescChecksum::None => per_group,
            _ if desc.flags & BG_INODE_UNINIT != 0 => 0,
            _ => per_group.saturating_sub(desc.itable_unused),
        }
    }

    /// All descriptors as they will be.
    pub fn groups(&self) -> Vec<GroupDesc> {
        self.groups.read().clone()
    }

    /// Changes the primary superblock and its checksum.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn update_superblock(
        &self,
        cause: Cause,
        change: impl FnOnce(&mut SuperBlock),
    ) -> Result<()> {
        let mut superblock = self.superblock.write();
        change(&mut superblock);
        superblock.update_checksum();
        let block_size = self.geometry.block_size;
        let block = Pblk(SUPERBLOCK_OFFSET >> block_size.log2());
        let at = index((SUPERBLOCK_OFFSET % u64::from(block_size.bytes())) as u32);
        let new = superblock.as_bytes();
        self.overlay.update(block, cause, |bytes| {
            bytes[at..at + new.len()].copy_from_slice(new);
        })
    }

    /// Changes the descriptor of a group and its checksum. A group past the last is left alone.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn update_group(
        &self,
        group: GroupNr,
        cause: Cause,
        change: impl FnOnce(&mut GroupDesc),
    ) -> Result<()> {
        let mut groups = self.groups.write();
        let Some(desc) = groups.get_mut(index(group.0)) else {
            return Ok(());
        };
        change(desc);
        let desc = *desc;
        let geometry = &self.geometry;
        let block = geometry.gdt_block(group.0 / geometry.descs_per_block());
        let at = index(group.0 % geometry.descs_per_block()) * usize::from(geometry.desc_size);
        let len = usize::from(geometry.desc_size);
        self.overlay.update(block, cause, |bytes| {
            desc.store(&mut bytes[at..at + len], group, geometry.desc_checksum);
        })
    }

    /// Where an inode lies: its block and the byte in it. `None` if there is no such inode, or if
    /// its group's table does not lie in the file system.
    pub fn inode_place(&self, ino: Ino) -> Option<(Pblk, usize)> {
        let (group, number) = self.geometry.inode_group(ino)?;
        let table = self.group(group).inode_table;
        let byte = u64::from(number) * u64::from(self.geometry.inode_size);
        let block = Pblk(
            table
                .0
                .checked_add(byte >> self.geometry.block_size.log2())?,
        );
        let offset = byte % u64::from(self.geometry.block_size.bytes());
        let inside = table.0 != 0 && self.geometry.contains(block, 1);
        inside.then_some((block, index(u32::try_from(offset).ok()?)))
    }

    /// Reads the bytes of an inode, `inode_size` long; `None` if there is no such inode.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn read_inode(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        let Some((block, at)) = self.inode_place(ino) else {
            return Ok(None);
        };
        let mut bytes = vec![0; usize::from(self.geometry.inode_size)];
        let start = block.0 << self.geometry.block_size.log2();
        self.overlay.read_at(start + at as u64, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Changes the bytes of an inode, and computes its checksum anew. Nothing happens to an inode
    /// that does not exist.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn update_inode(
        &self,
        ino: Ino,
        cause: Cause,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let Some((block, at)) = self.inode_place(ino) else {
            return Ok(());
        };
        let len = usize::from(self.geometry.inode_size);
        let seed = self.geometry.csum_seed;
        self.overlay.update(block, cause, |bytes| {
            let inode = &mut bytes[at..at + len];
            change(inode);
            if let Some(seed) = seed {
                let generation = generation(inode);
                update_checksum(inode, seed, ino, generation);
            }
        })
    }

    /// Changes the known fields of an inode, and computes its checksum anew. The field
    /// `i_extra_isize` must be valid, see [`RawInode::parse`]; otherwise nothing happens.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn update_raw_inode(
        &self,
        ino: Ino,
        cause: Cause,
        change: impl FnOnce(&mut RawInode),
    ) -> Result<()> {
        self.update_inode(ino, cause, |bytes| {
            if let Ok(mut raw) = RawInode::parse(bytes, ino) {
                change(&mut raw);
                raw.store(bytes);
            }
        })
    }
}

/// Whether an inode holds nothing: all is zero but the checksum, which may be there.
pub fn is_clear(inode: &[u8]) -> bool {
    let sums = [CHECKSUM_LO_OFFSET, CHECKSUM_HI_OFFSET];
    let in_sum = |at: usize| sums.iter().any(|sum| (*sum..sum + 2).contains(&at));
    (0..).zip(inode).all(|(at, &byte)| byte == 0 || in_sum(at))
}

/// `i_generation` of an inode's bytes.
pub fn generation(inode: &[u8]) -> u32 {
    // At the same place in all inodes, whatever the rest is.
    let at = std::mem::offset_of!(RawInode, i_generation);
    inode
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

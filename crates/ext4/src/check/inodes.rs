//! Compares inode tables with inode bitmaps, and checks every inode.

use std::sync::Arc;

use uext4_ondisk::group_desc::{BG_INODE_UNINIT, DescChecksum, GroupDesc};
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::{Checker, Issue};
use crate::alloc::bitmap;
use crate::base::error::Result;
use crate::inode::{Inode, iget, inode_bytes};
use crate::journal::sbi::Sbi;
use crate::map::owned::{self, Owned};
use crate::xattr::{self, Reader};

/// The inodes of a group that are in use according to the bitmap and to the table.
pub(super) struct GroupInodes {
    first: Ino,
    per_group: u32,
    /// Number of inodes at the start of the table that were ever used.
    initialised: u32,
    bitmap: Arc<[u8]>,
}

impl GroupInodes {
    /// Reads the group's inode bitmap.
    pub(super) fn read(sbi: &Sbi, group: GroupNr, desc: &GroupDesc) -> Result<Self> {
        let per_group = sbi.geometry().inodes_per_group.get();
        let bitmap = bitmap::inode_bitmap(sbi, group)?;
        let initialised = match sbi.geometry().desc_checksum {
            DescChecksum::None => per_group,
            _ if desc.flags & BG_INODE_UNINIT != 0 => 0,
            _ => per_group.saturating_sub(desc.itable_unused),
        };
        Ok(Self {
            first: super::first_inode(sbi, group),
            per_group,
            initialised,
            bitmap,
        })
    }

    /// Whether the bitmap marks inode `index` of the group as used.
    fn is_marked(&self, index: u32) -> bool {
        super::bit(&self.bitmap, index)
    }

    /// Whether the bits past the last inode are set, as required.
    pub(super) fn is_padded(&self) -> bool {
        super::all_set(&self.bitmap, self.per_group)
    }

    /// Inodes that are marked used or may contain data, with their bit in the bitmap.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (Ino, bool)> {
        let inodes = (self.first.0..=u32::MAX).map(Ino);
        (0..self.per_group)
            .zip(inodes)
            .map(|(i, ino)| (i, ino, self.is_marked(i)))
            .filter(|&(i, _, marked)| marked || i < self.initialised)
            .map(|(_, ino, marked)| (ino, marked))
    }
}

impl Checker<'_> {
    /// The inode if it is in use. What is wrong with it is reported where `first_window` says so.
    pub(super) fn used_inode(
        &mut self,
        ino: Ino,
        marked: bool,
        first_window: bool,
    ) -> Option<Inode> {
        let sbi = self.sbi;
        if !marked {
            // Not verified unless it claims to be linked.
            let raw = inode_bytes(sbi, ino)
                .ok()
                .and_then(|b| RawInode::parse(&b, ino).ok());
            let linked = raw.is_some_and(|r| r.i_links_count.get() > 0 && r.i_dtime.get() == 0);
            if linked && first_window {
                self.report(Issue::InodeBitmap { ino, marked });
            }
            return None;
        }
        let reserved = ino.0 < sbi.geometry().first_ino;
        if reserved && is_empty(sbi, ino) {
            return None;
        }
        match iget(sbi, ino) {
            Ok(inode) if inode.links == 0 && !reserved && !self.is_orphan(ino) => {
                if first_window {
                    self.report(Issue::InodeBitmap { ino, marked });
                }
                None
            }
            Ok(inode) => Some(inode),
            Err(error) => {
                if first_window {
                    self.report_error(Some(ino), error);
                }
                None
            }
        }
    }

    /// Claims everything the inode owns; with `first_window` it is also checked in itself.
    pub(super) fn inode_blocks(&mut self, inode: &Inode, first_window: bool) {
        let sbi = self.sbi;
        let block_size = sbi.geometry().block_size;
        let (mut owned, mut reaches) = (0u64, 0u64);
        let mut last_cluster = None;
        let walked = owned::for_each_owned(sbi, inode, &mut |run: Owned| {
            if let Err(error) = sbi.check_range("inode", run.start, run.len.into()) {
                self.report_once(first_window, Some(inode.ino), error);
                return false;
            }
            let clusters = super::clusters(sbi, run.start, run.len);
            // Two adjacent extents of one file may share a cluster, but not a block.
            let bigalloc = sbi.geometry().cluster_bits > 0;
            let shares = bigalloc && last_cluster == Some(clusters.start);
            let from = clusters.start.saturating_add(shares.into());
            last_cluster = clusters.end.checked_sub(1);
            owned = owned.saturating_add(clusters.end.saturating_sub(from));
            if let Some(lblk) = run.lblk.filter(|_| !run.unwritten) {
                reaches = reaches.max(u64::from(lblk.0).saturating_add(run.len.into()));
            }
            let taken = self.usage.claim(from..clusters.end);
            if let Some(cluster) = taken {
                let block = super::first_block(sbi, cluster);
                self.report(Issue::SharedBlock {
                    block,
                    ino: Some(inode.ino),
                });
            }
            taken.is_none()
        });
        if let Err(error) = walked {
            self.report_once(first_window, Some(inode.ino), error);
            return;
        }
        owned = owned.saturating_add(inode.xattr_block.is_some().into());
        if first_window {
            // At most 2^33 clusters of at most 2^30 bytes.
            let bytes = owned << sbi.geometry().cluster_bits << block_size.log2();
            let counted = bytes >> 9;
            self.check_inode(inode, counted, reaches << block_size.log2());
        }
        if let Some(block) = inode.xattr_block {
            self.xattr_block(inode, block, first_window);
        }
    }

    fn check_inode(&mut self, inode: &Inode, counted: u64, mapped_to: u64) {
        let block_size = self.sbi.geometry().block_size;
        // The resize inode counts the blocks that it lists, which belong to the groups.
        let ea_values = inode.has(InodeFlags::EA_INODE) || self.has_ea_values(inode);
        if inode.blocks != counted && inode.ino != Ino::RESIZE && !ea_values {
            self.report(Issue::InodeBlocks {
                ino: inode.ino,
                stored: inode.blocks,
                counted,
            });
        }
        let whole = inode.size.is_multiple_of(block_size.bytes().into());
        let in_blocks = owned::maps_blocks(self.sbi, inode);
        let wrong = match inode.file_type {
            FileType::Directory => in_blocks && (!whole || inode.size != mapped_to),
            FileType::Regular => {
                let end = u64::from(block_size.bytes()).saturating_add(inode.size);
                let beyond = inode.has(InodeFlags::VERITY) || inode.ino == Ino::RESIZE;
                mapped_to >= end && !beyond && inode.ino != Ino::BAD_BLOCKS
            }
            _ => false,
        };
        if wrong && !self.is_orphan(inode.ino) {
            self.report(Issue::InodeSize {
                ino: inode.ino,
                size: inode.size,
                mapped_to,
            });
        }
        if let Err(error) = xattr::list(self.sbi, inode, Reader::Onlooker) {
            self.report_error(Some(inode.ino), error);
        }
    }

    /// Whether separate inodes with attribute values count among the inode's blocks.
    fn has_ea_values(&self, inode: &Inode) -> bool {
        use uext4_ondisk::features::Incompat;
        let feature = self
            .sbi
            .geometry()
            .features
            .incompat
            .contains(Incompat::EA_INODE);
        feature && (inode.xattr_block.is_some() || inode.xattr_offset.is_some())
    }

    /// Counts a reference to an attribute block, and claims the block the first time.
    fn xattr_block(&mut self, inode: &Inode, block: Pblk, first_window: bool) {
        if let Err(error) = self.sbi.check_range("xattr block", block, 1) {
            self.report_once(first_window, Some(inode.ino), error);
            return;
        }
        let cluster = super::clusters(self.sbi, block, 1).start;
        if !self.usage.window().contains(&cluster) {
            return;
        }
        let count = self.xattr_refs.entry(block).or_insert(0);
        *count = count.saturating_add(1);
        if *count == 1
            && self
                .usage
                .claim(cluster..cluster.saturating_add(1))
                .is_some()
        {
            self.report(Issue::SharedBlock {
                block,
                ino: Some(inode.ino),
            });
        }
    }
}

fn is_empty(sbi: &Sbi, ino: Ino) -> bool {
    inode_bytes(sbi, ino)
        .ok()
        .and_then(|bytes| RawInode::parse(&bytes, ino).ok())
        .is_some_and(|raw| {
            raw.i_mode.get() == 0 && raw.i_links_count.get() == 0 && raw.i_blocks_lo.get() == 0
        })
}

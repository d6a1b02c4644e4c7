//! Quota files: what every owner has is counted while inodes are made, and stored at the end.
//!
//! As in the kernel, an owner has the space in `i_blocks` and the inodes themselves; for a value
//! of an extended attribute in a separate inode, every user pays space and an inode, and that
//! inode itself pays nothing. Neither do the quota files.

use std::collections::BTreeMap;

use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, RawInode};
use uext4_ondisk::pack::quota::{QuotaUsage, pack_quota};
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::{Geometry, Ino};

use super::sectors::{add_sectors, sectors};
use super::{Attributes, Creator, itable};
use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::inode::iget;
use crate::map::map_blocks;
use crate::quota::file::{KINDS, QuotaFile};
use crate::quota::{Ids, has_quotas, index};

/// What an inode takes of its owners' quotas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    owners: Ids,
    inodes: u64,
    bytes: u64,
}

impl Share {
    /// Of an inode that uses `apart` values in separate inodes.
    pub(super) fn of(raw: &RawInode, geometry: &Geometry, apart: u64) -> Self {
        let word = |lo: u16, hi: u16| u32::from(hi) << 16 | u32::from(lo);
        let has_project = usize::from(geometry.inode_size) > GOOD_OLD_INODE_SIZE;
        Self {
            owners: [
                word(raw.i_uid.get(), raw.i_uid_high.get()),
                word(raw.i_gid.get(), raw.i_gid_high.get()),
                if has_project { raw.i_projid.get() } else { 0 },
            ],
            inodes: 1 + apart,
            bytes: sectors(raw) << 9,
        }
    }
}

/// A quota file, and what it is to count.
#[derive(Debug)]
struct Counted {
    kind: QuotaKind,
    ino: Ino,
    used: BTreeMap<u32, QuotaUsage>,
}

/// All quota files of the file system, none without the feature.
#[derive(Debug, Default)]
pub(super) struct Usage {
    files: Vec<Counted>,
}

impl Usage {
    /// What is counted so far. Limits and times of grace are not kept: who makes a file system sets
    /// them when it is complete.
    pub(super) fn open(disk: &Disk) -> Result<Self> {
        let mut usage = Self::default();
        for kind in KINDS.into_iter().filter(|_| has_quotas(disk)) {
            let Some(file) = QuotaFile::open(disk, map_blocks, kind)? else {
                continue;
            };
            let entries = file.entries(disk)?.into_iter().map(|entry| {
                let (inodes, bytes) = (entry.dqb_curinodes.get(), entry.dqb_curspace.get());
                (entry.dqb_id.get(), QuotaUsage { inodes, bytes })
            });
            usage.files.push(Counted {
                kind,
                ino: file.inode.ino,
                used: entries.collect(),
            });
        }
        Ok(usage)
    }

    /// Whether anything is counted.
    pub(super) fn is_counted(&self) -> bool {
        !self.files.is_empty()
    }

    /// Counts an inode that changed from one share to another; `None` is one that does not exist.
    pub(super) fn change(&mut self, old: Option<Share>, new: Share) {
        for file in &mut self.files {
            let kind = index(file.kind);
            if let Some(old) = old {
                let id = old.owners[kind];
                let used = file.used.entry(id).or_default();
                used.inodes = used.inodes.saturating_sub(old.inodes);
                used.bytes = used.bytes.saturating_sub(old.bytes);
                if *used == QuotaUsage::default() {
                    file.used.remove(&id);
                }
            }
            let used = file.used.entry(new.owners[kind]).or_default();
            used.inodes = used.inodes.saturating_add(new.inodes);
            used.bytes = used.bytes.saturating_add(new.bytes);
        }
    }
}

impl Creator {
    /// Number of values of a new inode that are stored in separate inodes, if that is counted.
    pub(super) fn values_apart(&self, file_type: FileType, new: &Attributes) -> Result<u64> {
        if !self.usage.is_counted() || new.xattrs.is_empty() {
            return Ok(0);
        }
        let placed = self.xattr_shape.place(file_type, &new.xattrs)?;
        let all = placed.body.iter().chain(&placed.block);
        Ok(all.filter(|attribute| attribute.apart).count() as u64)
    }

    /// Stores the quota files, when everything else has its blocks.
    pub(super) fn write_quota_files(&mut self) -> Result<()> {
        let usage = std::mem::take(&mut self.usage);
        for file in &usage.files {
            let bytes = pack_quota(file.kind, &file.used).ok_or(Error::FileTooBig)?;
            self.write_quota_file(file.ino, &bytes)?;
        }
        Ok(())
    }

    fn write_quota_file(&mut self, ino: Ino, bytes: &[u8]) -> Result<()> {
        let block_size = self.sbi.geometry().block_size;
        let blocks = block_size.blocks_for(bytes.len() as u64);
        let old = self.blocks_of(&iget(&self.sbi, ino)?)?;
        self.space.give_back(&self.sbi, &self.groups, &old)?;
        // At its old location if it fits there.
        let place = old.iter().find(|run| u64::from(run.len) >= blocks);
        let ahead = place.map(|run| self.space.move_to(run.start));
        let mut mapped = RawInode::zeroed();
        self.map_small(&mut mapped, ino, bytes)?;
        if let Some(ahead) = ahead {
            self.space.move_to(ahead);
        }
        let geometry = self.sbi.geometry();
        itable::update(&self.sbi, ino, None, |raw| {
            raw.i_size_lo = (bytes.len() as u32).into();
            raw.i_size_high = ((bytes.len() as u64 >> 32) as u32).into();
            raw.i_block = mapped.i_block;
            (raw.i_blocks_lo, raw.i_blocks_high) = (0.into(), 0.into());
            add_sectors(raw, geometry, sectors(&mapped))
        })
    }
}

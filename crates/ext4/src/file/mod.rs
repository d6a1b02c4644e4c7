//! Inodes in use, and the data of files: reading, writing, allocating, truncating, deleting.
//!
//! This file reads data without the page cache. `inode_ref` is a reference to an inode in use,
//! `evict` deletes inodes; `pages` connects a file to the page cache, `change` writes and
//! truncates, `fallocate`, `fiemap` and `copy_range` are the system calls of these names,
//! `setattr` changes owners, modes and times, and `quota_change` creates the quota entries of the
//! owners that are charged.

pub(crate) mod auto_da_alloc;
pub(crate) mod change;
pub(crate) mod copy_range;
pub(crate) mod evict;
pub(crate) mod fallocate;
pub(crate) mod fiemap;
pub(crate) mod inline_file;
pub(crate) mod inode_ref;
pub(crate) mod pages;
pub(crate) mod quota_change;
pub(crate) mod setattr;
pub(crate) mod write_context;

use std::ops::Range;
use std::sync::Arc;

use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Damage, Lblk};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::mapping::MapState;
use crate::inode::Inode;
use crate::inode::inline::read_inline;
use crate::journal::sbi::Sbi;
use crate::map::MapCursor;
use crate::map::readpage::read_range;

/// Reads from `offset` on into `buf` and returns the number of bytes: fewer than requested only
/// at the end of the file.
pub(crate) fn read_at(sbi: &Sbi, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    check_file(inode)?;
    let left = inode.size.saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    let part = buf.get_mut(..len).unwrap_or_default();
    if inode.has(InodeFlags::INLINE_DATA) {
        read_inline(sbi, inode, offset, part)?;
    } else {
        check_size(sbi, inode)?;
        read_range(sbi, inode, offset, part)?;
    }
    Ok(len)
}

/// Fails with the reason for which an inode cannot be read or written as a file.
pub(super) fn check_file(inode: &Inode) -> Result<()> {
    match inode.file_type {
        FileType::Regular if inode.has(InodeFlags::ENCRYPT) => Err(Error::Encrypted),
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid(Invalid::NotRegularFile)),
    }
}

/// No file has more than 2³² − 1 blocks.
fn check_size(sbi: &Sbi, inode: &Inode) -> Result<()> {
    let blocks = sbi.geometry().block_size.blocks_for(inode.size);
    if blocks <= u64::from(Lblk::LAST.0) + 1 {
        return Ok(());
    }
    Err(Error::Corrupt(Damage::InodeField {
        ino: inode.ino,
        field: "i_size",
        value: inode.size,
        why: "more than 2^32 - 1 blocks",
    }))
}

/// The parts of a file that hold data, in bytes, in ascending order and not adjacent; the rest,
/// up to the size, reads as zeroes. Equivalent to seeking with `SEEK_DATA` and `SEEK_HOLE`.
#[derive(Debug)]
pub struct DataRanges {
    sbi: Arc<Sbi>,
    inode: Inode,
    cursor: MapCursor,
    /// Next block to look up, and the block to stop before.
    next: u32,
    end: u32,
    /// Number of blocks that may still be returned: no file has more than the file system.
    room: u64,
    /// The range that may still grow.
    pending: Option<Range<u64>>,
}

/// Starts an iteration over the data of a file.
pub(crate) fn data_ranges(sbi: &Arc<Sbi>, inode: &Inode) -> Result<DataRanges> {
    check_file(inode)?;
    let inline = inode.has(InodeFlags::INLINE_DATA);
    if !inline {
        check_size(sbi, inode)?;
    }
    let geometry = sbi.geometry();
    let blocks = geometry.block_size.blocks_for(inode.size);
    let shared = geometry
        .features
        .ro_compat
        .contains(RoCompat::SHARED_BLOCKS);
    Ok(DataRanges {
        sbi: Arc::clone(sbi),
        inode: inode.clone(),
        cursor: MapCursor::default(),
        next: 0,
        // OK to default: the size was just checked.
        end: if inline {
            0
        } else {
            u32::try_from(blocks).unwrap_or(0)
        },
        room: if shared {
            u64::MAX
        } else {
            sbi.geometry().blocks_count
        },
        pending: (inline && inode.size > 0).then_some(0..inode.size),
    })
}

impl Iterator for DataRanges {
    type Item = Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        let log = self.sbi.geometry().block_size.log2();
        while self.next < self.end {
            let (lblk, len) = (Lblk(self.next), self.end - self.next);
            let run = match self.cursor.map(&self.sbi, &self.inode, lblk, len) {
                Ok(run) => run,
                Err(error) => return self.fail(error),
            };
            self.next = run.end();
            if run.state != MapState::Written {
                continue;
            }
            match self.room.checked_sub(run.len.into()) {
                Some(room) => self.room = room,
                None => return self.fail(self.too_many_blocks()),
            }
            let start = u64::from(run.lblk.0) << log;
            let end = (u64::from(run.end()) << log).min(self.inode.size);
            match &mut self.pending {
                Some(range) if range.end == start => range.end = end,
                _ => {
                    if let Some(range) = self.pending.replace(start..end) {
                        return Some(Ok(range));
                    }
                }
            }
        }
        self.pending.take().map(Ok)
    }
}

impl DataRanges {
    fn fail(&mut self, error: Error) -> Option<Result<Range<u64>>> {
        self.next = self.end;
        self.pending = None;
        Some(Err(error))
    }

    fn too_many_blocks(&self) -> Error {
        Error::Corrupt(Damage::InodeField {
            ino: self.inode.ino,
            field: "i_size",
            value: self.inode.size,
            why: "maps more blocks than the file system has",
        })
    }
}

//! Inodes in use, and how they map their blocks.

use uext4_ondisk::group_desc::BG_INODE_UNINIT;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::{GroupNr, Ino};
use uext4_support::bits;

use crate::Result;
use crate::batch::Batch;

/// How an inode maps its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Not at all: it has none, or its data lie in the inode.
    None,
    /// An extent tree.
    Extents,
    /// Direct and indirect blocks.
    Indirect,
}

impl MapKind {
    /// That of an inode.
    pub fn of(raw: &RawInode) -> Self {
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        if flags.contains(InodeFlags::INLINE_DATA) {
            return Self::None;
        }
        if flags.contains(InodeFlags::EXTENTS) {
            return Self::Extents;
        }
        match FileType::from_mode(raw.i_mode.get()) {
            Some(FileType::Regular | FileType::Directory) => Self::Indirect,
            // A shorter target lies in `i_block`.
            Some(FileType::Symlink) if raw.i_size_lo.get() >= 60 => Self::Indirect,
            _ => Self::None,
        }
    }
}

/// Numbers of the inodes in use of a group, ascending.
///
/// # Errors
/// Those of reading its bitmap.
pub fn inodes_of(batch: &Batch<'_>, group: GroupNr) -> Result<Vec<Ino>> {
    let per_group = batch.geometry().inodes_per_group.get();
    let desc = batch.desc(group)?;
    let is_uninit = batch.has_uninit() && desc.flags & BG_INODE_UNINIT != 0;
    if is_uninit {
        return Ok(Vec::new());
    }
    let bitmap = batch.state.image.inode_bitmap(group)?;
    let used = (0..per_group).filter(|&bit| bits::get(&bitmap, bit));
    Ok(used.map(|bit| Ino(group.0 * per_group + bit + 1)).collect())
}

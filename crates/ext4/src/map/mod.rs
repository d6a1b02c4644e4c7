//! From logical to physical blocks, whatever the inode uses for it: looked up, and changed.
//!
//! This file looks blocks up. `extents` and `indirect` read the two kinds of map, `extents_change`
//! (by way of `extent_path`) and `indirect_change` change them, and `change` is both of these for
//! callers that need not know which it is. `readpage` reads runs of data, `owned` walks all blocks
//! an inode has.

pub(crate) mod change;
pub(crate) mod data_blocks;
pub(crate) mod extent_path;
pub(crate) mod extents;
pub(crate) mod extents_change;
pub(crate) mod file_blocks;
pub(crate) mod indirect;
pub(crate) mod indirect_change;
pub(crate) mod owned;
pub(crate) mod readpage;

use uext4_ondisk::Lblk;
use uext4_ondisk::inode::{FileType, InodeFlags};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::mapping::{MapState, Mapping};
use crate::inode::Inode;
use crate::map::extents::Leaf;

/// What `lblk` and up to `len - 1` blocks after it are. The answer is at least one block long and
/// may be shorter than the run it belongs to.
pub(crate) fn map_blocks(disk: &Disk, inode: &Inode, lblk: Lblk, len: u32) -> Result<Mapping> {
    MapCursor::default().map(disk, inode, lblk, len)
}

/// Maps one part of one file after another and remembers the leaf it is in, so that going through
/// a file costs one walk down the tree per leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapCursor {
    leaf: Option<Leaf>,
}

impl MapCursor {
    /// As [`map_blocks`]. All calls on one cursor must be for the same inode.
    pub(crate) fn map(
        &mut self,
        disk: &Disk,
        inode: &Inode,
        lblk: Lblk,
        len: u32,
    ) -> Result<Mapping> {
        check_mappable(disk, inode)?;
        if len == 0 || lblk > Lblk::LAST {
            return Err(Error::Invalid(Invalid::Extent { lblk, len }));
        }
        let mut len = len.min(Lblk::LAST.0 - lblk.0 + 1);
        if let Some(changed) = disk.fast_commit().and_then(|all| all.changed(inode.ino)) {
            match changed.map(lblk, len) {
                Ok(mapping) if mapping.state == MapState::Hole => return Ok(mapping),
                Ok(mapping) => {
                    disk.check_range("fast commit", mapping.pblk, mapping.len.into())?;
                    return Ok(mapping);
                }
                Err(unchanged) => len = unchanged,
            }
        }
        if !inode.has(InodeFlags::EXTENTS) {
            return indirect::map(disk, inode, lblk, len);
        }
        match &self.leaf {
            Some(leaf) if leaf.covers(lblk) => leaf.map(disk, lblk, len),
            _ => {
                let leaf = extents::find_leaf(disk, inode, lblk)?;
                self.leaf.insert(leaf).map(disk, lblk, len)
            }
        }
    }
}

impl MapCursor {
    /// All that the leaf says which answered last, with the holes; nothing if none did, or if a
    /// fast commit knows better of this inode.
    pub(crate) fn whole_leaf(&self, disk: &Disk, inode: &Inode) -> Vec<Mapping> {
        let changed = disk.fast_commit().and_then(|all| all.changed(inode.ino));
        match &self.leaf {
            Some(leaf) if changed.is_none() => leaf.whole(disk),
            _ => Vec::new(),
        }
    }
}

/// Fails with [`Error::Invalid`] if the inode maps no blocks.
pub(crate) fn check_mappable(disk: &Disk, inode: &Inode) -> Result<()> {
    match inode.file_type {
        _ if inode.has(InodeFlags::INLINE_DATA) => {}
        FileType::Regular | FileType::Directory => return Ok(()),
        FileType::Symlink if !inode.is_fast_symlink(disk) => return Ok(()),
        _ => {}
    }
    Err(Invalid::NoBlocks(inode.ino).into())
}

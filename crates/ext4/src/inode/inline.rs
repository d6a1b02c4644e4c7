//! Data within the inode: 60 bytes in `i_block`, the rest in the attribute `system.data` in
//! addition to it.

use uext4_ondisk::dir_block::{INLINE_PARENT_LEN, inline_parent};
use uext4_ondisk::inode::I_BLOCK_LEN;
use uext4_ondisk::xattr::{
    INDEX_SYSTEM, INLINE_DATA_NAME, XATTR_IBODY_HEADER_LEN, XattrPlace, XattrValue, parse_entries,
};
use uext4_ondisk::{Damage, Ino};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::inode::{Inode, inode_bytes};

/// Everything within the inode: `i_block` and then the attribute's value. At most as long as an
/// inode; `i_size` says how much of it counts.
pub(crate) fn inline_data(disk: &Disk, inode: &Inode) -> Result<Vec<u8>> {
    let mut data = inode.i_block.to_vec();
    let Some(at) = inode.xattr_offset else {
        return Ok(data);
    };
    let bytes = inode_bytes(disk, inode.ino)?;
    let region = bytes
        .get(usize::from(at) + XATTR_IBODY_HEADER_LEN..)
        .unwrap_or_default();
    for entry in parse_entries(region, 0, XattrPlace::Inode(inode.ino))? {
        if entry.index == INDEX_SYSTEM && entry.name == INLINE_DATA_NAME {
            let XattrValue::Here(value) = entry.value else {
                return Err(Error::Corrupt(Damage::Xattr {
                    at: XattrPlace::Inode(inode.ino),
                    offset: 0,
                    why: "inline data in an inode of its own",
                }));
            };
            data.extend_from_slice(value);
        }
    }
    Ok(data)
}

/// Fills `buf` with the inline data from `offset` on; both lie within `i_size`.
pub(crate) fn read_inline(disk: &Disk, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
    let data = inline_data(disk, inode)?;
    let part = usize::try_from(offset)
        .ok()
        .and_then(|from| data.get(from..from.checked_add(buf.len())?))
        .ok_or(Error::Corrupt(Damage::InodeField {
            ino: inode.ino,
            field: "i_size",
            value: inode.size,
            why: "more than the inline data there is",
        }))?;
    buf.copy_from_slice(part);
    Ok(())
}

/// The parts of an inline directory.
pub(crate) struct InlineDir {
    /// What ".." is.
    pub(crate) parent: Ino,
    data: Vec<u8>,
}

impl InlineDir {
    /// Takes them from the inode.
    pub(crate) fn read(disk: &Disk, inode: &Inode) -> Result<Self> {
        let data = inline_data(disk, inode)?;
        Ok(Self {
            parent: inline_parent(&data),
            data,
        })
    }

    /// The two regions of records; no record crosses from one to the other.
    pub(crate) fn regions(&self) -> [&[u8]; 2] {
        // OK to index: `i_block` always comes first.
        let (first, second) = self.data.split_at(I_BLOCK_LEN);
        [&first[INLINE_PARENT_LEN..], second]
    }
}

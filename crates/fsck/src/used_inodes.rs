//! The inodes of a group that are in use, read before any pass has seen them.

use uext4_ondisk::inode::RawInode;
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino};

use crate::error::Result;
use crate::memory::READ_MAX;
use crate::volume::Volume;

/// An inode in use.
pub struct Used<'a> {
    pub ino: Ino,
    pub raw: RawInode,
    pub bytes: &'a [u8],
}

/// Calls `each` with the inodes of a group that have links, until it returns `false`. Those that
/// were never used may be of an older file system.
///
/// # Errors
/// Of `each`, of the device and of the overlay.
pub fn for_each_inode(
    volume: &Volume,
    group: GroupNr,
    mut each: impl FnMut(&Used<'_>) -> Result<bool>,
) -> Result<()> {
    let geometry = volume.geometry();
    let table = volume.group(group).inode_table;
    if table.0 == 0 || !geometry.contains(table, geometry.itable_blocks().into()) {
        return Ok(());
    }
    let size = usize::from(geometry.inode_size);
    let per_group = geometry.inodes_per_group.get();
    let per_piece = READ_MAX / size;
    let mut bytes = vec![0; per_piece * size];
    let mut offset = table.0 << geometry.block_size.log2();
    let mut ino = group.0.saturating_mul(per_group).saturating_add(1);
    let mut left = index(volume.inodes_ever_used(group));
    while left > 0 {
        let count = left.min(per_piece);
        let piece = &mut bytes[..count * size];
        volume.overlay().read_at(offset, piece)?;
        for (bytes, ino) in piece.chunks_exact(size).zip((ino..).map(Ino)) {
            let raw = RawInode::parse(bytes, ino).ok();
            let in_use = raw.filter(|raw| raw.i_links_count.get() != 0);
            if let Some(raw) = in_use
                && !each(&Used { ino, raw, bytes })?
            {
                return Ok(());
            }
        }
        ino = ino.saturating_add(per_piece as u32);
        offset += (count * size) as u64;
        left -= count;
    }
    Ok(())
}

//! The primary superblock of a device that is being written: its sectors, its checksum, and the
//! pointer to a log in it.
//!
//! The pointer and the checksum lie in the second of its two sectors. A sector is written whole or
//! not at all, so that setting and clearing the pointer by one write of it cannot be torn.

use std::mem::offset_of;
use std::ops::Range;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::num::len64;
use uext4_ondisk::repair_log::POINTER_OFFSET;
use uext4_ondisk::superblock::{STATE_ERROR, SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::FromBytes;

use crate::error::Result;

/// Bytes of a superblock.
pub const LEN: usize = 1024;
/// Bytes of a sector, which is written whole or not at all.
pub const SECTOR_LEN: usize = 512;

/// The block that the superblock lies in.
pub fn block(block_size: BlockSize) -> Pblk {
    Pblk(SUPERBLOCK_OFFSET >> block_size.log2())
}

/// The superblock's bytes in the contents of its block.
pub fn of_block(content: &mut [u8]) -> Option<&mut [u8]> {
    let at = match content.len() {
        LEN => 0,
        _ => LEN,
    };
    content.get_mut(at..at + LEN)
}

/// The bytes of the sector at byte `offset` of a device that change while a repair is written or
/// undone, if it is one of the superblock's: the state, the pointer and the checksum.
pub fn unsteady(offset: u64) -> Option<Range<usize>> {
    let state = offset_of!(SuperBlock, s_state);
    match offset.checked_sub(SUPERBLOCK_OFFSET)? {
        0 => Some(state..state + 2),
        at if at == len64(SECTOR_LEN) => Some(POINTER_OFFSET - SECTOR_LEN..SECTOR_LEN),
        _ => None,
    }
}

/// Reads it; `None` on a device that ends before it does.
///
/// # Errors
/// Of the device.
pub fn read(device: &dyn BlockDevice) -> Result<Option<[u8; LEN]>> {
    if device.len() < SUPERBLOCK_OFFSET + len64(LEN) {
        return Ok(None);
    }
    let mut bytes = [0; LEN];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(Some(bytes))
}

/// Changes the bytes of a superblock. If its checksum is right, it stays right; if not, it is left
/// as it is: what was not to be believed before is not now.
pub fn change(superblock: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let was_right = SuperBlock::parse(superblock).is_ok();
    change(superblock);
    if let (true, Ok((superblock, _))) = (was_right, SuperBlock::mut_from_prefix(superblock)) {
        superblock.update_checksum();
    }
}

/// Writes the second sector, and returns when it is durable.
///
/// # Errors
/// Of the device.
pub fn write_second_sector(device: &dyn BlockDevice, superblock: &[u8; LEN]) -> Result<()> {
    let at = SUPERBLOCK_OFFSET + len64(SECTOR_LEN);
    device.write_at(at, &superblock[SECTOR_LEN..])?;
    Ok(device.flush()?)
}

/// Marks the superblock as one of a file system with errors, and returns when that is durable:
/// whatever becomes of the blocks that are written next, the file system is examined before it is
/// used. One that cannot be believed is left alone.
///
/// # Errors
/// Of the device.
pub fn mark_errors(device: &dyn BlockDevice) -> Result<()> {
    let Some(mut bytes) = read(device)? else {
        return Ok(());
    };
    let before = bytes;
    change(&mut bytes, |bytes| {
        if let Ok((superblock, _)) = SuperBlock::mut_from_prefix(bytes) {
            superblock.s_state = (superblock.s_state.get() | STATE_ERROR).into();
        }
    });
    if SuperBlock::parse(&before).is_err() || bytes == before {
        return Ok(());
    }
    device.write_at(SUPERBLOCK_OFFSET, &bytes)?;
    Ok(device.flush()?)
}

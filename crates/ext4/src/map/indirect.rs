//! Direct, indirect, double and triple indirect blocks, as ext2 and ext3 map files.

use std::sync::Arc;

use uext4_ondisk::inode::NDIR_BLOCKS;
use uext4_ondisk::{Lblk, Pblk};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::mapping::{MapState, Mapping};
use crate::base::owner::{Kind, tag};
use crate::inode::Inode;

/// What `lblk` and up to `len - 1` blocks after it are; never past one table of block numbers.
pub(crate) fn map(disk: &Disk, inode: &Inode, lblk: Lblk, len: u32) -> Result<Mapping> {
    let root = numbers(&inode.i_block);
    let direct = NDIR_BLOCKS as u32;
    if lblk.0 < direct {
        return run(disk, &root[..NDIR_BLOCKS], lblk.0 as usize, lblk, len);
    }
    let log = disk.geometry().block_size.log2() - 2;
    let mut rest = u64::from(lblk.0 - direct);
    let mut level = 1;
    while rest >= 1 << (log * level) {
        rest -= 1 << (log * level);
        level += 1;
        if level > 3 {
            return Err(Error::FileTooBig);
        }
    }
    let mut table = root
        .get(NDIR_BLOCKS + level as usize - 1)
        .map_or(0, |n| n.get());
    loop {
        level -= 1;
        if table == 0 {
            // A hole as large as what the missing table would describe.
            let room = (1u64 << (log * (level + 1))) - rest;
            return Ok(Mapping::hole(lblk, room.min(len.into()) as u32));
        }
        let data = read_table(disk, Pblk(table.into()))?;
        let entries = numbers(&data);
        let index = (rest >> (log * level)) as usize;
        if level == 0 {
            return run(disk, entries, index, lblk, len);
        }
        table = entries.get(index).map_or(0, |n| n.get());
        rest &= (1 << (log * level)) - 1;
    }
}

/// Reads a block of block numbers.
pub(crate) fn read_table(disk: &Disk, block: Pblk) -> Result<Arc<[u8]>> {
    let buffer = disk.bread("indirect block", block, tag(Kind::Indirect), |_| Ok(()))?;
    Ok(buffer.data())
}

/// The block numbers in `i_block` or a table; 0 means a hole.
pub(crate) fn numbers(bytes: &[u8]) -> &[U32] {
    // OK to default: both i_block and blocks are multiples of four bytes long.
    <[U32]>::ref_from_bytes(bytes).unwrap_or_default()
}

/// The longest run from `entries[index]` on that is one hole or adjacent on the device.
fn run(disk: &Disk, entries: &[U32], index: usize, lblk: Lblk, len: u32) -> Result<Mapping> {
    let rest = entries.get(index..).unwrap_or_default();
    let first = rest.first().map_or(0, |n| n.get());
    let same = rest
        .iter()
        .take(len as usize)
        .enumerate()
        .take_while(|(i, n)| match first {
            0 => n.get() == 0,
            _ => u64::from(n.get()) == u64::from(first) + *i as u64,
        })
        .count() as u32;
    if first == 0 {
        return Ok(Mapping::hole(lblk, same.max(1)));
    }
    disk.check_range("block map", Pblk(first.into()), same.into())?;
    Ok(Mapping {
        lblk,
        len: same,
        pblk: Pblk(first.into()),
        state: MapState::Written,
    })
}

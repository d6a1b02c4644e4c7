//! Direct, indirect, double and triple indirect blocks, as ext2 and ext3 map files.

use std::sync::Arc;

use uext4_ondisk::indirect::{Reach, Segment, number_at, numbers};
use uext4_ondisk::inode::NDIR_BLOCKS;
use uext4_ondisk::{Lblk, Pblk};
use zerocopy::little_endian::U32;

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::mapping::{MapState, Mapping};
use crate::base::owner::{Kind, tag};
use crate::inode::Inode;

/// What `lblk` and up to `len - 1` blocks after it are; never past one table of block numbers.
pub(crate) fn map(disk: &Disk, inode: &Inode, lblk: Lblk, len: u32) -> Result<Mapping> {
    let root = numbers(&inode.i_block);
    let reach = Reach::new(disk.geometry().block_size);
    let segment = reach.segment(lblk.0.into(), len.into());
    let Segment { tree, place, .. } = segment.ok_or(Error::FileTooBig)?;
    if tree == 0 {
        return run(disk, &root[..NDIR_BLOCKS], lblk.0 as usize, lblk, len);
    }
    let mut table = number_at(&inode.i_block, NDIR_BLOCKS + tree - 1);
    let mut level = tree;
    loop {
        if table == 0 {
            // A hole as large as what the missing table would describe.
            let size = reach.size(level);
            let room = size - place % size;
            return Ok(Mapping::hole(lblk, room.min(len.into()) as u32));
        }
        let data = read_table(disk, Pblk(table.into()))?;
        let index = reach.index(place, level);
        if level == 1 {
            return run(disk, numbers(&data), index, lblk, len);
        }
        table = number_at(&data, index);
        level -= 1;
    }
}

/// Reads a block of block numbers.
pub(crate) fn read_table(disk: &Disk, block: Pblk) -> Result<Arc<[u8]>> {
    let buffer = disk.bread("indirect block", block, tag(Kind::Indirect), |_| Ok(()))?;
    Ok(buffer.data())
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

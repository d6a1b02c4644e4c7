//! Writing a layout to a device.
//!
//! Everything is collected into large batches; the primary superblock is written alone and last,
//! after a flush, so that a device that was cut short is not taken for a file system.

use uext4_blockdev::verity::wipe_behind;
use uext4_blockdev::{BlockDevice, WriteRequest};
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{GroupNr, Pblk};
use zerocopy::IntoBytes;

use crate::Error;
use crate::bitmaps::{block_bitmap, inode_bitmap};
use crate::gdt;
use crate::layout::Layout;

/// Bytes collected before they are written: few enough to stay in a core's cache.
const BATCH_LEN: usize = 1 << 20;
/// Bytes at the start where partition tables and other file systems are looked for.
const HEAD_LEN: u64 = 4096;
/// Bytes at the end where RAID members are looked for.
const TAIL_LEN: u64 = 64 << 10;
/// Bytes of a superblock.
const SUPERBLOCK_LEN: usize = size_of::<SuperBlock>();

/// Writes an empty file system. The device is the window it shall lie in: `-E offset` is the
/// caller's to apply.
///
/// # Errors
/// [`Error::DeviceTooSmall`], [`Error::Device`]. The device then holds no file system.
pub fn format(layout: &Layout, device: &dyn BlockDevice) -> Result<(), Error> {
    let need = layout.len_bytes();
    if need > device.len() {
        return Err(Error::DeviceTooSmall {
            need,
            have: device.len(),
        });
    }
    let mut batch = Batch::new(device);
    clear(layout, &mut batch)?;
    wipe_tree(layout, device)?;
    write_bitmaps(layout, &mut batch)?;
    write_inodes(layout, &mut batch)?;
    for (block, bytes) in &layout.blocks {
        let zeroes = layout.geometry.block_size.len() - bytes.len();
        batch.put_padded(offset(layout, *block), bytes, zeroes)?;
    }
    write_descriptors(layout, &mut batch)?;
    batch.write()?;
    device.flush()?;
    device.write_at(SUPERBLOCK_OFFSET, layout.superblock.as_bytes())?;
    device.flush()?;
    Ok(())
}

/// Writes collected until there are enough of them.
#[derive(Debug)]
struct Batch<'d> {
    device: &'d dyn BlockDevice,
    bytes: Vec<u8>,
    /// Offset on the device and length, in the order of `bytes`.
    pieces: Vec<(u64, usize)>,
}

impl<'d> Batch<'d> {
    fn new(device: &'d dyn BlockDevice) -> Self {
        Self {
            device,
            bytes: Vec::with_capacity(BATCH_LEN),
            pieces: Vec::new(),
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.put_padded(offset, bytes, 0)
    }

    /// As [`Batch::put`], with so many zeroes after the bytes.
    fn put_padded(&mut self, offset: u64, bytes: &[u8], zeroes: usize) -> Result<(), Error> {
        let new = bytes.len() + zeroes;
        if self.bytes.len() + new > BATCH_LEN {
            self.write()?;
        }
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len() + zeroes, 0);
        match self.pieces.last_mut() {
            Some((at, len)) if *at + *len as u64 == offset => *len += new,
            _ => self.pieces.push((offset, new)),
        }
        Ok(())
    }

    fn put_zeroes(&mut self, offset: u64, len: u64) -> Result<(), Error> {
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let here = (len - done).min(zeroes.len() as u64);
            self.put(offset + done, &zeroes[..here as usize])?;
            done += here;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        let mut rest = self.bytes.as_slice();
        let mut requests = Vec::with_capacity(self.pieces.len());
        for &(offset, len) in &self.pieces {
            let (buf, after) = rest.split_at(len);
            requests.push(WriteRequest { offset, buf });
            rest = after;
        }
        self.device.write_many(&requests)?;
        self.bytes.clear();
        self.pieces.clear();
        Ok(())
    }
}

/// Byte offset of a block; the geometry was checked to fit 64 bits.
fn offset(layout: &Layout, block: Pblk) -> u64 {
    block.0 << layout.geometry.block_size.log2()
}

/// Makes what must read as zeroes do so. What was recognised on the device before goes first, and
/// is gone for good before anything else is written.
fn clear(layout: &Layout, batch: &mut Batch<'_>) -> Result<(), Error> {
    if layout.zeroing.assumed {
        return Ok(());
    }
    let len = layout.len_bytes();
    if layout.zeroing.discard {
        batch.device.discard(0, len)?;
        batch.device.flush()?;
        return Ok(());
    }
    let tail = TAIL_LEN.min(len);
    batch.put_zeroes(0, HEAD_LEN.min(len))?;
    batch.put_zeroes(len - tail, tail)?;
    batch.write()?;
    batch.device.flush()?;
    zero_tables(layout, batch)?;
    if layout.zeroing.journal {
        for run in &layout.journal {
            let bytes = run.len << layout.geometry.block_size.log2();
            batch.put_zeroes(offset(layout, Pblk(run.start)), bytes)?;
        }
    }
    Ok(())
}

/// Gives up what verified an old file system of the same length.
fn wipe_tree(layout: &Layout, device: &dyn BlockDevice) -> Result<(), Error> {
    match layout.zeroing.assumed {
        true => Ok(()),
        false => Ok(wipe_behind(device, layout.len_bytes())?),
    }
}

/// Writes zeroes over inode tables: all of them, or only what is in use.
fn zero_tables(layout: &Layout, batch: &mut Batch<'_>) -> Result<(), Error> {
    let geometry = &layout.geometry;
    for desc in &layout.groups {
        let lazy = if layout.zeroing.lazy_tables {
            desc.itable_unused
        } else {
            0
        };
        let inodes = geometry.inodes_per_group.get() - lazy;
        let bytes = u64::from(inodes) * u64::from(geometry.inode_size);
        let whole = geometry.block_size.blocks_for(bytes) << geometry.block_size.log2();
        batch.put_zeroes(offset(layout, desc.inode_table), whole)?;
    }
    Ok(())
}

fn write_bitmaps(layout: &Layout, batch: &mut Batch<'_>) -> Result<(), Error> {
    let geometry = &layout.geometry;
    for (index, desc) in layout.groups.iter().enumerate() {
        let group = GroupNr(index as u32);
        if desc.flags & BG_BLOCK_UNINIT == 0 {
            let bits = block_bitmap(geometry, &layout.space, group);
            batch.put(offset(layout, desc.block_bitmap), &bits)?;
        }
        if desc.flags & BG_INODE_UNINIT == 0 {
            let used = geometry.inodes_per_group.get() - desc.free_inodes;
            let bits = inode_bitmap(geometry, used);
            batch.put(offset(layout, desc.inode_bitmap), &bits)?;
        }
    }
    Ok(())
}

fn write_inodes(layout: &Layout, batch: &mut Batch<'_>) -> Result<(), Error> {
    let geometry = &layout.geometry;
    let inode_size = u64::from(geometry.inode_size);
    for (&ino, bytes) in &layout.inodes {
        let Some((group, index)) = geometry.inode_group(uext4_ondisk::Ino(ino)) else {
            continue;
        };
        // OK to index: the geometry gives groups that exist.
        let table = offset(layout, layout.groups[group.0 as usize].inode_table);
        batch.put(table + u64::from(index) * inode_size, bytes)?;
    }
    Ok(())
}

/// Descriptor tables everywhere, and the backups of the superblock.
fn write_descriptors(layout: &Layout, batch: &mut Batch<'_>) -> Result<(), Error> {
    let geometry = &layout.geometry;
    let block_len = geometry.block_size.len();
    let table = gdt::table(geometry, &layout.groups);
    for (block, part) in gdt::copies(geometry) {
        let bytes = part.start as usize * block_len..part.end as usize * block_len;
        // OK to index: the copies name parts of this table.
        batch.put(offset(layout, block), &table[bytes])?;
    }
    for group in (1..geometry.groups_count.get()).map(GroupNr) {
        if !geometry.has_super(group) {
            continue;
        }
        let backup = layout.superblock.backup(group);
        let mut bytes = vec![0; block_len];
        bytes[..SUPERBLOCK_LEN].copy_from_slice(backup.as_bytes());
        batch.put(offset(layout, geometry.group_start(group)), &bytes)?;
    }
    Ok(())
}

//! Inodes in their tables: new ones, and changes of existing ones, through the cache.

use uext4_buffer_cache::Buffer;
use uext4_ondisk::inode::{RawInode, update_checksum};
use uext4_ondisk::{Ino, Pblk};

use crate::alloc::groups::NewIno;
use crate::base::error::{Error, Result};
use crate::base::owner::{Kind, tag};
use crate::journal::sbi::Sbi;

/// The number of an inode's block in its table, and the byte where it begins in that block.
/// Unlike for inodes that are read, the blocks around it are of no interest: most have
/// never been written.
fn offset(sbi: &Sbi, ino: Ino) -> Result<(u64, usize)> {
    let geometry = sbi.geometry();
    let (_, index) = geometry.inode_group(ino).ok_or(Error::NotFound)?;
    let offset = u64::from(index) * u64::from(geometry.inode_size);
    let at = offset as usize & (sbi.block_len() - 1);
    Ok((offset >> geometry.block_size.log2(), at))
}

/// The bytes of the inode at offset `at` of its block; the block is long enough.
fn slot<'a>(sbi: &Sbi, block: &'a mut [u8], at: usize) -> &'a mut [u8] {
    &mut block[at..at + usize::from(sbi.geometry().inode_size)]
}

fn finish(sbi: &Sbi, bytes: &mut [u8], ino: Ino, raw: &RawInode) {
    raw.store(bytes);
    if let Some(seed) = sbi.geometry().csum_seed {
        update_checksum(bytes, seed, ino, raw.i_generation.get());
    }
}

/// Writes a new inode. `tail` is stored after the known fields: the attributes in the body, or
/// nothing; it fits.
pub(super) fn write_new(sbi: &Sbi, new: NewIno, raw: &RawInode, tail: &[u8]) -> Result<()> {
    let (_, at) = offset(sbi, new.ino)?;
    let buffer = read(sbi, new.block)?;
    buffer.modify(|block| {
        let bytes = slot(sbi, block, at);
        bytes.fill(0);
        put_tail(bytes, tail);
        finish(sbi, bytes, new.ino, raw);
    });
    Ok(())
}

/// Stores the tail at the end of the inode.
fn put_tail(bytes: &mut [u8], tail: &[u8]) {
    if !tail.is_empty() {
        let at = bytes.len() - tail.len();
        bytes[at..].copy_from_slice(tail);
    }
}

/// Changes an inode that is in use: its fields, and with `tail` all bytes after them.
///
/// Fails with damage of the inode, errors of `f` (then nothing has changed), or device errors.
pub(super) fn update<R>(
    sbi: &Sbi,
    ino: Ino,
    tail: Option<&[u8]>,
    f: impl FnOnce(&mut RawInode) -> Result<R>,
) -> Result<R> {
    let (block, at) = offset(sbi, ino)?;
    let (group, _) = sbi.geometry().inode_group(ino).ok_or(Error::NotFound)?;
    // Opening the file system has checked that the table lies in it.
    let block = Pblk(sbi.inode_table(group)?.0 + block);
    read(sbi, block)?.modify(|block| {
        let bytes = slot(sbi, block, at);
        let mut raw = RawInode::parse(bytes, ino)?;
        if raw.i_mode.get() == 0 && raw.i_links_count.get() == 0 {
            return Err(Error::NotFound);
        }
        let result = f(&mut raw)?;
        if let Some(tail) = tail {
            let known = bytes.len().min(uext4_ondisk::inode::RAW_INODE_LEN);
            bytes[known..].fill(0);
            put_tail(bytes, tail);
        }
        finish(sbi, bytes, ino, &raw);
        Ok(result)
    })
}

fn read(sbi: &Sbi, block: Pblk) -> Result<Buffer> {
    sbi.bread("inode table", block, tag(Kind::InodeTable), |_| Ok(()))
}

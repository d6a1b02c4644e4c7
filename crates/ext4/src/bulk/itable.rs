//! Inodes in their tables: new ones, and changes of existing ones, through the cache.

use uext4_buffer_cache::Buffer;
use uext4_ondisk::inode::{RawInode, update_checksum};
use uext4_ondisk::{Damage, Ino, Pblk};

use super::groups::{Groups, NewIno};
use crate::error::{Error, Result};
use crate::sbi::{Kind, Sbi, tag};

/// Block of the table that holds the inode, and its place there.
fn place(sbi: &Sbi, groups: &Groups, ino: Ino) -> Result<(Pblk, usize)> {
    let geometry = sbi.geometry();
    let (group, index) = geometry.inode_group(ino).ok_or(Damage::InodeNumber {
        what: "inode to be written",
        ino,
        inodes_count: geometry.inodes_count,
    })?;
    let offset = u64::from(index) * u64::from(geometry.inode_size);
    let block = groups.inode_table(group).0 + (offset >> geometry.block_size.log2());
    Ok((Pblk(block), offset as usize & (sbi.block_len() - 1)))
}

/// The bytes of the inode at `at` of its block; the block is at least that long.
fn slot<'a>(sbi: &Sbi, block: &'a mut [u8], at: usize) -> &'a mut [u8] {
    &mut block[at..at + usize::from(sbi.geometry().inode_size)]
}

fn finish(sbi: &Sbi, bytes: &mut [u8], ino: Ino, raw: &RawInode) {
    raw.store(bytes);
    if let Some(seed) = sbi.geometry().csum_seed {
        update_checksum(bytes, seed, ino, raw.i_generation.get());
    }
}

/// Writes an inode for the first time. `tail` is what follows the known fields: the attributes in the
/// body, or nothing; it fits.
///
/// # Errors
/// Device errors.
pub(super) fn write_new(
    sbi: &Sbi,
    groups: &Groups,
    new: NewIno,
    raw: &RawInode,
    tail: &[u8],
) -> Result<()> {
    let (block, at) = place(sbi, groups, new.ino)?;
    read(sbi, block)?.modify(|block| {
        let bytes = slot(sbi, block, at);
        bytes.fill(0);
        put_tail(bytes, tail);
        finish(sbi, bytes, new.ino, raw);
    });
    Ok(())
}

/// Puts what follows the known fields at the end of the inode.
fn put_tail(bytes: &mut [u8], tail: &[u8]) {
    if !tail.is_empty() {
        let at = bytes.len() - tail.len();
        bytes[at..].copy_from_slice(tail);
    }
}

/// Changes an inode that is in use: its fields, and with `tail` all that follows them.
///
/// # Errors
/// Damage of the inode, errors of `f` (then nothing is changed), device errors.
pub(super) fn update<R>(
    sbi: &Sbi,
    groups: &Groups,
    ino: Ino,
    tail: Option<&[u8]>,
    f: impl FnOnce(&mut RawInode) -> Result<R>,
) -> Result<R> {
    let (block, at) = place(sbi, groups, ino)?;
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

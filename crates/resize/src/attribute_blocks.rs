//! Blocks of extended attributes, which inodes may share: they move inode by inode.

use std::collections::HashMap;

use uext4_ondisk::inode::RawInode;
use uext4_ondisk::num::{hi32, join32, lo16, lo32};
use uext4_ondisk::xattr::{
    XATTR_BLOCK_HEADER_LEN, XATTR_REFCOUNT_MAX, XattrEntry, XattrPlace, XattrValue, parse_entries,
    put_block_header, verify_block,
};
use uext4_ondisk::{Ino, Pblk};

use crate::batch::Batch;
use crate::{Error, Result};

/// Where blocks of attributes are now, by where they were.
#[derive(Debug, Default)]
pub struct AttributeBlocks {
    moved: HashMap<Pblk, Pblk>,
}

/// The block of an inode's attributes.
pub fn block_of(raw: &RawInode) -> Option<Pblk> {
    let block = Pblk(join32(raw.i_file_acl_lo, raw.i_file_acl_high));
    (block.0 != 0).then_some(block)
}

impl AttributeBlocks {
    /// Gives the inode a copy of its block in what stays, which inodes share as they did. Returns
    /// whether the block goes.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Unsound`], those of the device.
    pub fn take(&mut self, batch: &mut Batch<'_>, ino: Ino, bytes: &mut [u8]) -> Result<bool> {
        let mut raw = RawInode::parse(bytes, ino)?;
        let Some(old) = block_of(&raw).filter(|block| block.0 >= batch.limit.0) else {
            return Ok(false);
        };
        let new = match self.moved.get(&old) {
            Some(&new) => {
                change_users(batch, new, 1)?;
                new
            }
            None => {
                let content = batch.block(old)?;
                let header = verify_block(&content, old, batch.geometry().csum_seed)?;
                let at = XattrPlace::Block(old);
                let entries = parse_entries(&content, XATTR_BLOCK_HEADER_LEN, at)?;
                let in_inodes =
                    |entry: &XattrEntry<'_>| matches!(entry.value, XattrValue::Inode { .. });
                if header.h_refcount.get() > 1 && entries.iter().any(in_inodes) {
                    // Each block counts as a user of these inodes, and for a while there are two.
                    let what = "files past the new end that share attributes whose values are \
                                inodes (ea_inode)";
                    return Err(Error::Unsupported { what });
                }
                let new = batch.allocate(1)?.start;
                batch.put(new, content);
                set_users(batch, new, 1)?;
                self.moved.insert(old, new);
                new
            }
        };
        if change_users(batch, old, -1)? == 0 {
            batch.free(old, 1)?;
        }
        raw.i_file_acl_lo = lo32(new.0).into();
        raw.i_file_acl_high = lo16(hi32(new.0)).into();
        raw.store(bytes);
        Ok(true)
    }
}

/// Counts one user more or less. Returns how many there are.
fn change_users(batch: &mut Batch<'_>, block: Pblk, by: i32) -> Result<u32> {
    let bytes = batch.block(block)?;
    let users = verify_block(&bytes, block, None)?.h_refcount.get();
    let users = users.checked_add_signed(by);
    let what = "a block of attributes has another number of users than it says";
    let users = users
        .filter(|&users| users <= XATTR_REFCOUNT_MAX)
        .ok_or(Error::Unsound { what })?;
    set_users(batch, block, users)?;
    Ok(users)
}

fn set_users(batch: &mut Batch<'_>, block: Pblk, users: u32) -> Result<()> {
    let seed = batch.geometry().csum_seed;
    let bytes = batch.edit(block)?;
    let hash = verify_block(bytes, block, None)?.h_hash.get();
    put_block_header(bytes, block, users, hash, seed);
    Ok(())
}

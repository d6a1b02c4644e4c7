//! Changes inline directories, and converts them to a block when they are full.
//!
//! ```text
//! i_block      parent (4) | records (56)
//! system.data  records
//! ```
//! "." and ".." are not stored. In a block they come first and the records follow unchanged, so
//! that the position of a record is the same before and after the conversion. Not implemented:
//! creating inline directories, and making space by extending the attribute.

use uext4_ondisk::dir_block::{
    self, Found, INLINE_PARENT_LEN, NewEntry, Spot, inline_parent, put_inline_parent,
};
use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags};
use uext4_ondisk::xattr::{
    INDEX_SYSTEM, INLINE_DATA_NAME, XATTR_IBODY_HEADER_LEN, XattrPlace, XattrValue, pack_body,
    parse_disjoint_entries,
};
use uext4_ondisk::{Ino, Lblk, Pblk};

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::dir::grow::grow;
use crate::dir::{format, owner};
use crate::inode::Inode;
use crate::inode::inline::inline_data;
use crate::inode::store::change_bytes;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;

/// The two regions of records.
fn regions(data: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    // OK to split: `i_block` always comes first.
    let (first, second) = data.split_at_mut(I_BLOCK_LEN);
    [&mut first[INLINE_PARENT_LEN..], second].into_iter()
}

/// The block that damage names for records of a region: none.
const NO_BLOCK: Option<Pblk> = None;

/// Adds a name; returns false without a change if there is no space.
pub(crate) fn add(handle: &Handle<'_>, dir: &mut Inode, new: &NewEntry<'_>) -> Result<bool> {
    let mut data = inline_data(handle.sbi(), dir)?;
    let mut place = None;
    for (i, region) in regions(&mut data).enumerate() {
        match dir_block::scan(region, NO_BLOCK, region.len(), new.name)? {
            Spot::Exists => return Err(Error::Exists),
            Spot::Space(offset) if place.is_none() => place = Some((i, offset)),
            _ => {}
        }
    }
    let Some((region, offset)) = place else {
        return Ok(false);
    };
    if let Some(region) = regions(&mut data).nth(region) {
        dir_block::insert(region, offset, new);
    }
    put_data(handle, dir, &data)?;
    Ok(true)
}

/// Changes the record of a name; returns the inode that it referred to.
pub(crate) fn change(
    handle: &Handle<'_>,
    dir: &mut Inode,
    name: &[u8],
    f: impl FnOnce(&mut [u8], &Found),
) -> Result<Ino> {
    let mut data = inline_data(handle.sbi(), dir)?;
    let mut place = None;
    for region in regions(&mut data) {
        if let Some(found) = dir_block::find(region, NO_BLOCK, region.len(), name)? {
            f(region, &found);
            place = Some(found);
            break;
        }
    }
    let found = place.ok_or(Error::NotFound)?;
    put_data(handle, dir, &data)?;
    Ok(found.ino)
}

/// Sets another parent; returns the old one.
pub(crate) fn replace_parent(dir: &mut Inode, parent: Ino) -> Ino {
    let old = inline_parent(&dir.i_block);
    put_inline_parent(&mut dir.i_block, parent);
    old
}

/// Stores the data that [`inline_data`] returned.
fn put_data(handle: &Handle<'_>, dir: &mut Inode, data: &[u8]) -> Result<()> {
    let (first, second) = data.split_at(I_BLOCK_LEN);
    if !second.is_empty() {
        put_value(handle, dir, Some(second))?;
    }
    dir.i_block.copy_from_slice(first);
    Ok(())
}

/// Replaces the value of `system.data` by one of the same length, or removes it.
fn put_value(handle: &Handle<'_>, dir: &Inode, value: Option<&[u8]>) -> Result<()> {
    let Some(at) = dir.xattr_offset else {
        return Ok(());
    };
    change_bytes(handle.sbi(), handle, dir.id(), |bytes| {
        let region = bytes.get_mut(at.into()..).unwrap_or_default();
        let before = region.to_vec();
        let list = before.get(XATTR_IBODY_HEADER_LEN..).unwrap_or_default();
        let mut entries = parse_disjoint_entries(list, 0, XattrPlace::Inode(dir.ino))?;
        entries.retain_mut(|entry| {
            if entry.index != INDEX_SYSTEM || entry.name != INLINE_DATA_NAME {
                return true;
            }
            if let Some(value) = value {
                entry.value = XattrValue::Here(value);
            }
            value.is_some()
        });
        Ok(pack_body(region, &entries)?)
    })
}

/// The contents of the block that the directory would have.
pub(crate) fn as_block(sbi: &Sbi, dir: &Inode) -> Result<Vec<u8>> {
    let mut data = inline_data(sbi, dir)?;
    let parent = inline_parent(&dir.i_block);
    let mut block = vec![0; sbi.block_len()];
    let format = format(sbi);
    let regions = regions(&mut data).map(|region| &*region);
    format.fill_from_inline(&mut block, format.dots(dir.ino, parent), regions)?;
    Ok(block)
}

/// Moves the entries into a block.
///
/// Fails with [`Error::NoSpace`] with nothing changed, damage, device errors.
pub(crate) fn convert(handle: &Handle<'_>, dir: &mut Inode) -> Result<()> {
    let sbi = handle.sbi();
    let block = as_block(sbi, dir)?;
    let mut with_block = dir.clone();
    with_block.flags.remove(InodeFlags::INLINE_DATA);
    with_block.size = 0;
    with_block.i_block = [0; I_BLOCK_LEN];
    if sbi.has_extents() {
        with_block.flags |= InodeFlags::EXTENTS;
        with_block.i_block = empty_extent_root();
    }
    let mut grown = grow(handle, &mut with_block, 1)?;
    handle.failed(put_value(handle, dir, None))?;
    if let Some((_, at)) = grown.next() {
        handle.change(&handle.fresh(at), owner(dir, Lblk(0)), |bytes| {
            bytes.copy_from_slice(&block);
        });
    }
    *dir = with_block;
    Ok(())
}

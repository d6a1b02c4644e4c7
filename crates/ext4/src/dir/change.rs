//! Changes the entries of a directory: linear ones here, hashed ones with the help of
//! `htree_change`.
//!
//! The caller holds the directory exclusively, has started a handle with the credits that a
//! function needs, and stores the inode afterwards. If an error guarantees that nothing was
//! changed, the handle may be used for something else; after any other error writing has ended.
//! Not done here: link counts, times, and checks whether the change is valid (`names`).

use uext4_buffer_cache::Buffer;
use uext4_ondisk::dir_block::{self, Found, NewEntry, Spot};
use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Ino, Lblk};

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::dir::grow::{GROW_MAX, credits_grow, grow};
use crate::dir::htree;
use crate::dir::htree_change;
use crate::dir::inline_dir;
use crate::dir::namei::check_name;
use crate::dir::{DirCursor, check_is_dir, find_linear, format, is_dx, owner};
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;

/// Maximum number of blocks of a directory that one new name changes: its leaf, the nodes above
/// it, and new blocks.
const ADD_BLOCKS: u32 = 4 + GROW_MAX as u32;

/// Credits that [`add`] may need.
pub(crate) fn credits_add(sbi: &Sbi, dir: &Inode) -> u32 {
    ADD_BLOCKS + credits_grow(sbi, dir, GROW_MAX)
}

/// Credits that [`delete`] may need.
pub(crate) fn credits_delete(_: &Sbi, _: &Inode) -> u32 {
    1
}

/// Credits that [`replace`] may need.
pub(crate) fn credits_replace(_: &Sbi, _: &Inode) -> u32 {
    1
}

/// Credits that [`init`] may need.
pub(crate) fn credits_init(sbi: &Sbi, dir: &Inode) -> u32 {
    1 + credits_grow(sbi, dir, 1)
}

/// Fails with [`Error::NotDirectory`], [`Error::Encrypted`], and [`Error::Unsupported`] if names
/// are not compared as stored.
fn check_changeable(dir: &Inode) -> Result<()> {
    check_is_dir(dir)?;
    if dir.has(InodeFlags::ENCRYPT) {
        return Err(Error::Encrypted);
    }
    if dir.has(InodeFlags::CASEFOLD) {
        let what = "changing case-insensitive directories".to_owned();
        return Err(Error::Unsupported { what });
    }
    Ok(())
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// Creates "." and ".." in a new directory, which has no blocks yet.
///
/// Fails with [`Error::NoSpace`] with nothing changed, damage, device errors.
pub(crate) fn init(handle: &Handle<'_>, dir: &mut Inode, parent: Ino) -> Result<()> {
    let dots = format(handle.sbi()).dots(dir.ino, parent);
    append(handle, dir, dots.into_iter())
}

/// Appends a block of records.
fn append<'a>(
    handle: &Handle<'_>,
    dir: &mut Inode,
    records: impl Iterator<Item = NewEntry<'a>>,
) -> Result<()> {
    let format = format(handle.sbi());
    if let Some((lblk, block)) = grow(handle, dir, 1)?.next() {
        handle.change(&handle.fresh(block), owner(dir, lblk), |bytes| {
            format.fill(bytes, records);
        });
    }
    Ok(())
}

/// Adds a name.
///
/// Fails with [`Error::Exists`], [`Error::NoSpace`], [`Error::DirectoryFull`],
/// [`Error::NameTooLong`] and [`Error::Invalid`] with nothing changed; damage, device errors.
pub(crate) fn add(
    handle: &Handle<'_>,
    dir: &mut Inode,
    name: &[u8],
    ino: Ino,
    file_type: FileType,
) -> Result<()> {
    check_name(name)?;
    check_changeable(dir)?;
    let new = NewEntry {
        name,
        ino,
        file_type: format(handle.sbi()).file_type(file_type),
    };
    add_entry(handle, dir, &new)?;
    handle.rw().names.put(dir.ino, name, ino);
    Ok(())
}

fn add_entry(handle: &Handle<'_>, dir: &mut Inode, new: &NewEntry<'_>) -> Result<()> {
    if dir.has(InodeFlags::INLINE_DATA) {
        if inline_dir::add(handle, dir, new)? {
            return Ok(());
        }
        inline_dir::convert(handle, dir)?;
        return handle.failed(add_linear(handle, dir, new));
    }
    if is_dx(handle.sbi(), dir) {
        return htree_change::add(handle, dir, new);
    }
    add_linear(handle, dir, new)
}

fn add_linear(handle: &Handle<'_>, dir: &mut Inode, new: &NewEntry<'_>) -> Result<()> {
    let sbi = handle.sbi();
    let room = format(sbi).room();
    let mut cursor = DirCursor::new(sbi, dir)?;
    let mut place: Option<(Lblk, Buffer, usize)> = None;
    let mut first = None;
    while let Some(next) = cursor.next_buffer(sbi, dir) {
        let (lblk, buffer) = next?;
        match dir_block::scan(&buffer.data(), buffer.block(), room, new.name)? {
            Spot::Exists => return Err(Error::Exists),
            Spot::Space(offset) if place.is_none() => place = Some((lblk, buffer, offset)),
            _ if lblk.0 == 0 => first = Some(buffer),
            _ => {}
        }
    }
    if let Some((lblk, buffer, offset)) = place {
        handle.change(&buffer, owner(dir, lblk), |bytes| {
            dir_block::insert(bytes, offset, new);
        });
        return Ok(());
    }
    let one_block = dir.size == sbi.block_len() as u64;
    match first.filter(|_| one_block && may_hash(sbi)) {
        Some(first) => htree_change::make(handle, dir, &first, new),
        None => append(handle, dir, [*new].into_iter()),
    }
}

/// Whether a directory that outgrows its first block gets an htree.
pub(crate) fn may_hash(sbi: &Sbi) -> bool {
    let code = sbi.superblock().s_def_hash_version;
    let index = sbi.geometry().features.compat.contains(Compat::DIR_INDEX);
    index && htree::hash_version(sbi, code).is_ok()
}

/// Finds the position of a name.
fn locate(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<(Lblk, Buffer, Found)> {
    if is_dx(sbi, dir) && !is_dot(name) {
        return htree::find(sbi, dir, name)?.ok_or(Error::NotFound);
    }
    // The ".." of an htree's root extends to the end of its block, over the hashes.
    let room = match is_dx(sbi, dir) {
        true => sbi.block_len(),
        false => format(sbi).room(),
    };
    let mut cursor = DirCursor::new(sbi, dir)?;
    while let Some(next) = cursor.next_buffer(sbi, dir) {
        let (lblk, buffer) = next?;
        let found = dir_block::find(&buffer.data(), buffer.block(), room, name)?;
        if let Some(found) = found {
            return Ok((lblk, buffer, found));
        }
    }
    Err(Error::NotFound)
}

/// Removes a name; returns the inode that it referred to.
///
/// Fails with [`Error::NotFound`] and [`Error::Invalid`] with nothing changed; damage, device
/// errors.
pub(crate) fn delete(handle: &Handle<'_>, dir: &mut Inode, name: &[u8]) -> Result<Ino> {
    check_name(name)?;
    check_changeable(dir)?;
    handle.rw().names.remove(dir.ino, name);
    if dir.has(InodeFlags::INLINE_DATA) {
        return inline_dir::change(handle, dir, name, dir_block::remove);
    }
    let (lblk, buffer, found) = locate(handle.sbi(), dir, name)?;
    handle.change(&buffer, owner(dir, lblk), |bytes| {
        dir_block::remove(bytes, &found);
    });
    Ok(found.ino)
}

/// Makes a name, which may be "..", refer to another inode; returns the previous inode.
///
/// Fails with [`Error::NotFound`] with nothing changed; damage, device errors.
pub(crate) fn replace(
    handle: &Handle<'_>,
    dir: &mut Inode,
    name: &[u8],
    ino: Ino,
    file_type: FileType,
) -> Result<Ino> {
    check_changeable(dir)?;
    handle.rw().names.remove(dir.ino, name);
    let sbi = handle.sbi();
    let file_type = format(sbi).file_type(file_type);
    if dir.has(InodeFlags::INLINE_DATA) {
        return match name {
            b".." => Ok(inline_dir::replace_parent(dir, ino)),
            _ => inline_dir::change(handle, dir, name, |bytes, found| {
                dir_block::replace(bytes, found, ino, file_type);
            }),
        };
    }
    let (lblk, buffer, found) = locate(sbi, dir, name)?;
    handle.change(&buffer, owner(dir, lblk), |bytes| {
        dir_block::replace(bytes, &found, ino, file_type);
    });
    Ok(found.ino)
}

/// Whether the directory contains only "." and "..".
pub(crate) fn is_empty(sbi: &Sbi, dir: &Inode) -> Result<bool> {
    let name = find_linear(sbi, dir, |entry| !is_dot(entry.name))?;
    Ok(name.is_none())
}

#[cfg(test)]
mod tests;

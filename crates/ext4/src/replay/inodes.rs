//! Replay of the inodes: their numbers, their contents, and their final state.

use std::mem::offset_of;

use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::num::len64;
use uext4_ondisk::{Ino, Lblk};

use crate::base::error::Result;
use crate::base::mapping::MapState;
use crate::dir;
use crate::file::evict::has_map;
use crate::inode::store::{change_bytes, store};
use crate::inode::{Inode, InodeId, iget, inode_bytes};
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map;
use crate::map::change::Progress;
use crate::map::map_blocks;
use crate::replay::plan::Fate;
use crate::replay::{misfit, ranges, too_large};
use crate::xattr;
use uext4_ondisk::fast_commit::{ChangedInode, End, FIXED_FLAGS};

/// Stores the recorded inode in the table, with the map that it had, or an empty map if it is
/// new.
pub(super) fn put(
    handle: &Handle<'_>,
    ino: Ino,
    fate: &Fate,
    change: Option<&ChangedInode>,
) -> Result<Inode> {
    let raw = change.and_then(|change| change.raw.as_deref());
    match (&fate.old, raw) {
        (Some(old), None) => Ok(old.clone()),
        (Some(old), Some(raw)) if fate.end == End::Stays => put_over(handle, old, raw),
        (old, raw) => {
            let is_dir = fate.kind == Some(FileType::Directory);
            match old {
                Some(old) => bury(handle, old)?,
                None => handle.take_inode_at(ino, is_dir)?,
            }
            let mut inode = put_new(handle, ino, raw.unwrap_or_default())?;
            if is_dir {
                dir::change::init(handle, &mut inode, fate.parent())?;
            }
            Ok(inode)
        }
    }
}

/// Frees everything that belongs to an inode whose number is reused.
fn bury(handle: &Handle<'_>, old: &Inode) -> Result<()> {
    let mut old = old.clone();
    if has_map(handle.sbi(), &old)
        && map::change::remove(handle, &mut old, Lblk(0), u32::MAX)? != Progress::Done
    {
        return Err(too_large());
    }
    xattr::change::delete_all(handle, &mut old)?;
    handle.remove_orphan(old.ino, old.generation)
}

/// Whether an inode has a block map, according to its type, flags and size.
fn maps(inode: &Inode, sbi: &Sbi) -> bool {
    // Only by the flags and the size: the blocks of a new inode are not counted yet.
    match inode.file_type {
        FileType::Symlink => inode.has(InodeFlags::EXTENTS) || inode.size >= len64(I_BLOCK_LEN),
        _ => has_map(sbi, inode),
    }
}

fn put_new(handle: &Handle<'_>, ino: Ino, raw: &[u8]) -> Result<Inode> {
    let sbi = handle.sbi();
    let mut bytes = vec![0; usize::from(sbi.geometry().inode_size)];
    overlay(&mut bytes, raw);
    let mut inode = write(handle, ino, &bytes)?;
    let features = sbi.geometry().features;
    let inline = features.incompat.contains(Incompat::INLINE_DATA);
    let impossible = inode.flags.intersects(FIXED_FLAGS)
        || inode.has(InodeFlags::EXTENTS) && !sbi.has_extents()
        || inode.has(InodeFlags::INLINE_DATA) && !inline;
    check_flags(&inode, !impossible)?;
    check_xattr_block(&inode, None)?;
    inode.flags.remove(InodeFlags::INDEX);
    if inode.file_type == FileType::Directory {
        inode.flags.remove(InodeFlags::INLINE_DATA);
        inode.flags.set(InodeFlags::EXTENTS, sbi.has_extents());
        inode.size = 0;
    }
    check_device(&inode)?;
    inode.blocks = 0;
    if maps(&inode, sbi) {
        empty_map(&mut inode);
    }
    Ok(inode)
}

/// Stores an inode that existed, with its map.
fn put_over(handle: &Handle<'_>, old: &Inode, raw: &[u8]) -> Result<Inode> {
    let sbi = handle.sbi();
    let mut old = old.clone();
    let (had_inline, flags) = (old.has(InodeFlags::INLINE_DATA), old.flags);
    let recorded = RawInode::parse(raw.get(..GOOD_OLD_INODE_SIZE).unwrap_or_default(), old.ino)?;
    let recorded = InodeFlags::from_bits_retain(recorded.i_flags.get());
    let is_dir = old.file_type == FileType::Directory;
    let leaves = had_inline && !is_dir && !recorded.contains(InodeFlags::INLINE_DATA);
    if leaves {
        xattr::change::drop_inline_data(handle, &mut old)?;
        store(handle, sbi, &old)?;
    }
    let mut bytes = inode_bytes(sbi, old.ino)?.to_vec();
    overlay(&mut bytes, raw);
    let mut inode = write(handle, old.ino, &bytes)?;
    let same = |mask: InodeFlags| inode.flags & mask == flags & mask;
    let layout = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    check_flags(
        &inode,
        same(FIXED_FLAGS) && (is_dir || leaves || same(layout)),
    )?;
    check_xattr_block(&inode, Some(&old))?;
    inode.blocks = old.blocks;
    if is_dir {
        inode.size = old.size;
        inode.flags = inode.flags.difference(InodeFlags::LAYOUT) | flags & InodeFlags::LAYOUT;
    }
    if leaves {
        inode.flags.set(InodeFlags::EXTENTS, sbi.has_extents());
        empty_map(&mut inode);
    } else if is_dir || !had_inline {
        inode.i_block = old.i_block;
    }
    Ok(inode)
}

fn empty_map(inode: &mut Inode) {
    inode.i_block = match inode.has(InodeFlags::EXTENTS) {
        true => empty_extent_root(),
        false => [0; I_BLOCK_LEN],
    };
}

/// Overwrites bytes with the recorded ones, except the field of the orphan list.
fn overlay(bytes: &mut [u8], raw: &[u8]) {
    let at = offset_of!(RawInode, i_dtime);
    let mut dtime = [0; 4];
    // OK to index: no inode is shorter than 128 bytes.
    dtime.copy_from_slice(&bytes[at..][..4]);
    let len = raw.len().min(bytes.len());
    bytes[..len].copy_from_slice(&raw[..len]);
    bytes[at..][..4].copy_from_slice(&dtime);
}

/// Writes the bytes of an inode and reads it back, which validates it.
fn write(handle: &Handle<'_>, ino: Ino, bytes: &[u8]) -> Result<Inode> {
    let sbi = handle.sbi();
    let generation = RawInode::parse(bytes, ino)?.i_generation.get();
    change_bytes(sbi, handle, InodeId { ino, generation }, |place| {
        place.copy_from_slice(bytes);
        Ok(())
    })?;
    iget(sbi, ino)
}

/// Fails with damage unless the flags are valid.
fn check_flags(inode: &Inode, are_fine: bool) -> Result<()> {
    if are_fine {
        return Ok(());
    }
    let why = "no fast commit sets or clears one of these";
    Err(misfit(inode.ino, "i_flags", inode.flags.bits().into(), why))
}

/// Fails with damage if a new device, pipe or socket has a size, or more than a device number in
/// the field of its map.
fn check_device(inode: &Inode) -> Result<()> {
    use FileType::{Directory, Regular, Symlink};
    let maps = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
    let is_fine = matches!(inode.file_type, Regular | Directory | Symlink)
        || inode.size == 0
            && !inode.flags.intersects(maps)
            && inode.i_block.iter().skip(2 * 4).all(|byte| *byte == 0);
    if is_fine {
        return Ok(());
    }
    let why = "a fast commit makes a device, pipe or socket with data";
    Err(misfit(inode.ino, "i_mode", inode.mode.into(), why))
}

/// Fails with damage if the xattr block has changed: fast commits do not record attributes.
fn check_xattr_block(inode: &Inode, old: Option<&Inode>) -> Result<()> {
    if inode.xattr_block == old.and_then(|old| old.xattr_block) {
        return Ok(());
    }
    let block = inode.xattr_block.map_or(0, |block| block.0);
    let why = "no fast commit describes attributes";
    Err(misfit(inode.ino, "i_file_acl", block, why))
}

/// Fails with damage if a new symbolic link has no target.
fn check_target(sbi: &Sbi, inode: &Inode) -> Result<()> {
    if inode.file_type != FileType::Symlink || inode.has(InodeFlags::INLINE_DATA) {
        return Ok(());
    }
    let len = usize::try_from(inode.size).unwrap_or(usize::MAX);
    let is_there = if maps(inode, sbi) {
        (I_BLOCK_LEN..sbi.block_len()).contains(&len)
            && map_blocks(sbi, inode, Lblk(0), 1)?.state == MapState::Written
    } else {
        let target = inode.i_block.get(..len).unwrap_or_default();
        !target.is_empty() && !target.contains(&0)
    };
    if is_there {
        return Ok(());
    }
    let why = "a fast commit makes a symbolic link without a target";
    Err(misfit(inode.ino, "i_size", inode.size, why))
}

/// Stores an inode with its final link count. If that is 0 it becomes an orphan, and so does a
/// file that must be truncated to its size.
pub(super) fn finish(handle: &Handle<'_>, mut inode: Inode, fate: &Fate) -> Result<()> {
    let sbi = handle.sbi();
    let was = inode.links;
    inode.links = fate.links;
    if fate.end == End::New {
        check_target(sbi, &inode)?;
    }
    if fate.end == End::Dies {
        if inode.file_type == FileType::Directory && !dir::change::is_empty(sbi, &inode)? {
            let why = "a fast commit takes the name of a directory with others in it";
            return Err(misfit(inode.ino, "names", 1, why));
        }
        handle.add_orphan(inode.ino, inode.generation)?;
    } else if ranges::has_data_past_end(sbi, &inode)? {
        handle.add_orphan(inode.ino, inode.generation)?;
    } else if was == 0 {
        handle.remove_orphan(inode.ino, inode.generation)?;
    }
    store(handle, sbi, &inode)
}

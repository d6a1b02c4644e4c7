//! Deletion of inodes, and truncation of the blocks past their new size.

use uext4_ondisk::Lblk;
use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags};

use crate::base::error::{Error, Result};
use crate::base::mapping::LblkRun;
use crate::file::pages::{forget_delayed, forget_mapped};
use crate::inode::Inode;
use crate::inode::icache::Cell;
use crate::inode::store::{store, store_deleted};
use crate::journal::handle::Handle;
use crate::journal::rw::Rw;
use crate::journal::sbi::Sbi;
use crate::map;
use crate::map::change::{Freed, Progress};
use crate::map::data_blocks;
use crate::orphan::change::Orphans;
use crate::xattr;

/// Credits of one step of unmapping a large file, at most, and where the journal is small.
const STEP_CREDITS: u32 = 256;
const STEP_CREDITS_SMALL: u32 = 64;
/// Credits for deleting an inode without mapped blocks: bitmap, table, attributes.
const DELETE_CREDITS: u32 = 4 + Orphans::CREDITS;

/// Deletes an inode that has no name and no user, and that is an orphan.
///
/// Fails with damage or device errors; the inode stays an orphan then.
pub(crate) fn evict(sbi: &Sbi, cell: &Cell) -> Result<()> {
    // Pages and preallocated blocks go first: a flusher that still wrote would map new blocks to
    // an inode whose blocks are being freed.
    cell.drop_pages();
    data_blocks::discard(sbi, cell);
    unmap_from(sbi, cell, Lblk(0))?;
    let handle = sbi.start(DELETE_CREDITS + xattr::change::credits_delete(sbi))?;
    let inode = &mut *cell.inode.write();
    let result = delete(&handle, inode);
    handle.failed(result)
}

/// Unmaps the blocks past the end of a file that is an orphan for that reason, and then removes
/// it from the orphan list.
pub(crate) fn cut_to_end(sbi: &Sbi, cell: &Cell) -> Result<()> {
    let size = cell.inode.read().size;
    let blocks = sbi.geometry().block_size.blocks_for(size);
    let rw = sbi.writable()?;
    let unmapped = match u32::try_from(blocks) {
        Ok(first) => unmap_from(sbi, cell, Lblk(first)),
        Err(_) => Ok(()),
    };
    let handle = unmapped.and_then(|()| sbi.start(Orphans::CREDITS));
    let handle = handle.inspect_err(|error| {
        if may_go_on(rw, error) {
            rw.unfinished.note_cut(cell.ino);
        }
    })?;
    rw.unfinished.cut(cell.ino);
    let inode = cell.inode.read();
    if inode.links > 0 {
        handle.failed(handle.remove_orphan(inode.ino, inode.generation))?;
    }
    Ok(())
}

/// Completes the truncation of a file that failed earlier for lack of space, as its data is about
/// to change. The caller holds the file's `Names` lock.
pub(crate) fn end_cut(sbi: &Sbi, cell: &Cell) -> Result<()> {
    match sbi.writable()?.unfinished.is_cut(cell.ino) {
        true => cut_to_end(sbi, cell),
        false => Ok(()),
    }
}

/// Whether a failed operation may be retried later: if the host had no space for the image, it
/// may have some by now.
pub(crate) fn may_go_on(rw: &Rw, error: &Error) -> bool {
    !rw.journal.is_aborted() && error.damage().is_none()
}

/// Deletes an inode that maps nothing.
pub(crate) fn delete(handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
    let sbi = handle.sbi();
    let id = inode.id();
    xattr::change::delete_all(handle, inode)?;
    if let Some(owners) = &inode.owners {
        owners.uncharge_inodes(handle, 1);
    }
    handle.remove_orphan(id.ino, id.generation)?;
    inode.links = 0;
    inode.size = 0;
    // A value that is no inode number: it cannot be mistaken for the next entry of a list.
    let now = handle.now().sec as u32;
    let dtime = now.max(sbi.geometry().inodes_count.saturating_add(1));
    // The inode is stored as deleted before its number is free: the thread that gets the number
    // next writes to the same record.
    store_deleted(handle, sbi, inode, dtime)?;
    // The number must not be reused while an old inode with that number is in memory.
    handle.rw().inodes.remove(inode.ino);
    handle.free_inode(inode.ino, inode.file_type == FileType::Directory)
}

/// Whether an inode may map blocks that can be unmapped.
pub(crate) fn has_map(sbi: &Sbi, inode: &Inode) -> bool {
    match inode.file_type {
        FileType::Regular | FileType::Directory => !inode.has(InodeFlags::INLINE_DATA),
        FileType::Symlink => !inode.has(InodeFlags::INLINE_DATA) && !inode.is_fast_symlink(sbi),
        _ => false,
    }
}

/// Whether an inode maps anything that can be unmapped, as far as its root shows.
pub(crate) fn maps_any(sbi: &Sbi, inode: &Inode) -> bool {
    let is_empty = match inode.has(InodeFlags::EXTENTS) {
        true => inode.i_block == empty_extent_root(),
        false => inode.i_block == [0; I_BLOCK_LEN],
    };
    !is_empty && has_map(sbi, inode)
}

/// Unmaps everything from `from` on, in as many handles as needed. The inode must be an orphan,
/// or the caller must tolerate a power cut in between.
pub(crate) fn unmap_from(sbi: &Sbi, cell: &Cell, from: Lblk) -> Result<()> {
    forget_delayed(sbi, cell, from, u32::MAX);
    let mut freed = Freed::default();
    let rest = LblkRun {
        start: from,
        len: u32::MAX,
    };
    while maps_any(sbi, &cell.inode.read()) {
        let handle = sbi.start(step_credits(sbi.writable()?.journal.credits_max()))?;
        let inode = &mut *cell.inode.write();
        if !maps_any(sbi, inode) {
            return Ok(());
        }
        forget_mapped(cell, from, u32::MAX);
        let result = unmap_step(&handle, inode, rest, &mut freed);
        cell.changed_in(handle.tid(), true);
        if handle.failed(result)? == Progress::Done {
            break;
        }
    }
    Ok(())
}

/// A step leaves most of a transaction to other operations: a step that used a whole transaction
/// would force a commit of everything before it, and so make a truncation durable before its file
/// can be written again.
fn step_credits(most: u32) -> u32 {
    STEP_CREDITS.min(most / 4).max(STEP_CREDITS_SMALL).min(most)
}

/// Performs one step of unmapping, and stores the inode. Directories and symlinks free their
/// blocks as metadata.
pub(crate) fn unmap_step(
    handle: &Handle<'_>,
    inode: &mut Inode,
    run: LblkRun,
    freed: &mut Freed,
) -> Result<Progress> {
    let progress = map::change::remove_part(handle, inode, run, freed)?;
    store(handle, handle.sbi(), inode)?;
    Ok(progress)
}

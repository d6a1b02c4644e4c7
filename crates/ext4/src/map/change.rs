//! Changes of what a file maps, whatever the inode uses for it: blocks in, blocks out, written or
//! not, moved along the file.
//!
//! All functions change `i_block` and [`Inode::blocks`] in memory and other blocks through the
//! handle; the caller holds the inode's lock and stores the inode afterwards, which takes one
//! credit more. What may take more than one handle says how far it came.

use uext4_ondisk::Lblk;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::InodeFlags;

use crate::base::error::{Error, Result};
use crate::base::mapping::LblkRun;
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map::check_mappable;
use crate::map::extent_path::credits_of_change;
use crate::map::extents_change;
use crate::map::file_blocks::credits_anywhere;
use crate::map::indirect_change;

pub(crate) use crate::map::file_blocks::Progress;
pub(crate) use crate::map::indirect_change::Freed;

/// Most credits of [`insert`] of an extent of `len` blocks.
pub(crate) fn credits_insert(sbi: &Sbi, inode: &Inode, len: u32) -> u32 {
    if inode.has(InodeFlags::EXTENTS) {
        credits_of_change(sbi, inode)
    } else {
        indirect_change::credits_insert(sbi, len)
    }
}

/// Credits that let [`remove`], [`mark_written`], [`mark_unwritten`] and [`shift`] make some
/// progress. With more they come further in one handle.
pub(crate) fn credits_step(sbi: &Sbi, inode: &Inode) -> u32 {
    if inode.has(InodeFlags::EXTENTS) {
        credits_of_change(sbi, inode) + credits_anywhere(sbi, 2)
    } else {
        indirect_change::credits_step(sbi)
    }
}

/// Maps blocks that are not mapped yet, and counts them.
///
/// Fails with [`Error::Invalid`] if one is mapped or the extent is empty or too long,
/// [`Error::NoSpace`] for the map itself, [`Error::FileTooBig`], [`Error::Unsupported`] for
/// unwritten blocks of a file without extents: nothing was changed then. Damage, device errors.
pub(crate) fn insert(handle: &Handle<'_>, inode: &mut Inode, extent: Extent) -> Result<()> {
    check_mappable(handle.sbi(), inode)?;
    if inode.has(InodeFlags::EXTENTS) {
        return extents_change::insert(handle, inode, extent);
    }
    if extent.unwritten {
        return Err(unsupported("unwritten blocks"));
    }
    indirect_change::insert(handle, inode, extent)
}

/// Unmaps `len` blocks from `lblk` on (`u32::MAX`: to the end), and frees them and whatever part of
/// the map that leaves empty. The last ones go first.
///
/// Fails with [`Error::NoSpace`] if the map had to grow, and nothing was changed; damage, device
/// errors.
pub(crate) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    lblk: Lblk,
    len: u32,
) -> Result<Progress> {
    let run = LblkRun { start: lblk, len };
    remove_part(handle, inode, run, &mut Freed::default())
}

/// As [`remove`], for what takes several handles: `freed` remembers from one to the next which
/// tables of a file without extents were freed, so that a map that leads to one twice comes to an
/// end.
pub(crate) fn remove_part(
    handle: &Handle<'_>,
    inode: &mut Inode,
    run: LblkRun,
    freed: &mut Freed,
) -> Result<Progress> {
    check_mappable(handle.sbi(), inode)?;
    if inode.has(InodeFlags::EXTENTS) {
        extents_change::remove(handle, inode, run.start, run.len)
    } else {
        indirect_change::remove(handle, inode, run, freed)
    }
}

/// Marks blocks, all of them mapped, as written; the first ones first.
///
/// Fails with [`Error::Invalid`] for one that is not mapped, [`Error::NoSpace`] if the map had to
/// grow: those before are marked then. Damage, device errors.
pub(crate) fn mark_written(
    handle: &Handle<'_>,
    inode: &mut Inode,
    lblk: Lblk,
    len: u32,
) -> Result<Progress> {
    check_mappable(handle.sbi(), inode)?;
    if inode.has(InodeFlags::EXTENTS) {
        let run = LblkRun { start: lblk, len };
        return extents_change::mark(handle, inode, run, false);
    }
    // There, what is mapped is written.
    Ok(Progress::Done)
}

/// Marks blocks, all of them mapped, as unwritten: they read as zeroes.
///
/// Fails as [`mark_written`]; with [`Error::Unsupported`] for a file without extents.
pub(crate) fn mark_unwritten(
    handle: &Handle<'_>,
    inode: &mut Inode,
    lblk: Lblk,
    len: u32,
) -> Result<Progress> {
    check_mappable(handle.sbi(), inode)?;
    if inode.has(InodeFlags::EXTENTS) {
        let run = LblkRun { start: lblk, len };
        return extents_change::mark(handle, inode, run, true);
    }
    Err(unsupported("unwritten blocks"))
}

/// Moves what is mapped in `run` by `by` blocks along the file. Nothing may be mapped where it
/// goes. Moving back begins with the first blocks, moving forward with the last ones.
///
/// Fails with [`Error::Invalid`] if something is mapped there, [`Error::FileTooBig`] if it would go
/// past what a file may have, [`Error::NoSpace`], [`Error::Unsupported`] for a file without
/// extents: nothing was moved then. Damage, device errors.
pub(crate) fn shift(
    handle: &Handle<'_>,
    inode: &mut Inode,
    run: LblkRun,
    by: i64,
) -> Result<Progress> {
    check_mappable(handle.sbi(), inode)?;
    if inode.has(InodeFlags::EXTENTS) {
        return extents_change::shift(handle, inode, run, by);
    }
    Err(unsupported("moving blocks"))
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        what: format!("{what} in a file without extents"),
    }
}

#[cfg(test)]
mod tests;

//! Which blocks the data of a file get: what the allocator is asked, and when it may forget the
//! file.
//!
//! What is preallocated for a file is in memory only ([`uext4_mballoc::FileSpace`], in its cell).
//! It is given back when no user has the file open for writing any more and nothing waits to be
//! written, and by all that unmaps or moves a part of the file.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use uext4_extent_status::Status;
use uext4_mballoc::{DataRequest, Run};
use uext4_ondisk::extent::RawExtent;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::{Lblk, Pblk};

use crate::base::edit::Direct;
use crate::base::error::Result;
use crate::base::mapping::{LblkRun, MapState};
use crate::inode::Inode;
use crate::inode::icache::Cell;
use crate::journal::sbi::Sbi;
use crate::map::MapCursor;
use crate::map::extent_path::Path;

/// A block of the file that is mapped, and where it lies.
type Place = Option<(Lblk, Pblk)>;

/// Takes a run in memory for the start of `hole`, which is a hole throughout. It must be marked and
/// mapped, or untaken.
pub(crate) fn take(sbi: &Sbi, cell: &Cell, hole: LblkRun, unwritten: bool) -> Result<Run> {
    let rw = sbi.writable()?;
    let (size, (left, right)) = {
        let inode = cell.inode.read();
        let bytes = inode.size.max(cell.pending_end.load(Relaxed));
        let size = sbi.geometry().block_size.blocks_for(bytes);
        (size, neighbours(sbi, cell, &inode, hole, size)?)
    };
    let request = DataRequest {
        file: cell.ino.0.into(),
        lblk: hole.start,
        len: hole.len,
        goal: near_inode(sbi, cell),
        left,
        right,
        size,
        unwritten,
        closed: !cell.is_open_for_writing(),
    };
    let edit = Direct(sbi);
    let bitmaps = rw.groups.bitmaps(sbi, &edit);
    Ok(rw.allocator.take_data(&bitmaps, cell.space(), &request)?)
}

/// What is mapped next before and behind a hole, as far as it is known or in the leaf of that part.
fn neighbours(
    sbi: &Sbi,
    cell: &Cell,
    inode: &Inode,
    hole: LblkRun,
    size: u64,
) -> Result<(Place, Place)> {
    let end = u64::from(hole.start.0) + u64::from(hole.len);
    let before = hole.start.0.checked_sub(1).map(Lblk);
    if let Some(before) = before
        && let Some(known) = cell
            .known_blocks_if_any()
            .and_then(|all| all.lookup(before))
        && matches!(known.status, Status::Written | Status::Unwritten)
        && end >= size
    {
        return Ok((known.pblk_at(before).map(|pblk| (before, pblk)), None));
    }
    if inode.has(InodeFlags::INLINE_DATA) {
        return Ok((None, None));
    }
    if inode.has(InodeFlags::EXTENTS) {
        let path = Path::find(sbi, inode, hole.start)?;
        return path.leaf(inode, |leaf| in_leaf(leaf, hole.start));
    }
    let Some(before) = before else {
        return Ok((None, None));
    };
    let found = MapCursor::default().map(sbi, inode, before, 1)?;
    let is_mapped = found.state != MapState::Hole;
    Ok((is_mapped.then_some((before, found.pblk)), None))
}

fn in_leaf(leaf: &[RawExtent], lblk: Lblk) -> (Place, Place) {
    let at = leaf.partition_point(|e| e.ee_block.get() <= lblk.0);
    let left = at.checked_sub(1).and_then(|at| leaf.get(at)).map(|e| {
        let extent = e.get();
        let last = u32::from(extent.len).saturating_sub(1);
        let lblk = extent.lblk.0.saturating_add(last);
        (Lblk(lblk), Pblk(extent.pblk.0.saturating_add(last.into())))
    });
    let right = leaf.get(at).map(|e| (e.get().lblk, e.get().pblk));
    (left, right)
}

/// Where a file begins if nothing else is known: in the group of its inode, and files of one
/// group at different places, so that each can grow.
fn near_inode(sbi: &Sbi, cell: &Cell) -> Pblk {
    let group = sbi.geometry().inode_group(cell.ino).map(|(group, _)| group);
    let start = group.map_or(Pblk(0), |group| sbi.geometry().group_start(group));
    let spread = u64::from(cell.ino.0 % 16) * u64::from(sbi.geometry().blocks_per_group.get() / 16);
    Pblk(start.0 + spread)
}

/// Gives back what is preallocated for a file.
pub(crate) fn discard(sbi: &Sbi, cell: &Cell) {
    if let Some((rw, space)) = sbi.rw().zip(cell.space_if_any()) {
        rw.allocator.discard(space);
    }
}

/// The same, if no user has the file open for writing and no block of it waits for its place:
/// called by the last of both, the user that closes the file and the thread that writes its data.
pub(crate) fn discard_if_left(sbi: &Sbi, cell: &Cell) {
    // Each of the two has changed its own side before and looks at the other's now: without a fence
    // both could see the old one, and neither would give anything back.
    fence(SeqCst);
    let waits = || {
        let known = cell.known_blocks_if_any();
        known.is_some_and(|known| known.delayed_blocks() > 0)
    };
    if !cell.is_open_for_writing() && cell.space_if_any().is_some() && !waits() {
        discard(sbi, cell);
    }
}

//! The blocks of one file, of data and of its map: taken, freed and counted in `Inode::blocks`, and
//! the credits that takes.

use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Geometry, Lblk, Pblk};

use crate::base::error::{Error, Result};
use crate::base::mapping::LblkRun;
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;

/// How far a change came that may take more than one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Progress {
    /// All of it.
    Done,
    /// The credits ran low. The map is valid; store the inode, end the handle, and ask for the same
    /// change of this run, which is not done yet, with a new one.
    Rest(LblkRun),
}

impl Progress {
    /// Not done: `from..until`.
    pub(crate) fn rest(from: u64, until: u64) -> Self {
        // OK to truncate: no file has a block past 2³² − 2.
        Self::Rest(LblkRun {
            start: Lblk(from as u32),
            len: until.saturating_sub(from).min(u32::MAX.into()) as u32,
        })
    }
}

/// One past the last of `len` blocks from `lblk`, and not past what a file may have.
pub(crate) fn range_end(lblk: Lblk, len: u32) -> u64 {
    (u64::from(lblk.0) + u64::from(len)).min(u64::from(Lblk::LAST.0) + 1)
}

/// Whether the handle has that many credits, or gets them.
pub(crate) fn afford(handle: &Handle<'_>, credits: u32) -> bool {
    let have = handle.credits();
    have >= credits || handle.extend(credits - have)
}

/// Most bitmaps and descriptor blocks that change when `count` blocks anywhere are taken or freed.
pub(crate) fn credits_anywhere(sbi: &Sbi, count: u32) -> u32 {
    let geometry = sbi.geometry();
    count.min(geometry.groups_count.get()) + count.min(geometry.gdt_blocks())
}

/// Most groups that a run of `len` blocks lies in.
pub(crate) fn groups_of_run(sbi: &Sbi, len: u32) -> u32 {
    let per_group = sbi.geometry().blocks_per_group.get();
    len.div_ceil(per_group).saturating_add(1).min(len)
}

/// What a block counts in [`Inode::blocks`].
fn unit(sbi: &Sbi) -> u64 {
    sbi.block_len() as u64 / 512
}

/// Counts blocks that the file has got, and charges them.
pub(crate) fn add_blocks(handle: &Handle<'_>, inode: &mut Inode, blocks: u64) {
    let units = blocks.saturating_mul(unit(handle.sbi()));
    inode.blocks = inode.blocks.saturating_add(units);
    if let Some(owners) = &mut inode.owners {
        owners.charge(handle, units << 9);
    }
}

fn subtract_blocks(handle: &Handle<'_>, inode: &mut Inode, blocks: u64) {
    let units = blocks.saturating_mul(unit(handle.sbi()));
    inode.blocks = inode.blocks.saturating_sub(units);
    if let Some(owners) = &inode.owners {
        owners.uncharge(handle, units << 9);
    }
}

/// Largest size of a file in bytes of which every block can be counted, as the kernel sets it: 2
/// TiB less one block without `huge_file`.
pub(crate) fn size_countable(geometry: &Geometry) -> u64 {
    let log = geometry.block_size.log2();
    match geometry.features.ro_compat.contains(RoCompat::HUGE_FILE) {
        true => u64::MAX,
        false => (u64::from(u32::MAX) >> (log - 9)) << log,
    }
}

/// Whether the file's blocks can still be counted when `more` are added.
pub(crate) fn check_countable(sbi: &Sbi, inode: &Inode, more: u64) -> Result<()> {
    let features = sbi.geometry().features;
    let limit = if features.ro_compat.contains(RoCompat::HUGE_FILE) {
        unit(sbi) << 48
    } else {
        1 << 32
    };
    let after = inode.blocks.saturating_add(more.saturating_mul(unit(sbi)));
    if after < limit {
        return Ok(());
    }
    Err(Error::FileTooBig)
}

/// Takes `count` blocks for the file's map, all or none, and counts them.
pub(crate) fn take_map_blocks(
    handle: &Handle<'_>,
    inode: &mut Inode,
    goal: Pblk,
    count: usize,
) -> Result<Vec<Pblk>> {
    let mut taken = Vec::new();
    if count == 0 {
        return Ok(taken);
    }
    check_countable(handle.sbi(), inode, count as u64)?;
    while taken.len() < count {
        let goal = taken.last().map_or(goal, |last: &Pblk| Pblk(last.0 + 1));
        match handle.take_block(goal) {
            Ok(block) => taken.push(block),
            Err(error) => {
                for block in taken {
                    handle.free_blocks(block, 1)?;
                }
                return Err(error);
            }
        }
    }
    add_blocks(handle, inode, count as u64);
    Ok(taken)
}

/// Frees a block of the file's map.
pub(crate) fn free_map_block(handle: &Handle<'_>, inode: &mut Inode, block: Pblk) -> Result<()> {
    handle.free_metadata(block, 1)?;
    subtract_blocks(handle, inode, 1);
    Ok(())
}

/// Whether the journal may know of what the map leads to.
fn is_journaled(inode: &Inode) -> bool {
    inode.file_type != FileType::Regular
        || inode
            .flags
            .intersects(InodeFlags::EA_INODE | InodeFlags::JOURNAL_DATA)
}

/// Credits of [`free_data`] of `len` blocks, in addition to those of bitmaps.
pub(crate) fn credits_revoke(handle: &Handle<'_>, inode: &Inode, len: u64) -> u32 {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    match is_journaled(inode) {
        true => handle.credits_revoke(len),
        false => 0,
    }
}

/// How many blocks [`free_data`] may free with `credits` credits, in addition to those of
/// bitmaps.
pub(crate) fn freed_by(handle: &Handle<'_>, inode: &Inode, credits: u32) -> u64 {
    match is_journaled(inode) {
        true => handle.revokes(credits).into(),
        false => u64::MAX,
    }
}

/// Frees a run of what the map leads to.
pub(crate) fn free_data(
    handle: &Handle<'_>,
    inode: &mut Inode,
    start: Pblk,
    len: u32,
) -> Result<()> {
    if is_journaled(inode) {
        // The journal may know of every single one.
        handle.free_metadata(start, len.into())?;
    } else {
        handle.free_blocks(start, len.into())?;
    }
    subtract_blocks(handle, inode, len.into());
    Ok(())
}

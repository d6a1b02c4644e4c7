//! The mapped blocks of files: allocated at given locations, mapped, unmapped, freed.

use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::num::lo16;
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};

use crate::base::error::{Error, Result};
use crate::base::mapping::{MapState, Mapping};
use crate::file::evict::has_map;
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map;
use crate::map::change::Progress;
use crate::map::map_blocks;
use crate::replay::plan::Fate;
use crate::replay::{misfit, too_large};
use uext4_ondisk::fast_commit::{ChangedInode, End};

/// Splits `wanted` into pieces that each have one state in the current map, and returns these
/// states.
fn pieces(
    sbi: &Sbi,
    inode: Option<&Inode>,
    wanted: Mapping,
) -> impl Iterator<Item = Result<(Mapping, Mapping)>> {
    let mut at = wanted.lblk.0;
    std::iter::from_fn(move || {
        let left = wanted.end().checked_sub(at).filter(|left| *left > 0)?;
        let found = match inode {
            Some(inode) => map_blocks(sbi, inode, Lblk(at), left),
            None => Ok(Mapping::hole(Lblk(at), left)),
        };
        let piece = found.map(|found| (wanted.part(found.lblk, found.len), found));
        match &piece {
            Ok((part, _)) => at = part.end().max(at.saturating_add(1)),
            Err(_) => at = u32::MAX,
        }
        Some(piece)
    })
}

/// Allocates the blocks that a file will map, and checks that those it maps already are marked
/// used.
pub(super) fn claim(
    handle: &Handle<'_>,
    ino: Ino,
    fate: &Fate,
    change: &ChangedInode,
) -> Result<()> {
    let sbi = handle.sbi();
    let old = fate.old.as_ref().filter(|_| fate.end == End::Stays);
    let mapped = old.filter(|old| has_map(sbi, old));
    for wanted in change.ranges().filter(|r| r.state != MapState::Hole) {
        check_wanted(sbi, ino, wanted)?;
        for piece in pieces(sbi, mapped, wanted) {
            let (part, found) = piece?;
            let len = u64::from(part.len);
            let is_there = found.state != MapState::Hole && found.pblk == part.pblk;
            let fits = match is_there {
                true => handle.are_used(part.pblk, len)?,
                false => handle.take_blocks_at(part.pblk, len)?,
            };
            if !fits {
                return Err(not_its_own(part.pblk, is_there));
            }
        }
    }
    Ok(())
}

/// Fails with damage if no file can have such blocks.
fn check_wanted(sbi: &Sbi, ino: Ino, wanted: Mapping) -> Result<()> {
    sbi.check_range("fast commit", wanted.pblk, wanted.len.into())?;
    if wanted.lblk.0.checked_add(wanted.len).is_some() {
        return Ok(());
    }
    let why = "a fast commit maps more than a file has";
    Err(misfit(ino, "logical block", wanted.lblk.0.into(), why))
}

fn not_its_own(block: Pblk, is_there: bool) -> Error {
    Error::Corrupt(Damage::Field {
        structure: "fast commit",
        field: "block",
        value: block.0,
        why: match is_there {
            true => "it is mapped already, but free",
            false => "it is mapped, but used otherwise",
        },
    })
}

/// Changes the map of an inode to the recorded one; the blocks have been claimed.
pub(super) fn apply(handle: &Handle<'_>, inode: &mut Inode, change: &ChangedInode) -> Result<()> {
    for wanted in change.ranges() {
        if wanted.state == MapState::Hole {
            if has_map(handle.sbi(), inode) {
                finished(map::change::remove(handle, inode, wanted.lblk, wanted.len)?)?;
            }
            continue;
        }
        let mut rest = Some(wanted);
        while let Some(now) = rest {
            // The map changes in each step: only the first piece is used.
            let Some(piece) = pieces(handle.sbi(), Some(inode), now).next() else {
                break;
            };
            let (part, found) = piece?;
            map_piece(handle, inode, part, found)?;
            let left = now.end().saturating_sub(part.end());
            rest = (left > 0).then(|| now.part(Lblk(part.end()), left));
        }
    }
    Ok(())
}

/// Whether a file has blocks with data past its end: the result of a truncation that was recorded
/// only in part.
pub(super) fn has_data_past_end(sbi: &Sbi, inode: &Inode) -> Result<bool> {
    if inode.file_type != FileType::Regular || !has_map(sbi, inode) {
        return Ok(false);
    }
    let blocks = sbi.geometry().block_size.blocks_for(inode.size);
    let Some(first) = u32::try_from(blocks).ok().filter(|b| *b <= Lblk::LAST.0) else {
        return Ok(false);
    };
    let behind = Mapping::hole(Lblk(first), Lblk::LAST.0.saturating_sub(first));
    for piece in pieces(sbi, Some(inode), behind) {
        match piece {
            Ok((_, found)) if found.state == MapState::Written => return Ok(true),
            Ok(_) => {}
            // A map without extents ends before the last possible block.
            Err(Error::FileTooBig) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

fn map_piece(handle: &Handle<'_>, inode: &mut Inode, new: Mapping, found: Mapping) -> Result<()> {
    let unwritten = new.state == MapState::Unwritten;
    if found.state != MapState::Hole && found.pblk == new.pblk {
        return match (found.state == new.state, unwritten) {
            (true, _) => Ok(()),
            (_, true) => finished(map::change::mark_unwritten(
                handle, inode, new.lblk, new.len,
            )?),
            (_, false) => finished(map::change::mark_written(handle, inode, new.lblk, new.len)?),
        };
    }
    if found.state != MapState::Hole {
        finished(map::change::remove(handle, inode, new.lblk, new.len)?)?;
    }
    let extent = Extent {
        lblk: new.lblk,
        // No record maps more than 2¹⁵ blocks.
        len: lo16(new.len),
        pblk: new.pblk,
        unwritten,
    };
    map::change::insert(handle, inode, extent)
}

fn finished(progress: Progress) -> Result<()> {
    match progress {
        Progress::Done => Ok(()),
        Progress::Rest(_) => Err(too_large()),
    }
}

//! The extents of a file, as FIEMAP reports them.

use std::ops::Range;

use uext4_extent_status::{Extent as Known, Status};
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Lblk, Pblk};

use crate::base::error::Result;
use crate::base::invalid::Invalid;
use crate::file::change::known;
use crate::file::evict::has_map;
use crate::file::inode_ref::InodeRef;
use crate::file::pages::as_known;
use crate::map::MapCursor;

/// The state of a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// The extent holds data.
    Written,
    /// Blocks are allocated but read as zeroes.
    Unwritten,
    /// The data is still in memory; no blocks are allocated yet.
    Delayed,
    /// Data is stored within the inode.
    Inline,
}

/// A part of a file that is not a hole; it consists of whole blocks except for
/// [`ExtentState::Inline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// First byte of the file.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u64,
    /// First byte on the device; `None` for delayed and inline data.
    pub physical: Option<u64>,
    /// Its state.
    pub state: ExtentState,
}

/// Reports all parts that touch a range of bytes, in order, as long as `each` returns true. Parts
/// that are adjacent in the file and on the device and have the same state are reported as one.
///
/// Locks: takes the file's `Names` lock shared; `each` must not change this file.
pub(crate) fn fiemap(
    file: &InodeRef,
    range: Range<u64>,
    each: &mut dyn FnMut(FileExtent) -> bool,
) -> Result<()> {
    let sbi = file.sbi();
    let _contents = file.rw.read();
    let mut cursor = MapCursor::default();
    let (range, is_file) = {
        let inode = file.inode.read();
        if inode.has(InodeFlags::INLINE_DATA) {
            let part = FileExtent {
                offset: 0,
                len: inode.size,
                physical: None,
                state: ExtentState::Inline,
            };
            if range.start < inode.size && range.end > 0 {
                each(part);
            }
            return Ok(());
        }
        if !has_map(sbi, &inode) {
            return Err(Invalid::NoBlocks(inode.ino).into());
        }
        // Only extents can lie past the end, and only extents describe long holes in one step.
        let range = match inode.has(InodeFlags::EXTENTS) {
            true => range,
            false => range.start..range.end.min(inode.size),
        };
        (range, inode.file_type == FileType::Regular)
    };
    let log = sbi.geometry().block_size.log2();
    // Fits in 32 bits: no map goes further.
    let block = |byte: u64| u32::try_from(byte >> log).unwrap_or(u32::MAX);
    let end = block(range.end.saturating_add((1 << log) - 1));
    let mut next = block(range.start);
    let mut last: Option<Known> = None;
    while next < end {
        let part = if is_file {
            known(sbi, file, Lblk(next), end - next)?
        } else {
            // A thread that grows a directory does not update the cache of mappings.
            let inode = file.inode.read();
            as_known(&cursor.map(sbi, &inode, Lblk(next), end - next)?)
        };
        next = part.end();
        match &mut last {
            Some(last) if adjoin(last, &part) => last.len += part.len,
            _ => {
                if last.take().is_some_and(|last| !each(extent_of(&last, log))) {
                    return Ok(());
                }
                last = Some(part).filter(|part| part.status != Status::Hole);
            }
        }
    }
    if let Some(last) = last {
        each(extent_of(&last, log));
    }
    Ok(())
}

/// A part that is no hole, in bytes, where blocks have `log` bits.
fn extent_of(known: &Known, log: u32) -> FileExtent {
    FileExtent {
        offset: u64::from(known.lblk.0) << log,
        len: u64::from(known.len) << log,
        physical: known.status.is_mapped().then_some(known.pblk.0 << log),
        state: match known.status {
            Status::Written => ExtentState::Written,
            Status::Unwritten => ExtentState::Unwritten,
            Status::Delayed | Status::Hole => ExtentState::Delayed,
        },
    }
}

/// Reads the whole map and makes its cached mappings the last to be reclaimed. No mappings are
/// cached for inodes that are not regular files.
pub(crate) fn precache(file: &InodeRef) -> Result<()> {
    let inodes = &file.sbi().writable()?.inodes;
    fiemap(file, 0..u64::MAX, &mut |_| true)?;
    if file.inode.read().file_type == FileType::Regular {
        inodes.known_blocks(file).set_precached();
    }
    Ok(())
}

fn adjoin(first: &Known, second: &Known) -> bool {
    first.status == second.status
        && first.end() == second.lblk.0
        && (!first.status.is_mapped() || Pblk(first.pblk.0 + u64::from(first.len)) == second.pblk)
}

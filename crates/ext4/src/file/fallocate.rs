//! Ranges of files: preallocation, hole punching, collapsing and inserting, and lookup of data
//! and holes.

use std::ops::Range;

use uext4_extent_status::{Extent as Known, Status};
use uext4_ondisk::Lblk;
use uext4_ondisk::inode::{FileType, InodeFlags};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::mapping::LblkRun;
use crate::file::change::{known, size_max, zero_tail};
use crate::file::evict::unmap_step;
use crate::file::inline_file::leave_inode;
use crate::file::inode_ref::InodeRef;
use crate::file::pages::{forget_delayed, forget_mapped, map_taken, settle_lost_locked};
use crate::inode::Inode;
use crate::inode::attr;
use crate::inode::store::store;
use crate::journal::rw::Purpose;
use crate::journal::sbi::Sbi;
use crate::journal::space::ensure_blocks;
use crate::map;
use crate::map::change::{Freed, Progress};
use crate::map::data_blocks;

/// Credits of one step of unmapping or moving a range.
const STEP_CREDITS: u32 = 64;
/// Blocks reserved for the extent tree where extents are split at the ends of a range.
const MAP_BLOCKS: u64 = 8;
/// Blocks that are reserved at once.
const RESERVE_MAX: u32 = 32_768;

/// Operation on a range of a file. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates blocks; the file grows to the end of the range unless `keep_size` is set.
    Allocate {
        /// The size does not change.
        keep_size: bool,
    },
    /// Frees the range, which then reads as zeroes. The size does not change.
    PunchHole,
    /// Makes the range read as zeroes, with blocks allocated.
    ZeroRange {
        /// The size does not change.
        keep_size: bool,
    },
    /// Removes the range; what follows moves down. The range consists of whole blocks before the
    /// end.
    CollapseRange,
    /// Inserts a hole; what follows moves up. The range consists of whole blocks before the end.
    InsertRange,
}

/// A range in bytes and in blocks.
struct Span {
    from: u64,
    to: u64,
    /// Blocks that are wholly within the range.
    inner: Range<u32>,
    /// Blocks that the range touches.
    outer: Range<u32>,
}

impl Span {
    /// The bytes of the blocks that are wholly within the range.
    fn bytes(&self, sbi: &Sbi) -> Range<u64> {
        let log = sbi.geometry().block_size.log2();
        u64::from(self.inner.start) << log..u64::from(self.inner.end) << log
    }

    /// The number of blocks that are wholly within the range.
    fn inner_len(&self) -> i64 {
        i64::from(self.inner.end - self.inner.start)
    }
}

/// Performs the operation.
pub(crate) fn fallocate(file: &InodeRef, how: Fallocate, offset: u64, len: u64) -> Result<()> {
    let sbi = file.sbi();
    let _contents = file.rw.write();
    check_allowed(&file.inode.read(), how)?;
    leave_inode(file)?;
    settle_lost_locked(sbi, file);
    let span = check(file, how, offset, len)?;
    let size = file.inode.read().size;
    let pages = file.pages()?;
    match how {
        Fallocate::Allocate { keep_size } => {
            if !keep_size && span.to > size {
                zero_tail(file, size)?;
                reach_disk(file)?;
            }
            allocate(file, &span)?;
            resize(file, if keep_size { size } else { size.max(span.to) })
        }
        Fallocate::PunchHole => {
            reach_disk(file)?;
            // Reserved before anything is freed, as in all operations below: there may be no
            // space.
            let _blocks = ensure_blocks(sbi, Purpose::Maps, MAP_BLOCKS)?;
            pages.discard(span.from..span.to.min(size).max(span.from))?;
            unmap(file, &span.inner)?;
            // Readers may have cached the old data before it was freed.
            pages.discard(span.bytes(sbi))?;
            resize(file, size)
        }
        Fallocate::ZeroRange { keep_size } => {
            if !keep_size && span.to > size {
                zero_tail(file, size)?;
            }
            reach_disk(file)?;
            allocate(file, &span)?;
            let _blocks = ensure_blocks(sbi, Purpose::Maps, MAP_BLOCKS)?;
            pages.discard(span.from..span.to.min(size).max(span.from))?;
            make_unwritten(file, &span.inner)?;
            pages.discard(span.bytes(sbi))?;
            resize(file, if keep_size { size } else { size.max(span.to) })
        }
        Fallocate::CollapseRange => {
            settle_from(file, span.from)?;
            let _blocks = ensure_blocks(sbi, Purpose::Maps, 2 * MAP_BLOCKS)?;
            unmap(file, &span.inner)?;
            shift(file, span.inner.end, -span.inner_len())?;
            pages.discard(span.from..uext4_writeback::OFFSET_MAX)?;
            resize(file, size - len)
        }
        Fallocate::InsertRange => {
            settle_from(file, span.from)?;
            let _blocks = ensure_blocks(sbi, Purpose::Maps, MAP_BLOCKS)?;
            resize(file, size + len)?;
            shift(file, span.inner.start, span.inner_len())?;
            Ok(pages.discard(span.from..uext4_writeback::OFFSET_MAX)?)
        }
    }
}

/// Rejects operations that the type of the inode or its flags forbid.
fn check_allowed(inode: &Inode, how: Fallocate) -> Result<()> {
    match inode.file_type {
        FileType::Regular => {}
        FileType::Directory => return Err(Error::IsDirectory),
        _ => {
            return Err(Error::Invalid(Invalid::NotRegularFile));
        }
    }
    let grows = matches!(how, Fallocate::Allocate { .. });
    if inode.has(InodeFlags::IMMUTABLE) || inode.has(InodeFlags::APPEND) && !grows {
        return Err(attr::fixed());
    }
    Ok(())
}

fn check(file: &InodeRef, how: Fallocate, offset: u64, len: u64) -> Result<Span> {
    let sbi = file.sbi();
    let inode = file.inode.read();
    let moves = matches!(how, Fallocate::CollapseRange | Fallocate::InsertRange);
    if !inode.has(InodeFlags::EXTENTS) && how != Fallocate::PunchHole {
        return Err(Error::Unsupported {
            what: "allocating ranges of files without extents".to_owned(),
        });
    }
    let size = sbi.geometry().block_size;
    let mask = u64::from(size.bytes()) - 1;
    let to = offset.checked_add(len).ok_or(Error::FileTooBig)?;
    if len == 0 || moves && (offset | len) & mask != 0 {
        return Err(Error::Invalid(Invalid::Unaligned {
            offset,
            len,
            block: size.bytes(),
        }));
    }
    let max = size_max(sbi, &inode);
    if inode.size > max {
        return Err(Error::FileTooBig);
    }
    let grown = match how {
        Fallocate::InsertRange => inode.size.checked_add(len).ok_or(Error::FileTooBig)?,
        _ => to,
    };
    if how != Fallocate::PunchHole && grown > max {
        return Err(Error::FileTooBig);
    }
    let past_end = match how {
        Fallocate::CollapseRange => to >= inode.size,
        Fallocate::InsertRange => offset >= inode.size,
        _ => false,
    };
    if past_end {
        return Err(Error::Invalid(Invalid::PastEnd {
            offset,
            len,
            end: inode.size,
        }));
    }
    let clamp = |blocks: u64| blocks.min(u64::from(Lblk::LAST.0) + 1) as u32;
    let first = clamp(size.blocks_for(offset));
    Ok(Span {
        from: offset,
        to,
        inner: first..clamp(to >> size.log2()).max(first),
        outer: clamp(offset >> size.log2())..clamp(size.blocks_for(to)),
    })
}

/// Allocates blocks for the holes of a range; they read as zeroes.
fn allocate(file: &InodeRef, span: &Span) -> Result<()> {
    let sbi = file.sbi();
    // Afterwards no block in the range is delayed, and no thread can write to it meanwhile.
    file.pages()?.flush(span.from..span.to)?;
    let (mut next, end) = (span.outer.start, span.outer.end);
    while next < end {
        let Known { status, len, .. } = known(sbi, file, Lblk(next), end - next)?;
        if status != Status::Hole {
            next += len;
            continue;
        }
        let len = len.min(RESERVE_MAX - 1);
        let _blocks = ensure_blocks(sbi, Purpose::Data(file.caller()), len.into())?;
        reserve_quota(file, len, false)?;
        let start = Lblk(next);
        let taken = data_blocks::take(sbi, file, LblkRun { start, len }, true);
        // The quota reservation of allocated blocks stays until they are charged.
        let kept = taken.as_ref().map_or(0, |taken| taken.len);
        reserve_quota(file, len - kept, true)?;
        let taken = taken?;
        if let Err(error) = map_taken(sbi, file, start, taken, true) {
            reserve_quota(file, taken.len, true)?;
            return Err(error);
        }
        next += taken.len;
    }
    Ok(())
}

/// Reserves blocks to a caller that pays for a file, or takes that back.
fn reserve_quota(file: &InodeRef, blocks: u32, back: bool) -> Result<()> {
    let inode = file.inode.read();
    let bytes = u64::from(blocks) * file.sbi().block_len() as u64;
    match &inode.owners {
        Some(owners) if back => owners.unreserve(bytes),
        Some(owners) => owners.reservation(bytes)?,
        None => {}
    }
    Ok(())
}

/// Makes allocated whole blocks read as zeroes. The caller has reserved blocks for the map.
fn make_unwritten(file: &InodeRef, blocks: &Range<u32>) -> Result<()> {
    let sbi = file.sbi();
    let (mut lblk, mut len) = (Lblk(blocks.start), blocks.end.saturating_sub(blocks.start));
    while len > 0 {
        let handle = sbi.start(STEP_CREDITS)?;
        let inode = &mut *file.inode.write();
        forget_mapped(file, lblk, len);
        let result = map::change::mark_unwritten(&handle, inode, lblk, len).and_then(|progress| {
            store(&handle, sbi, inode)?;
            Ok(progress)
        });
        file.changed_in(handle.tid(), true);
        match handle.failed(result)? {
            Progress::Done => break,
            Progress::Rest(rest) => (lblk, len) = (rest.start, rest.len),
        }
    }
    Ok(())
}

/// Brings the size on disk up to the file size, which writes the data below it to the device:
/// once pages are dropped, nothing might be left to do it, and a larger size is on disk at once.
fn reach_disk(file: &InodeRef) -> Result<()> {
    let (size, is_behind) = {
        let inode = file.inode.read();
        (inode.size, inode.disk_size.is_some())
    };
    if is_behind {
        file.pages()?.flush(0..size)?;
    }
    Ok(())
}

/// Frees whole blocks. Splitting an extent may need a block for the tree: the caller has reserved
/// it.
fn unmap(file: &InodeRef, blocks: &Range<u32>) -> Result<()> {
    let sbi = file.sbi();
    if blocks.is_empty() {
        return Ok(());
    }
    let mut run = LblkRun {
        start: Lblk(blocks.start),
        len: blocks.end - blocks.start,
    };
    forget_delayed(sbi, file, run.start, run.len);
    data_blocks::discard(sbi, file);
    let mut freed = Freed::default();
    loop {
        let handle = sbi.start(STEP_CREDITS)?;
        let inode = &mut *file.inode.write();
        forget_mapped(file, run.start, run.len);
        let result = unmap_step(&handle, inode, run, &mut freed);
        file.changed_in(handle.tid(), true);
        match handle.failed(result)? {
            Progress::Done => return Ok(()),
            Progress::Rest(rest) => run = rest,
        }
    }
}

/// Writes all dirty data from `from` on and drops the pages, because their offsets are about to
/// change.
fn settle_from(file: &InodeRef, from: u64) -> Result<()> {
    let sbi = file.sbi();
    let size = file.inode.read().size;
    let block = u64::from(sbi.geometry().block_size.bytes());
    let pages = file.pages()?;
    pages.flush(0..size.next_multiple_of(block))?;
    pages.discard(from..size.next_multiple_of(block))?;
    let first = Lblk((from >> sbi.geometry().block_size.log2()) as u32);
    forget_delayed(sbi, file, first, u32::MAX);
    // The preallocation refers to logical block numbers of the file, which are about to change.
    data_blocks::discard(sbi, file);
    Ok(())
}

/// Moves the mappings from `from` on by `by` blocks. The caller has reserved blocks for the map.
fn shift(file: &InodeRef, from: u32, by: i64) -> Result<()> {
    let sbi = file.sbi();
    let mut run = LblkRun {
        start: Lblk(from),
        len: u32::MAX,
    };
    // Readers may have cached the state of the target range: a hole.
    let first = i64::from(from).saturating_add(by.min(0));
    let first = Lblk(u32::try_from(first).unwrap_or(0));
    loop {
        let handle = sbi.start(STEP_CREDITS)?;
        let inode = &mut *file.inode.write();
        forget_mapped(file, first, u32::MAX);
        let moved = map::change::shift(&handle, inode, run, by);
        let result = moved.and_then(|progress| {
            store(&handle, sbi, inode)?;
            Ok(progress)
        });
        file.changed_in(handle.tid(), true);
        match handle.failed(result)? {
            Progress::Done => return Ok(()),
            Progress::Rest(rest) => run = rest,
        }
    }
}

/// Stores the size and the time.
fn resize(file: &InodeRef, size: u64) -> Result<()> {
    let sbi: &Sbi = file.sbi();
    let handle = sbi.start(1)?;
    let now = handle.rw().now();
    let inode = &mut *file.inode.write();
    if inode.size != size {
        inode.size = size;
        inode.disk_size = None;
    }
    (inode.mtime, inode.ctime) = (now, now);
    file.changed_in(handle.tid(), true);
    handle.failed(store(&handle, sbi, inode))
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`: the next byte that may not be zero.
    Data,
    /// `SEEK_HOLE`: the next byte of a hole; the end counts as one.
    Hole,
}

/// Returns the first byte at or after `offset` that matches; `None` if there is none before the
/// end.
pub(crate) fn seek(file: &InodeRef, offset: u64, what: Seek) -> Result<Option<u64>> {
    let sbi = file.sbi();
    let _contents = file.rw.read();
    let (size, inline) = {
        let inode = file.inode.read();
        if inode.file_type != FileType::Regular {
            return Err(Error::Invalid(Invalid::NotRegularFile));
        }
        (inode.size, inode.has(InodeFlags::INLINE_DATA))
    };
    if offset >= size {
        return Ok(None);
    }
    if inline {
        return Ok(Some(if what == Seek::Data { offset } else { size }));
    }
    let log = sbi.geometry().block_size.log2();
    let (mut next, end) = (
        (offset >> log) as u32,
        sbi.geometry().block_size.blocks_for(size) as u32,
    );
    let pages = file.pages()?;
    while next < end {
        let at = offset.max(u64::from(next) << log);
        let Known { status, len, .. } = known(sbi, file, Lblk(next), end - next)?;
        let mut until = u64::from(next + len) << log;
        let is_data = match status {
            Status::Written | Status::Delayed => true,
            Status::Hole => false,
            // Allocated but not written: data only where pages are dirty or under write-back.
            Status::Unwritten => match pages.next_unwritten(at) {
                Some(data) if data.start <= at => {
                    until = until.min(data.end);
                    true
                }
                Some(data) => {
                    until = until.min(data.start);
                    false
                }
                None => false,
            },
        };
        if is_data == (what == Seek::Data) {
            return Ok(Some(at));
        }
        next = (until.max(at + 1).next_multiple_of(1 << log) >> log) as u32;
    }
    Ok((what == Seek::Hole).then_some(size))
}

#[cfg(test)]
mod tests;

//! Between a file's pages and the device: reads mapped blocks, and maps blocks for written data.
//!
//! Data reaches the device before the transaction that exposes it: a flusher allocates blocks in
//! memory, writes the data there, and only then starts a handle that marks the blocks used and
//! maps them. After a power cut in between, nothing refers to them. The size on disk follows the
//! data that has been written, never data that is only in memory: a caller that sets another size
//! first writes the data below it.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Weak};

use uext4_blockdev::WriteRequest;
use uext4_extent_status::{Extent as Known, Status, Tree};
use uext4_mballoc::Run;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::{Lblk, Pblk};
use uext4_writeback::Mapping as Pages;

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::mapping::{LblkRun, MapState, Mapping};
use crate::inode::Inode;
use crate::inode::icache::{Cell, MapsPages};
use crate::inode::store::store;
use crate::journal::error_record;
use crate::journal::sbi::Sbi;
use crate::journal::space::{forget_blocks, note_blocks};
use crate::map;
use crate::map::MapCursor;
use crate::map::change::Progress;
use crate::map::data_blocks;
use crate::map::readpage::read_mapped;

/// Journal credits in addition to those of the map: bitmaps of two groups, the inode.
const CREDITS: u32 = 4;
/// Longest extent of data, in blocks.
const EXTENT_MAX: u32 = 32_768;

/// Gives the page cache access to the inode's cell.
#[derive(Debug)]
pub(crate) struct FilePages {
    sbi: Weak<Sbi>,
    cell: Weak<Cell>,
}

impl FilePages {
    pub(crate) fn new(sbi: &Arc<Sbi>, cell: &Weak<Cell>) -> Self {
        Self {
            sbi: Arc::downgrade(sbi),
            cell: Weak::clone(cell),
        }
    }

    fn parts(&self) -> Result<(Arc<Sbi>, Arc<Cell>)> {
        let parts = self.sbi.upgrade().zip(self.cell.upgrade());
        Ok(parts.ok_or(Invalid::Gone)?)
    }
}

impl Pages for FilePages {
    type Error = Error;

    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (sbi, cell) = self.parts()?;
        sbi.relieve();
        let inode = cell.inode.read();
        if inode.has(InodeFlags::INLINE_DATA) {
            buf.fill(0);
            let left = inode.size.saturating_sub(offset);
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            return crate::inode::inline::read_inline(&sbi, &inode, offset, &mut buf[..len]);
        }
        // The inode stays locked throughout: the blocks belong to the file until they have been
        // read.
        let blocks = sbi.writable()?.inodes.known_blocks(&cell);
        read_mapped(&sbi, offset, buf, |lblk, len| {
            known_map(blocks, lblk, len)
                .map_or_else(|| read_map(&sbi, &inode, blocks, lblk, len), Ok)
        })?;
        // Bytes past the end are not the file's data, whatever the device holds there; but data
        // that a write in progress has already put on the device is.
        let end = inode.size.max(inode.disk_size.unwrap_or(0));
        let left = end.saturating_sub(offset);
        let keep = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        buf[keep..].fill(0);
        Ok(())
    }

    fn write_run(&self, offset: u64, run: &[&[u8]]) -> Result<()> {
        self.write_run_reporting(offset, run, &|| ())
    }

    fn write_run_reporting(&self, offset: u64, run: &[&[u8]], reported: &dyn Fn()) -> Result<()> {
        let (sbi, cell) = self.parts()?;
        let written = Self::write_to(&sbi, &cell, offset, run, reported);
        error_record::noted(&sbi, cell.ino, written)
    }

    fn lost(&self, range: Range<u64>) {
        if let Ok((sbi, cell)) = self.parts() {
            let others = cell.has_lost.swap(true, SeqCst);
            match cell.rw.try_read() {
                Some(_contents) if others => settle_lost_locked(&sbi, &cell),
                Some(_contents) => {
                    cell.has_lost.store(false, SeqCst);
                    forget_untaken(&sbi, &cell, range);
                }
                None => {}
            }
            data_blocks::discard_if_left(&sbi, &cell);
        }
    }
}

impl FilePages {
    /// Writes a run to where the file's blocks are, or takes blocks for it.
    fn write_to(
        sbi: &Sbi,
        cell: &Cell,
        offset: u64,
        run: &[&[u8]],
        reported: &dyn Fn(),
    ) -> Result<()> {
        sbi.relieve();
        let size = sbi.geometry().block_size;
        let total: usize = run.iter().map(|part| part.len()).sum();
        let mut pieces = Pieces {
            run,
            at: 0,
            reported,
        };
        let mut next = (offset >> size.log2()) as u32;
        let end = next + (total >> size.log2()) as u32;
        while next < end {
            let here = what_is(sbi, cell, Lblk(next), end - next)?;
            let bytes = (here.len as usize) << size.log2();
            let done = match here.state {
                MapState::Written => {
                    pieces.write(sbi, here.pblk, bytes)?;
                    here.len
                }
                MapState::Unwritten => {
                    pieces.write(sbi, here.pblk, bytes)?;
                    make_written(sbi, cell, &here)?;
                    here.len
                }
                MapState::Hole => write_new(sbi, cell, &here, &mut pieces)?,
            };
            next += done;
        }
        let end = offset + total as u64;
        grow_on_disk(sbi, cell, end)?;
        data_blocks::discard_if_left(sbi, cell);
        Ok(())
    }
}

impl MapsPages for FilePages {}

/// Releases the reservations of delayed blocks of a range that will not be written. The caller
/// must not hold the lock of the inode's fields.
pub(crate) fn forget_delayed(sbi: &Sbi, cell: &Cell, from: Lblk, len: u32) {
    let Some(rw) = sbi.rw() else { return };
    // The owners that are charged must not change meanwhile.
    let inode = rw.quotas.is_some().then(|| cell.inode.read());
    let delayed = forget_blocks(rw, cell, from, len);
    if let Some(owners) = inode.as_ref().and_then(|inode| inode.owners.as_ref()) {
        owners.unreserve(u64::from(delayed) * sbi.block_len() as u64);
    }
}

/// Releases the reservations of a range, in bytes, where no page is dirty or under write-back.
/// The caller holds the file's `Names` lock: a writer reserves blocks before it makes the pages
/// dirty.
pub(crate) fn forget_untaken(sbi: &Sbi, cell: &Cell, range: Range<u64>) {
    let size = sbi.geometry().block_size;
    let block = |byte: u64| size.blocks_for(byte).min(u32::MAX.into()) as u32;
    // A block that is partly in the range was also reserved for it, unless it has a page.
    let first = (range.start >> size.log2()).min(u32::MAX.into()) as u32;
    let (mut next, end) = (first, block(range.end));
    while next < end {
        let at = u64::from(next) << size.log2();
        let unwritten = cell
            .pages_if_any()
            .and_then(|pages| pages.next_unwritten(at));
        let (until, after) = match unwritten {
            Some(unwritten) => (block(unwritten.start).min(end), block(unwritten.end)),
            None => (end, end),
        };
        forget_delayed(sbi, cell, Lblk(next), until.saturating_sub(next));
        next = after;
    }
}

/// Releases the reservations of data that were given up, unless another thread is changing the
/// data now, as it may rely on a reservation that it found. In that case the next write, fsync or
/// close of the file does it.
pub(crate) fn settle_lost(sbi: &Sbi, cell: &Cell) {
    if cell.has_lost.load(SeqCst)
        && let Some(_contents) = cell.rw.try_read()
    {
        settle_lost_locked(sbi, cell);
    }
}

/// Like [`settle_lost`]; the caller holds the file's `Names` lock.
pub(crate) fn settle_lost_locked(sbi: &Sbi, cell: &Cell) {
    if cell.has_lost.load(SeqCst) && cell.has_lost.swap(false, SeqCst) {
        forget_untaken(sbi, cell, 0..u64::MAX);
    }
}

/// Removes cached mappings of a range, under the lock that protects changes of the map: other
/// threads may have cached some since [`forget_delayed`], after which nothing in the range is
/// delayed.
pub(crate) fn forget_mapped(cell: &Cell, from: Lblk, len: u32) {
    if let Some(known) = cell.known_blocks_if_any() {
        known.remove(from, len);
    }
}

/// Returns the mapping on the device of a part of the file; delayed blocks count as a hole.
fn what_is(sbi: &Sbi, cell: &Cell, lblk: Lblk, len: u32) -> Result<Mapping> {
    let blocks = sbi.writable()?.inodes.known_blocks(cell);
    match known_map(blocks, lblk, len) {
        Some(found) => Ok(found),
        None => read_map(sbi, &cell.inode.read(), blocks, lblk, len),
    }
}

/// Returns the mapping on the device of a part of the file, if it is cached; delayed blocks count
/// as a hole. While the inode's fields are locked, it agrees with the map.
fn known_map(blocks: &Tree, lblk: Lblk, len: u32) -> Option<Mapping> {
    let known = blocks.lookup(lblk)?;
    let skip = lblk.0 - known.lblk.0;
    let len = (known.len - skip).min(len);
    let state = match known.status {
        Status::Written => MapState::Written,
        Status::Unwritten => MapState::Unwritten,
        Status::Delayed | Status::Hole => return Some(Mapping::hole(lblk, len)),
    };
    Some(Mapping {
        lblk,
        len,
        pblk: Pblk(known.pblk.0 + u64::from(skip)),
        state,
    })
}

/// Reads the mapping from the map on the device, like [`MapCursor::map`], and also caches all
/// other mappings of the same leaf, as the leaf has been read. The inode's fields are locked.
///
/// Fails with [`uext4_ondisk::Damage::Field`] if the blocks are metadata of a fixed place, and
/// caches nothing that names such: what the cache says is written to.
pub(crate) fn read_map(
    sbi: &Sbi,
    inode: &Inode,
    blocks: &Tree,
    lblk: Lblk,
    len: u32,
) -> Result<Mapping> {
    let mut cursor = MapCursor::default();
    // An extent covers all its blocks at once.
    let most = if inode.has(InodeFlags::EXTENTS) {
        u32::MAX
    } else {
        len
    };
    let all = cursor.map(sbi, inode, lblk, most)?;
    let groups = &sbi.writable()?.groups;
    if all.state != MapState::Hole {
        groups.refuse_metadata(all.pblk, all.len.into())?;
    }
    let found = all.part(lblk, len);
    let mut leaf = cursor.whole_leaf(sbi, inode);
    groups.keep_data(&mut leaf);
    blocks.cache_all(&leaf.iter().map(as_known).collect::<Vec<Known>>());
    // Needed where a part of the range was cached already, for example delayed blocks of a file
    // that is appended to: otherwise each append would read the map again. The tree bounds how
    // many parts it visits.
    blocks.cache(as_known(&all));
    Ok(found)
}

/// Returns the first block whose cached state differs from the map; a delayed block must be a
/// hole in the map.
pub(crate) fn contradiction(sbi: &Sbi, cell: &Cell) -> Result<Option<Lblk>> {
    let inode = cell.inode.read();
    let all = cell.known_blocks_if_any().map_or(Vec::new(), Tree::extents);
    let mut cursor = MapCursor::default();
    for known in all {
        let mut next = known.lblk.0;
        while next < known.end() {
            let here = cursor.map(sbi, &inode, Lblk(next), known.end() - next)?;
            let status = match known.status {
                Status::Delayed => Status::Hole,
                status => status,
            };
            let pblk = known.pblk_at(Lblk(next)).unwrap_or(Pblk(0));
            let said = as_known(&here);
            if (said.status, said.pblk) != (status, pblk) {
                return Ok(Some(Lblk(next)));
            }
            next = here.end();
        }
    }
    Ok(None)
}

/// Converts a mapping to the type of the extent status cache.
pub(crate) fn as_known(mapping: &Mapping) -> Known {
    Known {
        lblk: mapping.lblk,
        len: mapping.len,
        pblk: mapping.pblk,
        status: match mapping.state {
            MapState::Written => Status::Written,
            MapState::Unwritten => Status::Unwritten,
            MapState::Hole => Status::Hole,
        },
    }
}

/// Bytes of one request: the largest write after which the device must report completion.
const REQUEST_MAX: usize = 1 << 20;

/// A run of data while it is written piece by piece.
struct Pieces<'a> {
    run: &'a [&'a [u8]],
    /// Bytes of the first slice that have been written.
    at: usize,
    /// Hears of each request that is done.
    reported: &'a dyn Fn(),
}

impl Pieces<'_> {
    /// Writes the next `len` bytes to adjacent blocks, at most [`REQUEST_MAX`] at a time.
    fn write(&mut self, sbi: &Sbi, to: Pblk, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(REQUEST_MAX);
            self.write_part(sbi, sbi.byte_offset(to) + done as u64, part)?;
            (self.reported)();
            done += part;
        }
        Ok(())
    }

    fn write_part(&mut self, sbi: &Sbi, mut offset: u64, mut left: usize) -> Result<()> {
        let start = offset;
        let mut requests = Vec::new();
        while left > 0
            && let Some((first, rest)) = self.run.split_first()
        {
            let part = &first[self.at..];
            let take = part.len().min(left);
            requests.push(WriteRequest {
                offset,
                buf: &part[..take],
            });
            offset += take as u64;
            left -= take;
            self.at += take;
            if self.at == first.len() {
                (self.run, self.at) = (rest, 0);
            }
        }
        sbi.device().write_many(&requests)?;
        // Otherwise the data would stay dirty in a cache of the device, where no limit applies.
        sbi.device().write_behind(start..offset);
        Ok(())
    }
}

/// Allocates blocks for the start of a hole, writes the data and maps the blocks. Returns their
/// number.
fn write_new(sbi: &Sbi, cell: &Cell, hole: &Mapping, pieces: &mut Pieces<'_>) -> Result<u32> {
    let rw = sbi.writable()?;
    let wanted = LblkRun {
        start: hole.lblk,
        len: hole.len.min(EXTENT_MAX),
    };
    let _under_way = rw.taking.begin();
    let taken = data_blocks::take(sbi, cell, wanted, false)?;
    let bytes = (taken.len as usize) << sbi.geometry().block_size.log2();
    if let Err(error) = pieces.write(sbi, taken.start, bytes) {
        rw.allocator.cancel(taken);
        return Err(error);
    }
    // Only after the data is on the device: a commit that maps blocks before they are written
    // would expose, after a power cut, the previous owner's data in these blocks.
    map_taken(sbi, cell, hole.lblk, taken, false)?;
    Ok(taken.len)
}

/// Marks allocated blocks as used and maps them. Their quota charge comes from the reservation of
/// delayed blocks; with `unwritten`, from a separate reservation in addition to that one.
pub(crate) fn map_taken(
    sbi: &Sbi,
    cell: &Cell,
    lblk: Lblk,
    taken: Run,
    unwritten: bool,
) -> Result<()> {
    let rw = sbi.writable()?;
    let credits = map::change::credits_insert(sbi, &cell.inode.read(), taken.len) + CREDITS;
    let handle = match sbi.start(credits) {
        Ok(handle) => handle,
        Err(error) => {
            rw.allocator.cancel(taken);
            return Err(error);
        }
    };
    let inode = &mut *cell.inode.write();
    // The bitmap first: if the map cannot be changed, the blocks are freed again; mapped blocks
    // that no bitmap holds could be given to another file.
    handle.failed(handle.mark(taken))?;
    let extent = Extent {
        lblk,
        // OK to truncate: at most 32,768.
        len: taken.len as u16,
        pblk: taken.start,
        unwritten,
    };
    let bytes = |blocks: u32| u64::from(blocks) * sbi.block_len() as u64;
    if let Some(owners) = &mut inode.owners {
        owners.draw(bytes(taken.len));
    }
    match map::change::insert(&handle, inode, extent) {
        // Nothing was changed except that the blocks were marked.
        Err(error @ (Error::NoSpace { .. } | Error::FileTooBig)) => {
            handle.failed(handle.free_blocks(taken.start, taken.len.into()))?;
            if let Some(owners) = &mut inode.owners {
                owners.undraw(bytes(taken.len));
            }
            return Err(error);
        }
        result => handle.failed(result)?,
    }
    if !unwritten {
        grow(cell, inode, end_of(sbi, lblk, taken.len));
    }
    handle.failed(store(&handle, sbi, inode))?;
    cell.changed_in(handle.tid(), true);
    let status = if unwritten {
        Status::Unwritten
    } else {
        Status::Written
    };
    let known = Known {
        lblk,
        len: taken.len,
        pblk: taken.start,
        status,
    };
    // Last, after the map: a lookup that finds the blocks written must find them mapped, too.
    // The reservation is reduced by the number of blocks that stop being delayed.
    let delayed = note_blocks(rw, cell, known);
    if let Some(owners) = &mut inode.owners {
        let others = if unwritten { taken.len } else { 0 };
        owners.settle(bytes(taken.len), bytes(delayed) + bytes(others));
    }
    Ok(())
}

/// Marks blocks that were preallocated as written, as they hold data now.
fn make_written(sbi: &Sbi, cell: &Cell, part: &Mapping) -> Result<()> {
    let (mut lblk, mut len) = (part.lblk, part.len);
    loop {
        let credits = 2 * map::change::credits_step(sbi, &cell.inode.read()) + CREDITS;
        let handle = sbi.start(credits)?;
        let inode = &mut *cell.inode.write();
        // The conversion may succeed only partly.
        forget_mapped(cell, lblk, len);
        let progress = match map::change::mark_written(&handle, inode, lblk, len) {
            Err(error @ Error::NoSpace { .. }) => Err(error),
            progress => Ok(handle.failed(progress)?),
        };
        grow(cell, inode, end_of(sbi, part.lblk, part.len));
        handle.failed(store(&handle, sbi, inode))?;
        cell.changed_in(handle.tid(), true);
        // The blocks that were marked before ENOSPC stay marked: the map is valid.
        match progress? {
            Progress::Done => {
                let known = sbi.writable()?.inodes.known_blocks(cell);
                known.insert(Known {
                    status: Status::Written,
                    ..as_known(part)
                });
                return Ok(());
            }
            Progress::Rest(rest) => (lblk, len) = (rest.start, rest.len),
        }
    }
}

/// Returns the end of a range of blocks in bytes.
fn end_of(sbi: &Sbi, lblk: Lblk, len: u32) -> u64 {
    (u64::from(lblk.0) + u64::from(len)) << sbi.geometry().block_size.log2()
}

/// Returns the new size on disk after data up to `end` has been written, if it is larger: at most
/// the file's size, including that of a write in progress.
fn grown(cell: &Cell, inode: &Inode, end: u64) -> Option<u64> {
    let size = inode.size.max(cell.pending_end.load(Relaxed));
    Some(end.min(size)).filter(|end| *end > inode.disk_size.unwrap_or(inode.size))
}

/// Moves the size on disk to the end of the written data, in the transaction that maps it: at any
/// power cut, no file has written blocks past its end. Returns whether the size changed.
fn grow(cell: &Cell, inode: &mut Inode, end: u64) -> bool {
    let on_disk = grown(cell, inode, end);
    if let Some(on_disk) = on_disk {
        inode.disk_size = Some(on_disk).filter(|on_disk| *on_disk != inode.size);
    }
    on_disk.is_some()
}

/// Like [`grow`], where nothing had to be mapped.
fn grow_on_disk(sbi: &Sbi, cell: &Cell, end: u64) -> Result<()> {
    if grown(cell, &cell.inode.read(), end).is_none() {
        return Ok(());
    }
    let handle = sbi.start(1)?;
    let inode = &mut *cell.inode.write();
    if grow(cell, inode, end) {
        handle.failed(store(&handle, sbi, inode))?;
        cell.changed_in(handle.tid(), true);
    }
    Ok(())
}

#[cfg(test)]
mod tests;

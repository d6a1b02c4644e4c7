//! Reading, writing and resizing files that are in use.
//!
//! A write copies the data into pages. It reserves blocks for the parts that are not mapped yet,
//! and for the indirect blocks of a file without extents, so that ENOSPC is returned by the write
//! itself. Blocks of extent trees come from the space that is left for them, at most 2 % of the
//! file system: if more fragments are delayed at once than that space can hold, ENOSPC is
//! reported when the pages are written back.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use uext4_extent_status::{Extent as Known, Status, Tree};
use uext4_ondisk::extent::empty_extent_root;
use uext4_ondisk::indirect::Reach;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::{Lblk, Pblk};
use uext4_writeback::{OFFSET_MAX, Paced};

use crate::base::error::{Error, Result};
use crate::base::mapping::LblkRun;
use crate::file::evict::{cut_to_end, maps_any};
use crate::file::inline_file::leave_inode;
use crate::file::inode_ref::InodeRef;
use crate::file::pages::{
    as_known, forget_delayed, forget_untaken, read_map, settle_lost, settle_lost_locked,
};
use crate::file::write_context::{Pacing, WriteContext, WriteMode, Written};
use crate::file::{auto_da_alloc, check_file};
use crate::inode::Inode;
use crate::inode::attr::{self, SetId};
use crate::inode::dquot::Owners;
use crate::inode::icache::{Cell, PagesOf};
use crate::inode::store::store;
use crate::journal::rw::{AccessTimes, Purpose, Rw};
use crate::journal::sbi::Sbi;
use crate::journal::space::{note_blocks, reserve};
use crate::map::data_blocks;
use crate::map::file_blocks::size_countable;
use crate::orphan::change::Orphans;

/// The result of an operation on pages.
type PagesResult<T> = std::result::Result<T, uext4_writeback::Error<Error>>;

/// Largest size that a file may have: limited by what its map can address, by the size field of
/// the format, and by the block count that the inode can store.
pub(crate) fn size_max(sbi: &Sbi, inode: &Inode) -> u64 {
    let log = sbi.geometry().block_size.log2();
    let blocks = if inode.has(InodeFlags::EXTENTS) {
        u64::from(Lblk::LAST.0) + 1
    } else {
        // `i_blocks` counts 512-byte units in 32 bits unless `huge_file` is set, which no file
        // with such a map needs.
        let map = Reach::new(sbi.geometry().block_size).blocks_max();
        map.min(u64::from(u32::MAX) >> (log - 9))
    };
    (blocks << log).min(size_countable(sbi.geometry()))
}

/// Reads from `offset` on and returns the number of bytes: fewer than requested only at the end.
pub(crate) fn read(file: &InodeRef, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let len = buf.len();
    read_by(file, offset, len, |pages, size| {
        pages.read(offset, buf, size)
    })
}

/// Like [`read`], but does not populate the cache. Reads up to `len` bytes; `buf` may be longer.
pub(crate) fn read_uncached(
    file: &InodeRef,
    offset: u64,
    len: usize,
    buf: &mut [u8],
) -> Result<usize> {
    let len = len.min(buf.len());
    read_by(file, offset, len, |pages, size| {
        let end = offset.saturating_add(len as u64).min(size);
        pages.read_uncached(offset, buf, end)
    })
}

/// Reads up to `len` bytes by calling `pages`, which receives the size of the file.
fn read_by(
    file: &InodeRef,
    offset: u64,
    len: usize,
    pages: impl FnOnce(&PagesOf, u64) -> PagesResult<usize>,
) -> Result<usize> {
    let size = {
        let inode = file.inode.read();
        check_file(&inode)?;
        inode.size
    };
    if len == 0 {
        return Ok(0);
    }
    let done = match offset < size {
        true => pages(file.pages()?, size)?,
        false => 0,
    };
    accessed(file)?;
    Ok(done)
}

/// Updates the access time of an inode that was read, if the mount options ask for it.
pub(crate) fn accessed(file: &InodeRef) -> Result<()> {
    if notes_access(file.sbi(), &file.inode.read()).is_some() {
        let rw = file.sbi().writable()?;
        let now = rw.now();
        rw.inodes.change_later(file, |inode| inode.atime = now);
        file.sbi().bound_later();
    }
    Ok(())
}

/// Whether a read updates the access time now, and under which mode. Relative access times are
/// updated if the file has changed since the last access, or if a day has passed.
pub(crate) fn notes_access(sbi: &Sbi, inode: &Inode) -> Option<AccessTimes> {
    const DAY: i64 = 24 * 60 * 60;
    let rw = sbi.rw()?;
    let times = rw.access_times();
    let is_noted = match times {
        _ if inode.has(InodeFlags::NOATIME) => false,
        AccessTimes::None => false,
        AccessTimes::Strict => true,
        AccessTimes::Relative => {
            let now = rw.now().sec;
            inode.atime <= inode.mtime || inode.atime <= inode.ctime || now - inode.atime.sec >= DAY
        }
    };
    is_noted.then_some(times)
}

/// Writes at `offset`, or at the end, and returns the offset and the number of bytes accepted.
pub(crate) fn write_with(
    file: &InodeRef,
    context: WriteContext<'_>,
    offset: u64,
    data: &[u8],
) -> Result<Written> {
    let WriteContext { mode, pacing } = context;
    write_by(file, offset, data, mode, |pages, offset, data, size| {
        let taken = match pacing {
            Pacing::Thread => pages.write(offset, data, size)?,
            Pacing::Sleep(writer) => pages.write_by(writer, offset, data, size)?,
            Pacing::Return(writer) => return pages.write_paced(writer, offset, data, size),
        };
        let pause = Duration::ZERO;
        Ok(Paced { taken, pause })
    })
}

/// Refuses a write that the flags of the inode forbid.
fn check_flags(inode: &Inode, mode: WriteMode) -> Result<()> {
    let appends = mode.append || mode.gathered;
    match inode.has(InodeFlags::IMMUTABLE) || inode.has(InodeFlags::APPEND) && !appends {
        true => Err(attr::fixed()),
        false => Ok(()),
    }
}

/// Writes like [`write_with`]. `take_in` passes the data to the pages; it receives the offset,
/// the data and the size of the file.
fn write_by(
    file: &InodeRef,
    offset: u64,
    data: &[u8],
    mode: WriteMode,
    take_in: impl FnOnce(&PagesOf, u64, &[u8], u64) -> PagesResult<Paced>,
) -> Result<Written> {
    let sbi = file.sbi();
    sbi.writable()?.journal.check()?;
    // Held until the size is set: each of two appends must see the size set by the other.
    let _contents = file.rw.write();
    let (size, max) = {
        let inode = file.inode.read();
        check_file(&inode)?;
        check_flags(&inode, mode)?;
        (inode.size, size_max(sbi, &inode))
    };
    let offset = if mode.append { size } else { offset };
    if data.is_empty() {
        return Ok(Written::new(offset, Paced::default()));
    }
    if offset >= max {
        return Err(Error::FileTooBig);
    }
    let room = usize::try_from(max - offset).unwrap_or(usize::MAX);
    let data = &data[..data.len().min(room)];
    leave_inode(file)?;
    if offset > size {
        zero_tail(file, size)?;
    }
    // Before blocks are reserved: a block of lost data that still counts as delayed would pass
    // for reserved below, and its reservation would be returned while this write counts on it.
    settle_lost_locked(sbi, file);
    let end = offset + data.len() as u64;
    let end = match reservation(sbi, file, offset, end) {
        Ok(granted) => granted,
        Err(error) => {
            // A part of the range may have a reservation, and no page will use it.
            forget_untaken(sbi, file, offset..end);
            return Err(error);
        }
    };
    // OK to truncate: no more than `data`.
    let data = &data[..(end - offset) as usize];
    // Before the pages are dirty: a flusher may write them before the size is set below.
    file.pending_end.store(end, Relaxed);
    let paced = take_in(file.pages()?, offset, data, size);
    let rw = sbi.writable()?;
    let now = rw.now();
    let reached = offset + paced.as_ref().map_or(0, |paced| paced.taken) as u64;
    // After the bytes are in the pages: a reader that sees the new size must find them there.
    rw.inodes.change_later(file, |inode| {
        if reached > inode.size {
            inode.disk_size = Some(inode.disk_size.unwrap_or(inode.size));
            inode.size = reached;
        }
        // If less data was accepted than planned, a part of a block may count as on disk.
        inode.disk_size = inode.disk_size.filter(|on_disk| *on_disk < inode.size);
        (inode.mtime, inode.ctime) = (now, now);
        attr::drop_set_id(inode, mode.set_id);
    });
    file.pending_end.store(0, Relaxed);
    if reached < end {
        forget_untaken(sbi, file, reached..end);
    }
    sbi.bound_later();
    Ok(Written::new(offset, paced?))
}

/// Clears the set-id bits, as a write does.
pub(crate) fn drop_set_id(file: &InodeRef, how: SetId) -> Result<()> {
    let rw = file.sbi().writable()?;
    rw.journal.check()?;
    let _contents = file.rw.write();
    let now = rw.now();
    rw.inodes.change_later(file, |inode| {
        attr::drop_set_id(inode, how);
        inode.ctime = now;
    });
    file.sbi().bound_later();
    Ok(())
}

/// Reserves blocks to what is not mapped of a range, and makes it delayed. Returns how far: less
/// than `to` where space or a quota ran out.
fn reservation(sbi: &Sbi, file: &InodeRef, from: u64, to: u64) -> Result<u64> {
    let rw = sbi.writable()?;
    let size = sbi.geometry().block_size;
    let mut next = (from >> size.log2()) as u32;
    // Fits: no file is larger than its map.
    let end = size.blocks_for(to) as u32;
    let mut has_too_much = !file.inode.read().has(InodeFlags::EXTENTS);
    if has_too_much {
        file.delayed_tables(Reach::new(sbi.geometry().block_size));
    }
    while next < end {
        let Known { status, len, .. } = known(sbi, file, Lblk(next), end - next)?;
        let result = match status {
            Status::Hole => {
                let start = Lblk(next);
                reserve_hole(sbi, rw, file, LblkRun { start, len })
            }
            _ => Ok(len),
        };
        match result {
            Ok(len) => next += len,
            // The reservation for the file's indirect blocks shrinks once these blocks are
            // allocated.
            Err(Error::NoSpace { .. }) if has_too_much => {
                has_too_much = false;
                // A write error is reported by the next fsync.
                _ = file.pages()?.flush(0..OFFSET_MAX);
            }
            Err(_) if u64::from(next) << size.log2() > from => break,
            Err(error) => return Err(error),
        }
    }
    Ok(to.min(u64::from(next) << size.log2()))
}

/// Reserves blocks from the start of a hole on, all of it at most, and makes these delayed.
fn reserve_hole(sbi: &Sbi, rw: &Rw, file: &InodeRef, hole: LblkRun) -> Result<u32> {
    let (len, tables) = match file.delayed_tables_if_any() {
        Some(tables) => tables.part(hole.start, hole.len),
        None => (hole.len, 0),
    };
    let some = reserve_some(sbi, file, len, tables)?;
    // The owners that are charged must not change meanwhile.
    let inode = rw.quotas.is_some().then(|| file.inode.read());
    let owners = inode.as_ref().and_then(|inode| inode.owners.as_deref());
    let block = sbi.geometry().block_size.bytes();
    let len = match owners {
        Some(owners) => {
            reserve_part(rw, owners, some, block).inspect_err(|_| rw.release(tables.into()))?
        }
        None => some,
    };
    let delayed = Known {
        lblk: hole.start,
        len,
        pblk: Pblk(0),
        status: Status::Delayed,
    };
    let replaced = note_blocks(rw, file, delayed);
    if let Some(owners) = owners {
        owners.unreserve(u64::from(replaced) * u64::from(block));
    }
    Ok(len)
}

/// Reserves up to `len` blocks, fewer if no more are available, and in addition the blocks for
/// tables.
fn reserve_some(sbi: &Sbi, file: &InodeRef, len: u32, tables: u32) -> Result<u32> {
    let (rw, data) = (sbi.writable()?, Purpose::Data(file.caller()));
    let extra = u64::from(tables);
    match reserve(sbi, rw, data, u64::from(len) + extra) {
        Ok(()) => Ok(len),
        Err(error) => {
            let left = rw.available_blocks().saturating_sub(extra);
            let some = u32::try_from(left).unwrap_or(u32::MAX).min(len);
            if some > 0 && rw.reserve(sbi, data, u64::from(some) + extra) {
                return Ok(some);
            }
            Err(error)
        }
    }
}

/// Of blocks that are reserved for a file, lets who pays for it have as many as limits allow; the
/// others are given back.
fn reserve_part(rw: &Rw, owners: &Owners, reserved: u32, block: u32) -> Result<u32> {
    let mut len = reserved;
    loop {
        let result = owners.reservation(u64::from(len) * u64::from(block));
        let more = if result.is_ok() { len } else { len / 2 };
        match result {
            // Rarely more than a few rounds: this is where a limit is reached.
            Err(_) if more > 0 => len = more,
            result => {
                rw.release((reserved - more).into());
                return result.map(|()| len);
            }
        }
    }
}

/// Returns the state of a block of a regular file, delayed blocks included, and the number of
/// blocks from it on that have the same state, at most `len`. If the map has to be read, memory
/// is reclaimed for the result.
pub(crate) fn known(sbi: &Sbi, cell: &Cell, lblk: Lblk, len: u32) -> Result<Known> {
    let part = |known: Known| Known {
        lblk,
        len: (known.len - (lblk.0 - known.lblk.0)).min(len),
        pblk: known.pblk_at(lblk).unwrap_or(Pblk(0)),
        status: known.status,
    };
    let blocks = sbi.writable()?.inodes.known_blocks(cell);
    if let Some(known) = blocks.lookup(lblk) {
        return Ok(part(known));
    }
    let inode = cell.inode.read();
    let is_extents = inode.has(InodeFlags::EXTENTS) && !inode.has(InodeFlags::INLINE_DATA);
    if is_extents && inode.i_block == empty_extent_root() {
        return Ok(unmapped(blocks, lblk, len).unwrap_or_else(part));
    }
    let all = as_known(&read_map(sbi, &inode, blocks, lblk, len)?);
    drop(inode);
    // A part of the range may have been cached with another state, mostly as delayed.
    let found = match blocks.lookup(lblk) {
        Some(known) => part(known),
        None => Known { len: 1, ..all },
    };
    sbi.relieve();
    Ok(found)
}

/// The hole from a block on, at most `len` blocks long, of a file whose map is empty: up to what
/// is known of it, which is delayed. `Err` returns what is known of the block itself. That the map
/// is empty costs less to see in the inode than holes cost in the cache, where each write to a new
/// file would cut them.
fn unmapped(blocks: &Tree, lblk: Lblk, len: u32) -> std::result::Result<Known, Known> {
    let next = blocks.find(lblk, |_| true);
    let end = match next {
        Some(known) if known.lblk <= lblk => return Err(known),
        Some(known) => known.lblk.0,
        None => u32::MAX,
    };
    Ok(Known {
        lblk,
        len: len.min(end - lblk.0),
        pblk: Pblk(0),
        status: Status::Hole,
    })
}

/// Zeroes the rest of the last block before a file grows past its old end: what the device holds
/// behind that end must be zero before the new size is on disk. The block is read from the
/// device, because pages do not show that part: a truncation may have been interrupted by a
/// crash, and another program may have left any data there.
pub(crate) fn zero_tail(file: &InodeRef, size: u64) -> Result<()> {
    let sbi = file.sbi();
    let block = u64::from(sbi.geometry().block_size.bytes());
    let end = size.next_multiple_of(block);
    if end == size {
        return Ok(());
    }
    let lblk = Lblk((size >> sbi.geometry().block_size.log2()) as u32);
    let Known { status, pblk, .. } = known(sbi, file, lblk, 1)?;
    if status != Status::Written {
        return Ok(());
    }
    let at = sbi.byte_offset(pblk) + (size & (block - 1));
    // OK to truncate: less than a block.
    let mut tail = vec![0; (end - size) as usize];
    sbi.device().read_at(at, &mut tail)?;
    if tail.iter().any(|byte| *byte != 0) {
        tail.fill(0);
        sbi.device().write_at(at, &tail)?;
    }
    Ok(())
}

/// Sets the size of a file; the caller holds the file's `Names` lock.
pub(crate) fn truncate_locked(file: &InodeRef, size: u64) -> Result<()> {
    let sbi = file.sbi();
    let old = {
        let inode = file.inode.read();
        check_file(&inode)?;
        if inode.flags.intersects(attr::IMMUTABILITY) {
            return Err(attr::fixed());
        }
        if size > size_max(sbi, &inode) {
            return Err(Error::FileTooBig);
        }
        inode.size
    };
    leave_inode(file)?;
    if size > old {
        zero_tail(file, old)?;
        // Data below the old end is written first: the new size is on disk at once.
        file.pages()?.flush(0..old)?;
        return set_size(file, size, false).map(drop);
    }
    let log = sbi.geometry().block_size;
    let block = u64::from(log.bytes());
    let end = size.next_multiple_of(block);
    let first = Lblk(log.blocks_for(size).min(u64::from(u32::MAX)) as u32);
    let on_disk = file.inode.read().disk_size;
    if on_disk.is_some_and(|on_disk| on_disk < size) {
        // The remaining data is written to the device first: the new size is on disk at once.
        // This comes before any change, as it may fail.
        file.pages()?.flush(0..size)?;
    }
    if end != size {
        let last = Lblk(first.0 - 1);
        if known(sbi, file, last, 1)?.status != Status::Hole {
            file.pages()?.discard(size..end)?;
        }
    }
    // The new size and the orphan entry must be in the same transaction: a commit may come at any
    // moment.
    let is_orphan = set_size(file, size, true)?;
    if size == 0 && old > 0 {
        auto_da_alloc::note_cut(sbi, file);
    }
    // From here on no thread reads past the new end, and nothing behind it is written.
    file.pages()?.truncate(size);
    data_blocks::discard(sbi, file);
    forget_delayed(sbi, file, first, u32::MAX);
    if !is_orphan {
        return Ok(());
    }
    cut_to_end(sbi, file)
}

/// Stores a new size and the time. With `cuts`, a file that has blocks, or that may get some from
/// a flusher that is writing it now, also becomes an orphan: if power is lost before the
/// truncation is complete, the next mount completes it. Returns whether the file became an
/// orphan.
fn set_size(file: &InodeRef, size: u64, cuts: bool) -> Result<bool> {
    let sbi = file.sbi();
    let handle = sbi.start(1 + Orphans::CREDITS)?;
    let now = handle.rw().now();
    let pages = file.pages()?;
    let inode = &mut *file.inode.write();
    // No block is mapped while the inode is locked.
    let is_orphan = cuts && (pages.is_dirty() || maps_any(sbi, inode));
    inode.size = size;
    inode.disk_size = None;
    (inode.mtime, inode.ctime) = (now, now);
    file.changed_in(handle.tid(), true);
    let stored = store(&handle, sbi, inode).and_then(|()| {
        if is_orphan {
            handle.add_orphan(inode.ino, inode.generation)?;
        }
        Ok(is_orphan)
    });
    handle.failed(stored)
}

/// Writes the data of a file. If there is no space, and a commit frees some, the write is retried
/// once.
fn write_all(sbi: &Sbi, rw: &Rw, file: &InodeRef) -> Result<()> {
    let reported = file.reported_errors();
    let written = file.write_pages();
    if !written.as_ref().is_err_and(Error::is_no_space) || !rw.has_freed() {
        return written;
    }
    rw.journal.commit_now(sbi)?;
    rw.settle_freed(sbi);
    let again = file.write_pages();
    // What is written now was not lost; what was given up is, then or long before, whatever came
    // after.
    match file.gave_up_since(reported) {
        true => written,
        false => again,
    }
}

/// Makes a file durable: its data and the metadata needed to find it; with `all`, also all other
/// metadata of the inode.
pub(crate) fn fsync(file: &InodeRef, all: bool) -> Result<()> {
    sync(file, all).map_err(|error| file.failed_sync(error))
}

fn sync(file: &InodeRef, all: bool) -> Result<()> {
    let sbi = file.sbi();
    let rw = sbi.writable()?;
    let written = write_all(sbi, rw, file);
    settle_lost(sbi, file);
    written?;
    // Data that was overwritten in place needs no commit. But success must not be reported if
    // another host has taken over the file system, or if a flush has failed that no thread
    // repeats.
    rw.journal.check()?;
    // The number is taken after the data was written and before the commit: if the commit
    // flushes, that flush covers the data, and `wait_durable` finds it done.
    let seq = rw.journal.barrier().seq();
    let tid = if all && file.is_changed_later() {
        rw.journal.running()
    } else if all {
        file.sync_tid.load(Relaxed)
    } else {
        file.datasync_tid.load(Relaxed)
    };
    rw.journal.commit(tid, &**sbi)?;
    Ok(rw.journal.wait_durable(seq)?)
}

#[cfg(test)]
mod tests;

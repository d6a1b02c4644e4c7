//! Block reservations: reserved blocks are available when they are allocated, so that no
//! operation runs out of space half-way.

use std::time::{Duration, Instant};

use std::sync::atomic::AtomicU64;

use uext4_extent_status::Extent as Known;
use uext4_ondisk::Lblk;

use crate::base::error::{Error, Result};
use crate::inode::delayed_tables::{DelayedTables, Unneeded};
use crate::inode::icache::Cell;
use crate::journal::rw::{Purpose, Rw};
use crate::journal::sbi::Sbi;

/// Blocks reserved for an operation while it runs.
#[derive(Debug)]
pub(crate) struct BlockReservation<'a> {
    rw: &'a Rw,
    blocks: u64,
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        self.rw.release(self.blocks);
    }
}

/// Maximum time that a refused writer waits for flushers.
const FLUSHERS_AWAITED: Duration = Duration::from_secs(5);

/// Reserves blocks for an operation that holds no handle yet. Commits if that is what makes blocks
/// free.
pub(crate) fn ensure_blocks(
    sbi: &Sbi,
    purpose: Purpose,
    blocks: u64,
) -> Result<BlockReservation<'_>> {
    let rw = sbi.writable()?;
    reserve(sbi, rw, purpose, blocks)?;
    Ok(BlockReservation { rw, blocks })
}

/// Reserves blocks until [`Rw::release`]; otherwise like [`ensure_blocks`].
pub(crate) fn reserve(sbi: &Sbi, rw: &Rw, purpose: Purpose, blocks: u64) -> Result<()> {
    let take = || rw.reserve(sbi, purpose, blocks);
    if take() {
        return Ok(());
    }
    // Blocks that a flusher has allocated count twice until they are mapped.
    let until = Instant::now() + FLUSHERS_AWAITED;
    loop {
        let waited = rw.taking.wait(until);
        if take() {
            return Ok(());
        }
        if !waited {
            break;
        }
    }
    if rw.has_freed() {
        rw.journal.commit_now(sbi)?;
        rw.settle_freed(sbi);
        if take() {
            return Ok(());
        }
    }
    Err(Error::NoSpace {
        needed: blocks,
        free: rw.available_blocks(),
    })
}

/// Updates the cached state of blocks of a file. Releases the reservations of those that were
/// delayed, and of their tables, and returns how many blocks were delayed. For delayed blocks of
/// a file without extents, their table must be reserved too: see [`DelayedTables::part`].
pub(crate) fn note_blocks(rw: &Rw, cell: &Cell, extent: Known) -> u32 {
    let known = rw.inodes.known_blocks(cell);
    release(rw, cell, |tables| match tables {
        Some(tables) => tables.insert(known, extent),
        None => data_only(known.insert(extent)),
    })
}

/// Like [`note_blocks`], but removes the cached state of `len` blocks.
pub(crate) fn forget_blocks(rw: &Rw, cell: &Cell, from: Lblk, len: u32) -> u32 {
    let Some(known) = cell.known_blocks_if_any() else {
        return 0;
    };
    release(rw, cell, |tables| match tables {
        Some(tables) => tables.remove(known, from, len),
        None => data_only(known.remove(from, len)),
    })
}

fn data_only(data: u32) -> Unneeded {
    Unneeded { data, tables: 0 }
}

fn release(rw: &Rw, cell: &Cell, f: impl FnOnce(Option<&DelayedTables>) -> Unneeded) -> u32 {
    let unneeded = f(cell.delayed_tables_if_any());
    rw.release(u64::from(unneeded.data) + u64::from(unneeded.tables));
    unneeded.data
}

/// Writes all data; an error of one file does not stop the others. If there is no space, and a
/// commit frees some, the write is retried once.
pub(crate) fn write_all(sbi: &Sbi, rw: &Rw, seen: &AtomicU64) -> Result<()> {
    let mut written = rw.pages.sync_all().map_err(Error::from);
    if written.as_ref().is_err_and(Error::is_no_space) && rw.has_freed() {
        rw.journal.commit_now(sbi)?;
        rw.settle_freed(sbi);
        written = rw.pages.sync_all().map_err(Error::from);
    }
    let earlier = rw.pages.error_since(seen);
    written?;
    Ok(earlier?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::base::caller::Caller;
    use crate::testing::{mke2fs, mount};

    const DATA: Purpose = Purpose::Data(Caller { uid: 0, gid: 0 });

    #[test]
    fn an_excessive_reservation_does_not_block_others() {
        let device = mke2fs("-t ext4 -b 1024", 8192);
        let sbi = mount(&device);
        let rw = sbi.writable().unwrap();
        assert!(rw.reserve(&sbi, DATA, 1));
        let left = rw.available_blocks();
        let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    assert!(!rw.reserve(&sbi, DATA, left + 1));
                    begun.store(true, Relaxed);
                }
            });
            while !begun.load(Relaxed) {
                std::hint::spin_loop();
            }
            let refused = (0..1_000_000).filter(|_| match rw.reserve(&sbi, DATA, 1) {
                true => {
                    rw.release(1);
                    false
                }
                false => true,
            });
            let refused = refused.count();
            done.store(true, Relaxed);
            assert_eq!(refused, 0);
        });
        assert_eq!(rw.available_blocks(), left);
        assert!(rw.reserve(&sbi, DATA, left) && !rw.reserve(&sbi, DATA, 1));
        rw.release(left + 1);
    }
}

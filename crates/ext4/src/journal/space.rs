//! Reservations of blocks: what was reserved will be there when it is taken, so that nothing runs
//! out of space half-way.

use std::time::{Duration, Instant};

use std::sync::atomic::AtomicU64;

use uext4_extent_status::Extent as Known;
use uext4_ondisk::Lblk;

use crate::base::error::{Error, Result};
use crate::inode::delayed_tables::{DelayedTables, Unneeded};
use crate::inode::icache::Cell;
use crate::journal::rw::{Purpose, Rw};
use crate::journal::sbi::Sbi;

/// Blocks reserved for an operation, for as long as it runs.
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

/// How long a writer that is refused waits for flushers, at most.
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

/// Reserves blocks until [`Rw::release`]; as [`ensure_blocks`] otherwise.
pub(crate) fn reserve(sbi: &Sbi, rw: &Rw, purpose: Purpose, blocks: u64) -> Result<()> {
    let take = || rw.reserve(sbi, purpose, blocks);
    if take() {
        return Ok(());
    }
    // Blocks that a flusher took count twice until they are mapped.
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

/// Notes what is known of blocks of a file from now on. What was reserved for those of them that
/// were delayed, and to their tables, is taken back; returns how many they were. Of delayed
/// blocks of a file without extents the table they stand in must be reserved too: see
/// [`DelayedTables::part`].
pub(crate) fn note_blocks(rw: &Rw, cell: &Cell, extent: Known) -> u32 {
    let known = rw.inodes.known_blocks(cell);
    release(rw, cell, |tables| match tables {
        Some(tables) => tables.insert(known, extent),
        None => data_only(known.insert(extent)),
    })
}

/// The same, where nothing is known of `len` blocks from now on.
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

/// Writes all data; what fails of one file keeps no other from it. Where it finds no space, and a
/// commit makes some, it is tried once more.
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

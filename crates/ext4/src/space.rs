//! Promises of blocks: what was promised will be there when it is taken, so that nothing runs out of
//! space half-way.

use crate::error::{Error, Result};
use crate::rw::Rw;
use crate::sbi::Sbi;

/// Blocks promised to an operation, for as long as it runs.
#[derive(Debug)]
pub(crate) struct Promise<'a> {
    rw: &'a Rw,
    blocks: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.rw.release(self.blocks);
    }
}

/// Promises blocks of data to an operation that holds no handle yet. Commits if that is what makes
/// blocks free.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::ReadOnly`], errors of a commit.
pub(crate) fn ensure_data_blocks(sbi: &Sbi, blocks: u64) -> Result<Promise<'_>> {
    let rw = sbi.writable()?;
    reserve(sbi, rw, blocks)?;
    Ok(Promise { rw, blocks })
}

/// The same for blocks of names, attributes and maps, which are given more of what is left.
///
/// # Errors
/// As [`ensure_data_blocks`].
pub(crate) fn ensure_blocks(sbi: &Sbi, blocks: u64) -> Result<Promise<'_>> {
    let rw = sbi.writable()?;
    reserve_with(sbi, rw, blocks, Rw::reserve_metadata)?;
    Ok(Promise { rw, blocks })
}

/// Promises blocks until [`Rw::release`]; as [`ensure_data_blocks`] otherwise.
///
/// # Errors
/// As [`ensure_data_blocks`].
pub(crate) fn reserve(sbi: &Sbi, rw: &Rw, blocks: u64) -> Result<()> {
    reserve_with(sbi, rw, blocks, Rw::reserve)
}

fn reserve_with(sbi: &Sbi, rw: &Rw, blocks: u64, take: fn(&Rw, &Sbi, u64) -> bool) -> Result<()> {
    if take(rw, sbi, blocks) {
        return Ok(());
    }
    if rw.has_freed() {
        rw.journal.commit_now(sbi)?;
        rw.settle_freed(sbi);
        if take(rw, sbi, blocks) {
            return Ok(());
        }
    }
    Err(Error::NoSpace {
        needed: blocks,
        free: rw.available_blocks(),
    })
}

//! Reads file data straight from the device into the caller's buffer; the cache is for metadata.

use uext4_ondisk::{Lblk, Pblk};

use crate::base::error::{Error, Result};
use crate::base::mapping::{MapState, Mapping};
use crate::inode::Inode;
use crate::journal::sbi::Sbi;
use crate::map::MapCursor;

/// A read that waits to be joined with its neighbour: device offset, and range of the buffer.
struct Pending {
    offset: u64,
    from: usize,
    to: usize,
}

impl Pending {
    fn read(&self, sbi: &Sbi, buf: &mut [u8]) -> Result<()> {
        let part = buf.get_mut(self.from..self.to).unwrap_or_default();
        Ok(sbi.device().read_at(self.offset, part)?)
    }
}

/// Fills `buf` with what lies `offset` bytes into the mapped blocks of `inode`, whatever its size.
/// Holes and unwritten blocks read as zeroes; adjacent runs are read in one go.
pub(crate) fn read_range(sbi: &Sbi, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
    let mut cursor = MapCursor::default();
    read_mapped(sbi, offset, buf, |lblk, len| {
        cursor.map(sbi, inode, lblk, len)
    })
}

/// The same of what `map` reports of blocks, as [`MapCursor::map`] does.
pub(crate) fn read_mapped(
    sbi: &Sbi,
    offset: u64,
    buf: &mut [u8],
    mut map: impl FnMut(Lblk, u32) -> Result<Mapping>,
) -> Result<()> {
    let log = sbi.geometry().block_size.log2();
    let in_block = offset & ((1 << log) - 1);
    let mut pending: Option<Pending> = None;
    let mut done = 0usize;
    while done < buf.len() {
        // `skip` is not zero for the first block only.
        let skip = if done == 0 { in_block } else { 0 };
        let at = offset.checked_add(done as u64).ok_or(Error::FileTooBig)?;
        let lblk = u32::try_from(at >> log).map_err(|_| Error::FileTooBig)?;
        let left = (buf.len() - done) as u64;
        let want = (skip + left).div_ceil(1 << log).min(u32::MAX.into()) as u32;
        let run = map(Lblk(lblk), want)?;
        let bytes = (u64::from(run.len) << log) - skip;
        let len = bytes.min(left) as usize;
        let from = done;
        done += len;
        if run.state != MapState::Written {
            buf.get_mut(from..done).unwrap_or_default().fill(0);
            continue;
        }
        let offset = sbi.byte_offset(Pblk(run.pblk.0)) + skip;
        match &mut pending {
            Some(p) if p.to == from && p.offset + (p.to - p.from) as u64 == offset => p.to = done,
            _ => {
                let next = Pending {
                    offset,
                    from,
                    to: done,
                };
                if let Some(before) = pending.replace(next) {
                    before.read(sbi, buf)?;
                }
            }
        }
    }
    pending.map_or(Ok(()), |last| last.read(sbi, buf))
}

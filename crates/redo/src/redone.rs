//! A device as it will read once the repair that was cut off on it is finished.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, Error, ReadRequest};
use uext4_ondisk::BlockSize;
use uext4_ondisk::num::len64;

use crate::log::invert;

/// A block that is read from the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redone {
    /// Its number.
    pub(crate) home: u64,
    /// The block of the device that has its contents, inverted.
    pub(crate) log: u64,
}

/// The device below with the blocks of a log read from there. It is read-only, and keeps 16 bytes
/// for each of them. Reads that touch no such block go through at the cost of one search.
#[derive(Debug)]
pub struct RedoneDevice {
    base: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    /// Ascending by `home`.
    blocks: Vec<Redone>,
}

impl RedoneDevice {
    pub(crate) fn new(
        base: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        blocks: Vec<Redone>,
    ) -> Self {
        Self {
            base,
            block_size,
            blocks,
        }
    }

    fn range(&self, block: u64) -> Range<u64> {
        let start = block << self.block_size.log2();
        start..start.saturating_add(self.block_size.bytes().into())
    }

    /// The blocks of the log that end after byte `offset`.
    fn from(&self, offset: u64) -> &[Redone] {
        let block = offset >> self.block_size.log2();
        let at = self.blocks.partition_point(|redone| redone.home < block);
        &self.blocks[at..]
    }

    fn is_redone(&self, range: &Range<u64>) -> bool {
        let next = self.from(range.start).first();
        next.is_some_and(|redone| self.range(redone.home).start < range.end)
    }

    /// Cuts a range of the device at the borders of blocks of the log. `each` gets where a piece
    /// lies on the device below, how many bytes it has, and whether it lies in the log.
    fn pieces(&self, range: Range<u64>, mut each: impl FnMut(u64, u64, bool)) {
        let mut at = range.start;
        for redone in self.from(range.start) {
            let home = self.range(redone.home);
            if home.start >= range.end {
                break;
            }
            if at < home.start {
                each(at, home.start - at, false);
                at = home.start;
            }
            let len = home.end.min(range.end) - at;
            each(self.range(redone.log).start + (at - home.start), len, true);
            at += len;
        }
        if at < range.end {
            each(at, range.end - at, false);
        }
    }
}

impl BlockDevice for RedoneDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn measure(&self) -> Result<u64, Error> {
        self.base.measure()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.read_many(&mut [ReadRequest { offset, buf }])
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        let range = |request: &ReadRequest<'_>| {
            let len = len64(request.buf.len());
            Error::check_range(request.offset, len, self.len())?;
            Ok::<_, Error>(request.offset..request.offset + len)
        };
        let mut is_redone = false;
        for request in requests.iter() {
            is_redone |= self.is_redone(&range(request)?);
        }
        if !is_redone {
            return self.base.read_many(requests);
        }
        let mut pieces: Vec<ReadRequest<'_>> = Vec::new();
        let mut in_log = Vec::new();
        for request in requests {
            let range = range(request)?;
            let mut rest = mem::take(&mut request.buf);
            self.pieces(range, |offset, len, is_in_log| {
                let whole = mem::take(&mut rest);
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let (buf, tail) = whole.split_at_mut(len.min(whole.len()));
                rest = tail;
                if is_in_log {
                    in_log.push(pieces.len());
                }
                pieces.push(ReadRequest { offset, buf });
            });
        }
        self.base.read_many(&mut pieces)?;
        for at in in_log {
            invert(pieces[at].buf);
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let below = self.base.next_data(offset)?;
        let redone = self.from(offset).first().map(|redone| {
            let home = self.range(redone.home);
            home.start.max(offset)..home.end.min(self.len())
        });
        let first = below
            .into_iter()
            .chain(redone.filter(|run| !run.is_empty()));
        Ok(first.min_by_key(|run| run.start))
    }
}

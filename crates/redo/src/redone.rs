//! A device as it will read once the repair that was cut off on it is finished.

use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, Error, Piece, Pieces, ReadRequest, read_pieces};
use uext4_ondisk::BlockSize;

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
}

impl Pieces for RedoneDevice {
    type Mark = ();

    fn is_elsewhere(&self, range: &Range<u64>) -> bool {
        let next = self.from(range.start).first();
        next.is_some_and(|redone| self.range(redone.home).start < range.end)
    }

    fn pieces(&self, range: Range<u64>, mut each: impl FnMut(Piece<()>)) {
        let mut at = range.start;
        let mut put = |offset, len, mark| each(Piece { offset, len, mark });
        for redone in self.from(range.start) {
            let home = self.range(redone.home);
            if home.start >= range.end {
                break;
            }
            if at < home.start {
                put(at, home.start - at, None);
                at = home.start;
            }
            let len = home.end.min(range.end) - at;
            put(
                self.range(redone.log).start + (at - home.start),
                len,
                Some(()),
            );
            at += len;
        }
        if at < range.end {
            put(at, range.end - at, None);
        }
    }

    /// Blocks of the log are inverted.
    fn decode(&self, _: (), buf: &mut [u8]) {
        invert(buf);
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
        read_pieces(self, &*self.base, self.len(), requests)
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

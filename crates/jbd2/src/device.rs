//! A device as it will read once its journal is replayed.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, Error, Piece, Pieces, ReadRequest, read_pieces};
use uext4_ondisk::journal::unescape;
use uext4_ondisk::{BlockSize, Pblk};

use crate::replay::{Replay, offset};

/// The base device with the blocks of a [`Replay`] read from the log instead. Read-only; keeps no
/// data, only the map. Reads that touch no such block go through at the cost of one search.
#[derive(Debug)]
pub struct ReplayedDevice {
    base: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    replay: Replay,
}

impl ReplayedDevice {
    /// The device `base`, whose journal recovery found `replay`; both must belong together.
    pub fn new(base: Arc<dyn BlockDevice>, block_size: BlockSize, replay: Replay) -> Self {
        Self {
            base,
            block_size,
            replay,
        }
    }

    /// The device below.
    pub fn base(&self) -> &Arc<dyn BlockDevice> {
        &self.base
    }

    /// What is read from the log.
    pub fn replay(&self) -> &Replay {
        &self.replay
    }

    fn block_of(&self, offset: u64) -> Pblk {
        Pblk(offset >> self.block_size.log2())
    }

    /// First byte of a block that is known to lie on the device.
    fn start_of(&self, block: Pblk) -> u64 {
        offset(self.block_size, block)
    }
}

impl Pieces for ReplayedDevice {
    /// The part lies in an escaped block and begins this many bytes into it.
    type Mark = u64;

    fn is_elsewhere(&self, range: &Range<u64>) -> bool {
        let next = self.replay.from(self.block_of(range.start)).first();
        next.is_some_and(|block| self.start_of(block.home) < range.end)
    }

    /// Neighbours that are neighbours on the base device too stay together.
    fn pieces(&self, range: Range<u64>, mut each: impl FnMut(Piece<u64>)) {
        let size = u64::from(self.block_size.bytes());
        let mut at = range.start;
        let mut open: Option<Piece<u64>> = None;
        let mut put = |part: Piece<u64>| match &mut open {
            Some(last)
                if last.offset.saturating_add(last.len) == part.offset
                    && last.mark.is_none()
                    && part.mark.is_none() =>
            {
                last.len = last.len.saturating_add(part.len);
            }
            last => {
                if let Some(whole) = last.replace(part) {
                    each(whole);
                }
            }
        };
        for block in self.replay.from(self.block_of(range.start)) {
            let home = self.start_of(block.home);
            if home >= range.end {
                break;
            }
            if at < home {
                put(Piece {
                    offset: at,
                    len: home.saturating_sub(at),
                    mark: None,
                });
                at = home;
            }
            let inside = at.saturating_sub(home);
            let left = range.end.saturating_sub(at);
            let len = size.saturating_sub(inside).min(left);
            put(Piece {
                offset: self.start_of(block.log).saturating_add(inside),
                len,
                mark: block.escaped.then_some(inside),
            });
            at = at.saturating_add(len);
        }
        if at < range.end {
            put(Piece {
                offset: at,
                len: range.end.saturating_sub(at),
                mark: None,
            });
        }
        if let Some(last) = open {
            each(last);
        }
    }

    fn decode(&self, inside: u64, buf: &mut [u8]) {
        unescape(buf, inside);
    }
}

impl BlockDevice for ReplayedDevice {
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
        let len = self.len();
        let replayed = self.replay.from(self.block_of(offset)).first();
        let replayed = replayed.map(|block| {
            let start = self.start_of(block.home).max(offset);
            let end = self
                .start_of(block.home)
                .saturating_add(self.block_size.bytes().into());
            start..end.min(len)
        });
        Ok(match (below, replayed) {
            (Some(below), Some(replayed)) if replayed.start < below.start => Some(replayed),
            (None, Some(replayed)) if !replayed.is_empty() => Some(replayed),
            (below, _) => below,
        })
    }
}

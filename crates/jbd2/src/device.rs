//! A device as it will read once its journal is replayed.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, Error, ReadRequest};
use uext4_ondisk::journal::unescape;
use uext4_ondisk::num::len64;
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

/// A part of a request that lies at one stretch on the base device.
struct Part {
    offset: u64,
    len: u64,
    /// The part lies in an escaped block and begins this many bytes into it.
    escaped: Option<u64>,
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

    fn is_replayed(&self, range: &Range<u64>) -> bool {
        let next = self.replay.from(self.block_of(range.start)).first();
        next.is_some_and(|block| self.start_of(block.home) < range.end)
    }

    /// Cuts a range of the device at the borders of replayed blocks; neighbours that are
    /// neighbours on the base device too stay together.
    fn parts(&self, range: Range<u64>, mut each: impl FnMut(Part)) {
        let size = u64::from(self.block_size.bytes());
        let mut at = range.start;
        let mut open: Option<Part> = None;
        let mut put = |part: Part| match &mut open {
            Some(last)
                if last.offset.saturating_add(last.len) == part.offset
                    && last.escaped.is_none()
                    && part.escaped.is_none() =>
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
                put(Part {
                    offset: at,
                    len: home.saturating_sub(at),
                    escaped: None,
                });
                at = home;
            }
            let inside = at.saturating_sub(home);
            let left = range.end.saturating_sub(at);
            let len = size.saturating_sub(inside).min(left);
            put(Part {
                offset: self.start_of(block.log).saturating_add(inside),
                len,
                escaped: block.escaped.then_some(inside),
            });
            at = at.saturating_add(len);
        }
        if at < range.end {
            put(Part {
                offset: at,
                len: range.end.saturating_sub(at),
                escaped: None,
            });
        }
        if let Some(last) = open {
            each(last);
        }
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
        let range = |request: &ReadRequest<'_>| {
            let len = len64(request.buf.len());
            Error::check_range(request.offset, len, self.len())?;
            Ok::<_, Error>(request.offset..request.offset.saturating_add(len))
        };
        let mut replayed = false;
        for request in requests.iter() {
            replayed |= self.is_replayed(&range(request)?);
        }
        if !replayed {
            return self.base.read_many(requests);
        }
        let mut pieces: Vec<ReadRequest<'_>> = Vec::new();
        let mut escapes: Vec<(usize, u64)> = Vec::new();
        for request in requests {
            let range = range(request)?;
            let mut rest = mem::take(&mut request.buf);
            self.parts(range, |part| {
                let whole = mem::take(&mut rest);
                let len = usize::try_from(part.len).unwrap_or(usize::MAX);
                let (buf, tail) = whole.split_at_mut(len.min(whole.len()));
                rest = tail;
                escapes.extend(part.escaped.map(|inside| (pieces.len(), inside)));
                let offset = part.offset;
                pieces.push(ReadRequest { offset, buf });
            });
        }
        self.base.read_many(&mut pieces)?;
        for (index, inside) in escapes {
            unescape(pieces[index].buf, inside);
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

//! What a plan relies on: every byte that the examination read, its digest and where they are.
//!
//! The blocks that a plan writes are not enough: a block that it takes for a file may have been
//! given to another since, without a change of any block that the plan writes. So the device of
//! an examination whose plan is kept notes what is read through it, which is all metadata and no
//! contents of files; and who applies the plan reads all of that once more.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use uext4_blockdev::{BlockDevice, Error as DeviceError, ReadRequest};
use uext4_ondisk::num::len64;

/// Ranges are rounded out to this, the smallest block.
const UNIT: u64 = 1024;
/// Bytes that are read at once for the digest.
const PIECE: u64 = 1 << 20;

/// A device that notes which bytes are read. It cannot be written.
#[derive(Debug)]
pub struct Recorded {
    base: Arc<dyn BlockDevice>,
    /// First and last unit but one of ranges that do not touch.
    read: Mutex<BTreeMap<u64, u64>>,
}

/// What was read: bytes of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relied {
    pub(super) sha256: String,
    pub(super) ranges: Vec<Range<u64>>,
}

impl Recorded {
    /// Nothing was read so far.
    pub fn new(base: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self {
            base,
            read: Mutex::default(),
        })
    }

    fn note(&self, offset: u64, len: usize) {
        if len == 0 {
            return;
        }
        let mut start = offset / UNIT;
        let mut end = offset.saturating_add(len64(len)).div_ceil(UNIT);
        let mut read = self.read.lock();
        // The one before may reach into it, and any number of others lie in it.
        if let Some((&before, &ends)) = read.range(..=start).next_back() {
            if ends >= end {
                return;
            }
            if ends >= start {
                start = before;
            }
        }
        while let Some((&inside, &ends)) = read.range(start..=end).next() {
            read.remove(&inside);
            end = end.max(ends);
        }
        read.insert(start, end);
    }

    /// What was read until now, as the device has it.
    pub(super) fn relied(&self) -> Relied {
        let len = self.base.len();
        let read = self.read.lock();
        let ranges = read.iter().map(|(start, end)| {
            let end = end.saturating_mul(UNIT).min(len);
            (start * UNIT).min(end)..end
        });
        let ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
        drop(read);
        Relied {
            sha256: digest(&*self.base, &ranges),
            ranges,
        }
    }
}

/// The digest of ranges of a device, and of their places. A piece that cannot be read counts as
/// that: a plan may have been made around it.
pub(super) fn digest(device: &dyn BlockDevice, ranges: &[Range<u64>]) -> String {
    let mut digest = Sha256::new();
    let mut buf = Vec::new();
    for range in ranges {
        digest.update(range.start.to_le_bytes());
        digest.update(range.end.to_le_bytes());
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PIECE);
            buf.resize(usize::try_from(len).unwrap_or(0), 0);
            match device.read_at(at, &mut buf) {
                Ok(()) => digest.update(&buf),
                Err(_) => digest.update(b"unreadable"),
            }
            at += len;
        }
    }
    hex::encode(digest.finalize())
}

impl BlockDevice for Recorded {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn measure(&self) -> Result<u64, DeviceError> {
        self.base.measure()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }

    fn is_rotational(&self) -> bool {
        self.base.is_rotational()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.note(offset, buf.len());
        self.base.read_at(offset, buf)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        for request in requests.iter() {
            self.note(request.offset, request.buf.len());
        }
        self.base.read_many(requests)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DeviceError> {
        self.base.next_data(offset)
    }
}

#[cfg(test)]
mod tests {
    use uext4_blockdev::MemoryDevice;

    use super::*;

    #[test]
    fn what_is_read_becomes_ranges_that_do_not_touch() {
        let recorded = Recorded::new(Arc::new(MemoryDevice::new(64 << 10)));
        let read = |at: u64, len| recorded.read_at(at, &mut vec![0; len]).unwrap();
        for (at, len) in [(5000, 10), (20_000, 2000), (0, 1), (1024, 512), (5000, 1)] {
            read(at, len);
        }
        let ranges = recorded.relied().ranges;
        assert_eq!(ranges, [0..2048, 4096..5120, 19_456..22_528]);
        // Over two of them, and up to the next.
        read(2048, 17_408);
        let ranges = recorded.relied().ranges;
        assert_eq!((ranges.len(), &ranges[0]), (1, &(0..22_528)));
        read(65_535, 1);
        assert_eq!(recorded.relied().ranges, [0..22_528, 64_512..65_536]);
    }
}

//! The trait every device implements, and the requests of its batched forms.

use std::fmt::Debug;
use std::ops::Range;

use crate::Error;

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// Filled completely.
    pub buf: &'a mut [u8],
}

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// Written completely.
    pub buf: &'a [u8],
}

/// A device of some number of bytes, which only [`BlockDevice::set_len`] and
/// [`BlockDevice::measure`] change.
///
/// All offsets and lengths are bytes, all calls take `&self` and may come from many threads at
/// once. Overlapping calls have no order among themselves; callers that need one bring their own
/// lock. A call either did all it was asked or returns an error, after which the bytes of its
/// range are unspecified.
pub trait BlockDevice: Send + Sync + Debug {
    /// Bytes on the device.
    fn len(&self) -> u64;

    /// Whether the device has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its length now, asked of the system anew: a block device may have become longer. What was
    /// added belongs to the device from then on; a length that became less is not taken.
    ///
    /// The provided form knows of no system to ask.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn measure(&self) -> Result<u64, Error> {
        Ok(self.len())
    }

    /// Makes the device longer, by bytes that read as zeroes, or shorter. Durable only after the
    /// next [`BlockDevice::flush`]. No other thread may use bytes that are cut off.
    ///
    /// The provided form refuses it.
    ///
    /// # Errors
    /// [`Error::FixedLength`], [`Error::ReadOnly`], [`Error::Io`]: the device has its old length.
    fn set_len(&self, _len: u64) -> Result<(), Error> {
        Err(Error::FixedLength { len: self.len() })
    }

    /// Whether writes, discards and flushes of them are refused.
    fn is_read_only(&self) -> bool;

    /// Bytes of a sector as the medium addresses it, which partition tables count in: 512 where
    /// nothing else is known. No alignment of requests follows from it.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Whether a request takes longer the farther it is from the one before: a spindle. False where
    /// nothing is known.
    fn is_rotational(&self) -> bool {
        false
    }

    /// Claims a range for one writer, until [`BlockDevice::release_range`]; see [`crate::Claim`].
    ///
    /// The provided form grants everything: no other program can reach the bytes.
    ///
    /// # Errors
    /// [`Error::Locked`] if another user has any byte of it, [`Error::Attached`] if the kernel has
    /// it, [`Error::Io`].
    fn claim_range(&self, _range: &Range<u64>) -> Result<(), Error> {
        Ok(())
    }

    /// Gives up a range that was claimed.
    fn release_range(&self, _range: &Range<u64>) {}

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Io`].
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error>;

    /// Does all reads, in any order; stops at the first error.
    ///
    /// # Errors
    /// As [`BlockDevice::read_at`].
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        requests
            .iter_mut()
            .try_for_each(|request| self.read_at(request.offset, request.buf))
    }

    /// Writes `buf` at `offset`. Durable only after the next [`BlockDevice::flush`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`], [`Error::Io`].
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error>;

    /// Does all writes as if in the order given; stops at the first error. Requests that follow
    /// one another on the device and in the slice may be joined into one transfer.
    ///
    /// # Errors
    /// As [`BlockDevice::write_at`].
    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        requests
            .iter()
            .try_for_each(|request| self.write_at(request.offset, request.buf))
    }

    /// File data was written to a range, and is wanted on the medium soon: starts writing it, and
    /// waits while much of such data is under way, so that who writes much is as slow as the
    /// medium. Nothing is durable by this, and errors are for the next [`BlockDevice::flush`] to
    /// report.
    ///
    /// The provided form does nothing: nothing lies between the device and its bytes.
    fn write_behind(&self, _range: Range<u64>) {}

    /// Makes every write and discard that returned before this call durable.
    ///
    /// # Errors
    /// [`Error::Io`]. After a failed flush nothing may be assumed of what was written since the
    /// last good one, not even that a second flush tries it again.
    fn flush(&self) -> Result<(), Error>;

    /// Gives the range back to the medium; it reads as zeroes afterwards.
    ///
    /// # Errors
    /// As [`BlockDevice::write_at`].
    fn discard(&self, offset: u64, len: u64) -> Result<(), Error>;

    /// Tells the medium that the range is unused; what it reads as afterwards is undefined. Returns
    /// false if the medium does not support that: then nothing has happened, while
    /// [`BlockDevice::discard`] would write zeroes. Parts of sectors at both ends stay as they
    /// are.
    ///
    /// # Errors
    /// As [`BlockDevice::write_at`].
    fn trim(&self, offset: u64, len: u64) -> Result<bool, Error> {
        self.discard(offset, len).map(|()| true)
    }

    /// The first range at or after `offset` that may hold bytes other than zero; `None` when
    /// there is none up to the end. What lies outside the ranges reported reads as zeroes.
    ///
    /// The provided form knows of no holes and reports the rest of the device.
    ///
    /// # Errors
    /// [`Error::Io`]. An `offset` at or past the end gives `None`.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        Ok((offset < self.len()).then(|| offset..self.len()))
    }
}

//! A file that no thread can find yet: it need not be durable step by step, only once, at the
//! end.

use std::ops::Range;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, Error, FileDevice, ReadRequest, WriteRequest};

/// The file, with flushes that do nothing.
#[derive(Debug)]
pub struct Unflushed(pub Arc<FileDevice>);

impl BlockDevice for Unflushed {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn measure(&self) -> Result<u64, Error> {
        self.0.measure()
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        self.0.set_len(len)
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size()
    }

    fn is_rotational(&self) -> bool {
        self.0.is_rotational()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.0.read_at(offset, buf)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        self.0.read_many(requests)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.0.write_at(offset, buf)
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        self.0.write_many(requests)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.0.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> Result<bool, Error> {
        self.0.trim(offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        self.0.next_data(offset)
    }
}

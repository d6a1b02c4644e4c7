//! A memory device that counts, can be slow, and can fail.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use uext4_blockdev::{BlockDevice, Error, MemoryDevice, ReadRequest, WriteRequest};

use crate::SIZE;

#[derive(Debug)]
pub(crate) struct TestDevice {
    pub(crate) memory: MemoryDevice,
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_batches: AtomicU64,
    pub(crate) slow: AtomicBool,
    pub(crate) fail: AtomicBool,
}

impl TestDevice {
    /// Every block is filled with the low byte of its number.
    pub(crate) fn new(blocks: u64) -> Self {
        let bytes = (0..blocks).flat_map(|b| [b as u8; SIZE]).collect();
        Self {
            memory: MemoryDevice::from_bytes(bytes),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            write_batches: AtomicU64::new(0),
            slow: AtomicBool::new(false),
            fail: AtomicBool::new(false),
        }
    }

    fn gate(&self, op: &'static str, offset: u64) -> Result<(), Error> {
        if self.slow.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.fail.load(SeqCst) {
            return Err(Error::io(op, offset, std::io::Error::other("test")));
        }
        Ok(())
    }
}

impl BlockDevice for TestDevice {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.reads.fetch_add(1, SeqCst);
        self.read_bytes.fetch_add(buf.len() as u64, SeqCst);
        self.gate("read", offset)?;
        self.memory.read_at(offset, buf)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        requests
            .iter_mut()
            .try_for_each(|r| self.read_at(r.offset, r.buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.gate("write", offset)?;
        self.memory.write_at(offset, buf)
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        self.write_batches.fetch_add(1, SeqCst);
        let sorted = requests.is_sorted_by(|a, b| a.offset < b.offset);
        assert!(sorted, "a batch is sorted and holds no block twice");
        requests
            .iter()
            .try_for_each(|r| self.write_at(r.offset, r.buf))
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.memory.discard(offset, len)
    }
}

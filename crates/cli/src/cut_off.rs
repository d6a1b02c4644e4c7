//! The device of `salvage` where an image is cut off: as long as its file system says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uext4_blockdev::{BlockDevice, Error};

/// A device that goes on past its end: with zeroes while the file system is examined, so that what
/// is missing is mended like anything else that is empty; and then with errors, so that the
/// missing part of a file is never taken for zeroes.
#[derive(Debug)]
pub struct CutOff {
    device: Arc<dyn BlockDevice>,
    len: u64,
    is_examined: AtomicBool,
}

impl CutOff {
    /// The device as if it had `len` bytes.
    pub fn new(device: Arc<dyn BlockDevice>, len: u64) -> Self {
        Self {
            device,
            len,
            is_examined: AtomicBool::new(false),
        }
    }

    /// From now on, what is missing is an error.
    pub fn end_examination(&self) {
        self.is_examined.store(true, Ordering::Relaxed);
    }
}

impl BlockDevice for CutOff {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        Error::check_range(offset, buf.len() as u64, self.len)?;
        let device_len = self.device.len();
        let present = device_len.saturating_sub(offset).min(buf.len() as u64) as usize;
        if present < buf.len() && self.is_examined.load(Ordering::Relaxed) {
            let missing = offset.max(device_len);
            let sector = u64::from(self.sector_size().max(1));
            return Err(Error::BeyondEnd {
                block: missing / sector,
                offset: missing,
                device_len,
            });
        }
        let (here, beyond) = buf.split_at_mut(present);
        beyond.fill(0);
        match here.is_empty() {
            true => Ok(()),
            false => self.device.read_at(offset, here),
        }
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }
}

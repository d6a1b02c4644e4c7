//! A device that ends before what it should hold: an image whose copy was stopped, a download that
//! broke off, a disk image on a smaller disk.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{BlockDevice, Error};

/// A device of the length that its contents claim. What lies past the end of the device below is an
/// [`Error::BeyondEnd`], or zeroes for as long as [`CutDevice::read_zeroes`] says so; nothing is
/// written.
#[derive(Debug)]
pub struct CutDevice {
    device: Arc<dyn BlockDevice>,
    len: u64,
    block_len: u32,
    reads_zeroes: AtomicBool,
}

impl CutDevice {
    /// The device as if it had `len` bytes. Errors count in blocks of `block_len` bytes, at least
    /// 1.
    pub fn new(device: Arc<dyn BlockDevice>, len: u64, block_len: u32) -> Self {
        Self {
            device,
            len,
            block_len: block_len.max(1),
            reads_zeroes: AtomicBool::new(false),
        }
    }

    /// Whether what is missing, or cannot be read, reads as zeroes from now on. An examination
    /// mends it then like anything else that is empty; files must never be read so.
    pub fn read_zeroes(&self, whether: bool) {
        self.reads_zeroes.store(whether, Ordering::Relaxed);
    }

    /// Reads sector by sector what the device returns, and zeroes for the rest.
    fn read_readable(&self, mut offset: u64, mut buf: &mut [u8]) {
        let sector = u64::from(self.device.sector_size().max(1));
        while !buf.is_empty() {
            let len = (sector - offset % sector).min(buf.len() as u64);
            let (part, rest) = buf.split_at_mut(len as usize);
            if self.device.read_at(offset, part).is_err() {
                part.fill(0);
            }
            offset = offset.saturating_add(len);
            buf = rest;
        }
    }
}

impl BlockDevice for CutDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn is_rotational(&self) -> bool {
        self.device.is_rotational()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let len = buf.len() as u64;
        Error::check_range(offset, len, self.len)?;
        let device_len = self.device.len();
        let present = device_len.saturating_sub(offset).min(len);
        if present < len && !self.reads_zeroes.load(Ordering::Relaxed) {
            let missing = offset.max(device_len);
            return Err(Error::BeyondEnd {
                block: missing / u64::from(self.block_len),
                offset: missing,
                device_len,
            });
        }
        let (here, beyond) = buf.split_at_mut(present as usize);
        beyond.fill(0);
        if here.is_empty() {
            return Ok(());
        }
        match self.device.read_at(offset, here) {
            Err(Error::Io { .. }) if self.reads_zeroes.load(Ordering::Relaxed) => {
                self.read_readable(offset, here);
                Ok(())
            }
            read => read,
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

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        if let Some(range) = self.device.next_data(offset)? {
            return Ok(Some(range));
        }
        // What is missing may be anything but zeroes.
        let from = offset.max(self.device.len());
        Ok((from < self.len).then_some(from..self.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_truncated_device_is_read_and_the_missing_part_is_named() {
        let short = Arc::new(MemoryDevice::from_bytes((0..100).collect()));
        let device = CutDevice::new(short, 4096, 16);
        let mut buf = [0; 10];
        device.read_at(90, &mut buf).unwrap();
        assert_eq!(buf[9], 99);
        for (offset, block, missing) in [(91, 6, 100), (1000, 62, 1000)] {
            let error = device.read_at(offset, &mut buf).unwrap_err();
            let Error::BeyondEnd {
                block: b,
                offset,
                device_len: 100,
            } = error
            else {
                panic!("{error}");
            };
            assert_eq!((b, offset), (block, missing));
        }
        device.read_zeroes(true);
        device.read_at(95, &mut buf).unwrap();
        assert_eq!(buf, [95, 96, 97, 98, 99, 0, 0, 0, 0, 0]);
        device.read_at(1000, &mut buf).unwrap();
        assert_eq!(buf, [0; 10]);
        device.read_zeroes(false);
        assert!(device.read_at(95, &mut buf).is_err());
        let past = device.read_at(4090, &mut buf).unwrap_err();
        assert!(matches!(past, Error::OutOfRange { .. }), "{past}");
        assert_eq!(device.next_data(200).unwrap(), Some(200..4096));
        assert!(device.write_at(0, &buf).is_err());
    }
}

//! A window of another device: a partition, or everything from an offset on.

use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, Error, ReadRequest, WriteRequest};

/// A part of a device, as a device of its own.
#[derive(Clone, Debug)]
pub struct SubDevice {
    device: Arc<dyn BlockDevice>,
    start: u64,
    /// Bytes; `None` for all that follow.
    len: Option<u64>,
}

impl SubDevice {
    /// The window of `len` bytes at `start`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not lie on the device.
    pub fn new(device: Arc<dyn BlockDevice>, start: u64, len: u64) -> Result<Self, Error> {
        Error::check_range(start, len, device.len())?;
        Ok(Self {
            device,
            start,
            len: Some(len),
        })
    }

    /// Everything from `start` to the end of the device, also when that becomes longer or shorter.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `start` lies past the end.
    pub fn from_offset(device: Arc<dyn BlockDevice>, start: u64) -> Result<Self, Error> {
        Error::check_range(start, 0, device.len())?;
        Ok(Self {
            device,
            start,
            len: None,
        })
    }

    /// Where the window begins on the device below, in bytes.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// A range of the window as the device below counts it.
    fn moved(&self, range: &Range<u64>) -> Range<u64> {
        range.start.saturating_add(self.start)..range.end.saturating_add(self.start)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        Error::check_range(offset, len, self.len())
    }
}

impl BlockDevice for SubDevice {
    fn len(&self) -> u64 {
        let rest = || self.device.len().saturating_sub(self.start);
        self.len.unwrap_or_else(rest)
    }

    fn measure(&self) -> Result<u64, Error> {
        match self.len {
            Some(len) => Ok(len),
            None => Ok(self.device.measure()?.saturating_sub(self.start)),
        }
    }

    /// Where the window ends with the device, that changes its length. Another keeps its own.
    fn set_len(&self, len: u64) -> Result<(), Error> {
        if let Some(len) = self.len {
            return Err(Error::FixedLength { len });
        }
        let end = self.start.checked_add(len).ok_or(Error::OutOfRange {
            offset: self.start,
            len,
            device_len: self.device.len(),
        })?;
        self.device.set_len(end)
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn is_rotational(&self) -> bool {
        self.device.is_rotational()
    }

    fn claim_range(&self, range: &Range<u64>) -> Result<(), Error> {
        self.check(range.start, range.end.saturating_sub(range.start))?;
        self.device.claim_range(&self.moved(range))
    }

    fn release_range(&self, range: &Range<u64>) {
        self.device.release_range(&self.moved(range));
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.check(offset, buf.len() as u64)?;
        self.device.read_at(self.start + offset, buf)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), Error> {
        let mut moved = Vec::with_capacity(requests.len());
        for request in requests {
            self.check(request.offset, request.buf.len() as u64)?;
            let offset = self.start + request.offset;
            moved.push(ReadRequest {
                offset,
                buf: &mut *request.buf,
            });
        }
        self.device.read_many(&mut moved)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.check(offset, buf.len() as u64)?;
        self.device.write_at(self.start + offset, buf)
    }

    fn write_many(&self, requests: &[WriteRequest<'_>]) -> Result<(), Error> {
        let mut moved = Vec::with_capacity(requests.len());
        for request in requests {
            self.check(request.offset, request.buf.len() as u64)?;
            moved.push(WriteRequest {
                offset: self.start + request.offset,
                buf: request.buf,
            });
        }
        self.device.write_many(&moved)
    }

    fn write_behind(&self, range: Range<u64>) {
        self.device.write_behind(self.moved(&range));
    }

    fn flush(&self) -> Result<(), Error> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check(offset, len)?;
        self.device.discard(self.start + offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> Result<bool, Error> {
        self.check(offset, len)?;
        self.device.trim(self.start + offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let len = self.len();
        if offset >= len {
            return Ok(None);
        }
        let found = self.device.next_data(self.start + offset)?;
        Ok(found.and_then(|range| {
            let start = range.start.checked_sub(self.start)?;
            let end = (range.end - self.start).min(len);
            (start < end).then_some(start..end)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_window_neither_reads_nor_writes_outside() {
        let whole = Arc::new(MemoryDevice::from_bytes((0..100).collect()));
        let window = SubDevice::new(whole.clone(), 10, 20).unwrap();
        let mut buf = [0; 5];
        window.read_at(15, &mut buf).unwrap();
        assert_eq!(buf, [25, 26, 27, 28, 29]);
        assert!(matches!(
            window.read_at(16, &mut buf),
            Err(Error::OutOfRange { .. })
        ));
        assert!(window.write_at(u64::MAX, &buf).is_err());
        assert!(window.discard(0, 21).is_err());
        assert!(
            window
                .write_many(&[WriteRequest {
                    offset: 20,
                    buf: &buf
                }])
                .is_err()
        );
        window
            .write_many(&[WriteRequest {
                offset: 0,
                buf: &[7],
            }])
            .unwrap();
        assert_eq!(whole.to_bytes()[10], 7);
        assert_eq!(window.next_data(0).unwrap(), Some(0..20));
        assert_eq!(window.next_data(20).unwrap(), None);
        assert!(SubDevice::new(whole.clone(), 90, 11).is_err());
        assert_eq!(SubDevice::from_offset(whole.clone(), 90).unwrap().len(), 10);
        assert!(SubDevice::from_offset(whole, 101).is_err());
    }

    #[test]
    fn a_window_up_to_the_end_has_the_length_of_the_device_and_another_its_own() {
        let whole = Arc::new(MemoryDevice::new(100));
        let rest = SubDevice::from_offset(whole.clone(), 10).unwrap();
        let part = SubDevice::new(whole.clone(), 10, 90).unwrap();
        rest.set_len(190).unwrap();
        assert_eq!((rest.len(), part.len(), whole.len()), (190, 90, 200));
        rest.write_at(189, &[7]).unwrap();
        assert_eq!(whole.to_bytes()[199], 7);
        for longer in [&part as &dyn BlockDevice, &rest] {
            assert!(longer.set_len(u64::MAX).is_err());
        }
        assert!(matches!(
            part.set_len(20),
            Err(Error::FixedLength { len: 90 })
        ));
        whole.set_len(300).unwrap();
        assert_eq!(
            (rest.measure().unwrap(), part.measure().unwrap()),
            (290, 90)
        );
    }
}

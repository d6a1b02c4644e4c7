//! A device of which parts are known to be bad although they can be read: the image of a failing
//! disk, in which the program that copied it left zeroes.

use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, Error};

/// The device below, whose bad areas are errors to read; nothing is written.
#[derive(Debug)]
pub struct BadAreas {
    device: Arc<dyn BlockDevice>,
    /// In ascending order, without overlaps.
    areas: Vec<Range<u64>>,
}

impl BadAreas {
    /// The device with these bad areas, in any order.
    pub fn new(device: Arc<dyn BlockDevice>, mut areas: Vec<Range<u64>>) -> Self {
        areas.retain(|area| !area.is_empty());
        areas.sort_unstable_by_key(|area| area.start);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(areas.len());
        for area in areas {
            match joined.last_mut() {
                Some(last) if area.start <= last.end => last.end = last.end.max(area.end),
                _ => joined.push(area),
            }
        }
        let areas = joined;
        Self { device, areas }
    }

    /// The first bad area that ends past `offset`.
    fn next(&self, offset: u64) -> Option<&Range<u64>> {
        let at = self.areas.partition_point(|area| area.end <= offset);
        self.areas.get(at)
    }
}

impl BlockDevice for BadAreas {
    fn len(&self) -> u64 {
        self.device.len()
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
        let end = offset.saturating_add(buf.len() as u64);
        match self.next(offset) {
            Some(area) if area.start.max(offset) < end => {
                let what = "the map says that this area was not rescued";
                let source = std::io::Error::other(what);
                Err(Error::io("read", offset.max(area.start), source))
            }
            _ => self.device.read_at(offset, buf),
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
        let data = self.device.next_data(offset)?;
        // What was not rescued may be a hole of the image, and anything but zeroes on the disk.
        let bad = self.next(offset);
        let bad = bad.map(|area| area.start.max(offset)..area.end.min(self.len()));
        let bad = bad.filter(|area| !area.is_empty());
        Ok(match (data, bad) {
            (Some(data), Some(bad)) if bad.start < data.start => Some(bad),
            (Some(data), _) => Some(data),
            (None, bad) => bad,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn bad_areas_are_errors_and_no_holes() {
        let device = Arc::new(MemoryDevice::from_bytes((0..100).collect()));
        let bad = BadAreas::new(device, vec![50..60, 10..20, 15..30, 7..7]);
        let mut buf = [0; 10];
        for good in [0, 30, 40, 60, 90] {
            bad.read_at(good, &mut buf).unwrap();
            assert_eq!(u64::from(buf[0]), good);
        }
        for (offset, at) in [(1, 10), (12, 12), (29, 29), (45, 50), (59, 59)] {
            match bad.read_at(offset, &mut buf).unwrap_err() {
                Error::Io { offset, .. } => assert_eq!(offset, at),
                error => panic!("{error}"),
            }
        }
        bad.read_at(20, &mut []).unwrap();
        assert!(bad.write_at(0, &buf).is_err());
        let holes = Arc::new(MemoryDevice::new(1 << 20));
        let bad = BadAreas::new(holes, std::iter::once(8192..16384).collect());
        assert_eq!(bad.next_data(0).unwrap(), Some(8192..16384));
        assert_eq!(bad.next_data(9000).unwrap(), Some(9000..16384));
        assert_eq!(bad.next_data(16384).unwrap(), None);
    }
}

//! File data on its way to the device: collected in one buffer, written in one request.
//!
//! Parts of the buffer are handed out to be filled, so that data is read from its source directly
//! into it. It is written when it is full, or when the next part is not adjacent on the device.

use std::sync::Arc;

use uext4_blockdev::BlockDevice;

use crate::base::error::Result;

/// The buffer and its location on the device.
#[derive(Debug)]
pub(super) struct Stage {
    device: Arc<dyn BlockDevice>,
    buffer: Vec<u8>,
    /// Offset on the device of `buffer[0]`.
    start: u64,
    /// Bytes of `buffer` that are not written yet.
    filled: usize,
}

impl Stage {
    /// Creates a buffer of `len` bytes.
    pub(super) fn new(device: Arc<dyn BlockDevice>, len: usize) -> Self {
        Self {
            device,
            buffer: vec![0; len],
            start: 0,
            filled: 0,
        }
    }

    /// Returns space for bytes at `offset` of the device: 1 to `want` bytes, which the caller
    /// fills completely. Its previous contents are undefined.
    pub(super) fn room(&mut self, offset: u64, want: u64) -> Result<&mut [u8]> {
        if self.filled == self.buffer.len() || offset != self.start + self.filled as u64 {
            self.flush()?;
            self.start = offset;
        }
        let left = self.buffer.len() - self.filled;
        let len = usize::try_from(want).map_or(left, |want| want.min(left));
        let from = self.filled;
        self.filled += len;
        Ok(&mut self.buffer[from..from + len])
    }

    /// Writes the collected data.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.filled > 0 {
            let filled = std::mem::take(&mut self.filled);
            self.device.write_at(self.start, &self.buffer[..filled])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use uext4_blockdev::MemoryDevice;

    use super::*;

    #[test]
    fn parts_arrive_where_they_belong() {
        let device = Arc::new(MemoryDevice::new(64));
        let mut stage = Stage::new(device.clone(), 10);
        for (offset, len, byte) in [(4u64, 3u64, 1u8), (7, 20, 2), (30, 5, 3)] {
            let mut done = 0;
            while done < len {
                let room = stage.room(offset + done, len - done).unwrap();
                room.fill(byte);
                done += room.len() as u64;
            }
        }
        stage.flush().unwrap();
        let mut expected = vec![0; 64];
        expected[4..7].fill(1);
        expected[7..27].fill(2);
        expected[30..35].fill(3);
        assert_eq!(device.to_bytes(), expected);
    }
}

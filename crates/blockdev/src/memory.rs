//! A device in memory that holds only what was written to it.
//!
//! Bytes live in chunks of 16 KiB in a map under one reader-writer lock; an absent chunk reads as
//! zeroes, so a device of any length costs nothing until it is filled.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::{BlockDevice, Error};

/// Bytes of a chunk. Zeroes written where no chunk is do not make one.
const CHUNK: usize = 16 * 1024;
const CHUNK_U64: u64 = CHUNK as u64;
static ZEROES: [u8; CHUNK] = [0; CHUNK];

/// Shared with snapshots until it is written to.
type Chunk = Arc<[u8]>;

/// A sparse device in memory. Cheap when empty, lost when dropped; a flush does nothing.
#[derive(Debug)]
pub struct MemoryDevice {
    /// Changed with the lock held.
    len: AtomicU64,
    chunks: RwLock<BTreeMap<u64, Chunk>>,
}

/// A piece of a request: chunk number, place in the chunk, and place in the buffer.
struct Piece {
    chunk: u64,
    inside: Range<usize>,
    buf: Range<usize>,
}

/// Cuts `len` bytes at `offset` at chunk borders. The range was checked against the device.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % CHUNK_U64) as usize;
        let count = (CHUNK - start).min(len - done);
        let buf = done..done + count;
        done += count;
        Some(Piece {
            chunk: at / CHUNK_U64,
            inside: start..start + count,
            buf,
        })
    })
}

/// Has a range read as zeroes.
fn clear(chunks: &mut BTreeMap<u64, Chunk>, range: Range<u64>) {
    let touched: Vec<u64> = chunks
        .range(range.start / CHUNK_U64..range.end.div_ceil(CHUNK_U64))
        .map(|(&nr, _)| nr)
        .collect();
    for nr in touched {
        let start = nr * CHUNK_U64;
        let from = range.start.saturating_sub(start) as usize;
        let to = (range.end - start).min(CHUNK_U64) as usize;
        if from == 0 && to == CHUNK {
            chunks.remove(&nr);
        } else if let Some(chunk) = chunks.get_mut(&nr) {
            Arc::make_mut(chunk)[from..to].fill(0);
        }
    }
}

impl MemoryDevice {
    /// A device of `len` bytes, all zero.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self {
            len: AtomicU64::new(len),
            chunks: RwLock::default(),
        }
    }

    /// A device that holds `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let device = Self::new(bytes.len() as u64);
        device.store(0, &bytes);
        device
    }

    /// All bytes of the device, zeroes included: takes as much memory as the device is long.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // OK to unwrap: a device that does not fit in memory cannot be copied to it either.
        let mut bytes = vec![0; usize::try_from(self.len()).unwrap()];
        self.load(0, &mut bytes);
        bytes
    }

    /// A copy that holds the same bytes and is written to on its own. Costs no more than a list
    /// of chunks; each is copied when one of the two is written there.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let chunks = self.chunks.read();
        Self {
            len: AtomicU64::new(self.len()),
            chunks: RwLock::new(chunks.clone()),
        }
    }

    fn load(&self, offset: u64, buf: &mut [u8]) {
        let chunks = self.chunks.read();
        for piece in pieces(offset, buf.len()) {
            let target = &mut buf[piece.buf];
            match chunks.get(&piece.chunk) {
                Some(chunk) => target.copy_from_slice(&chunk[piece.inside]),
                None => target.fill(0),
            }
        }
    }

    fn store(&self, offset: u64, buf: &[u8]) {
        let mut chunks = self.chunks.write();
        for piece in pieces(offset, buf.len()) {
            let source = &buf[piece.buf];
            if let Some(chunk) = chunks.get_mut(&piece.chunk) {
                Arc::make_mut(chunk)[piece.inside].copy_from_slice(source);
            } else if source != &ZEROES[..source.len()] {
                let mut chunk = vec![0; CHUNK];
                chunk[piece.inside].copy_from_slice(source);
                chunks.insert(piece.chunk, chunk.into());
            }
        }
    }
}

impl BlockDevice for MemoryDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        let mut chunks = self.chunks.write();
        let had = self.len();
        if len < had {
            clear(&mut chunks, len..had);
        }
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        Error::check_range(offset, buf.len() as u64, self.len())?;
        self.load(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        Error::check_range(offset, buf.len() as u64, self.len())?;
        self.store(offset, buf);
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        Error::check_range(offset, len, self.len())?;
        clear(&mut self.chunks.write(), offset..offset + len);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let len = self.len();
        if offset >= len {
            return Ok(None);
        }
        let chunks = self.chunks.read();
        let mut numbers = chunks.range(offset / CHUNK_U64..).map(|(&nr, _)| nr);
        let Some(first) = numbers.next() else {
            return Ok(None);
        };
        let last = numbers
            .zip(first + 1..)
            .take_while(|(nr, expected)| nr == expected)
            .last()
            .map_or(first, |(nr, _)| nr);
        let end = (last + 1).saturating_mul(CHUNK_U64).min(len);
        Ok(Some((first * CHUNK_U64).max(offset)..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_device_takes_memory_for_written_bytes_only() {
        let device = MemoryDevice::new(u64::MAX);
        assert_eq!(device.next_data(0).unwrap(), None);
        device.write_at(u64::MAX - 3, &[1, 2, 3]).unwrap();
        device.write_at(1 << 40, &[0; 100_000]).unwrap();
        assert_eq!(device.chunks.read().len(), 1);
        let mut buf = [9; 5];
        device.read_at(u64::MAX - 5, &mut buf).unwrap();
        assert_eq!(buf, [0, 0, 1, 2, 3]);
        let data = device.next_data(0).unwrap().unwrap();
        assert_eq!(data.end, u64::MAX);
        assert!(data.start <= u64::MAX - 3);
        assert!(device.read_at(u64::MAX - 4, &mut buf).is_err());
    }

    #[test]
    fn ranges_cross_chunks() {
        let device = MemoryDevice::new(5 * CHUNK_U64 + 7);
        let bytes: Vec<u8> = (0..2 * CHUNK + 10).map(|i| (i % 251) as u8 + 1).collect();
        device.write_at(CHUNK_U64 - 5, &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        device.read_at(CHUNK_U64 - 5, &mut back).unwrap();
        assert_eq!(back, bytes);
        assert_eq!(device.next_data(3).unwrap(), Some(3..4 * CHUNK_U64));
        device.discard(CHUNK_U64 - 2, 2 * CHUNK_U64 + 4).unwrap();
        let all = device.to_bytes();
        assert_eq!(all[CHUNK - 5..CHUNK], [1, 2, 3, 0, 0]);
        assert!(all[CHUNK..3 * CHUNK + 2].iter().all(|&byte| byte == 0));
        assert_eq!(all[3 * CHUNK + 2], bytes[2 * CHUNK + 7]);
        assert_eq!(
            device.next_data(CHUNK_U64).unwrap(),
            Some(3 * CHUNK_U64..4 * CHUNK_U64)
        );
        assert_eq!(MemoryDevice::from_bytes(all.clone()).to_bytes(), all);
    }

    #[test]
    fn a_snapshot_is_apart() {
        let device = MemoryDevice::from_bytes(vec![1; 10]);
        let copy = device.snapshot();
        device.write_at(0, &[2]).unwrap();
        assert_eq!(copy.to_bytes(), vec![1; 10]);
        assert!(matches!(
            device.write_at(10, &[2]),
            Err(Error::OutOfRange { .. })
        ));
        device.write_at(10, &[]).unwrap();
    }

    #[test]
    fn what_is_cut_off_reads_as_zeroes_when_the_device_is_longer_again() {
        let device = MemoryDevice::from_bytes(vec![7; 3 * CHUNK]);
        device.set_len(CHUNK_U64 + 5).unwrap();
        assert!(device.write_at(CHUNK_U64 + 4, &[1, 1]).is_err());
        device.set_len(3 * CHUNK_U64).unwrap();
        let bytes = device.to_bytes();
        assert!(bytes[..CHUNK + 5].iter().all(|&byte| byte == 7));
        assert!(bytes[CHUNK + 5..].iter().all(|&byte| byte == 0));
        assert_eq!(device.measure().unwrap(), 3 * CHUNK_U64);
    }
}

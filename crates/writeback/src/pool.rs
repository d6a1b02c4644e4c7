//! Memory of folios: buffers of a power of two bytes, handed out again instead of freed.
//!
//! Fresh memory costs a page fault every 4 KiB, which costs more than the copy into it. So a
//! buffer that is dropped goes to a free list of its size, up to a bound over all sizes, and the
//! next folio of that size takes it. Old bytes stay in it: no thread sees them, because a folio
//! only shows blocks that were filled since it got the buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Log2 of the smallest and of the largest buffer, in bytes.
const SHIFT_MIN: u32 = 10;
const SHIFT_MAX: u32 = 18;
const CLASSES: usize = (SHIFT_MAX - SHIFT_MIN + 1) as usize;
/// Bytes of the largest buffer.
pub(crate) const BUFFER_MAX: usize = 1 << SHIFT_MAX;

/// The free lists of one cache. Each has a leaf lock.
#[derive(Debug)]
pub(crate) struct Pool {
    free: [Mutex<Vec<Vec<u8>>>; CLASSES],
    free_bytes: AtomicU64,
    total_max: AtomicU64,
    resident: AtomicU64,
}

impl Pool {
    /// A pool that keeps no bytes no thread uses past `total_max` bytes together with those in
    /// use, and at most a quarter of that.
    pub(crate) fn new(total_max: u64) -> Arc<Self> {
        Arc::new(Self {
            free: Default::default(),
            free_bytes: AtomicU64::new(0),
            total_max: AtomicU64::new(total_max),
            resident: AtomicU64::new(0),
        })
    }

    /// Sets the total from now on.
    pub(crate) fn set_total_max(&self, bytes: u64) {
        self.total_max.store(bytes, Relaxed);
    }

    /// Counts bytes of bookkeeping as in use.
    pub(crate) fn charge(&self, bytes: u64) {
        self.resident.fetch_add(bytes, Relaxed);
    }

    /// Takes back a [`Pool::charge`].
    pub(crate) fn uncharge(&self, bytes: u64) {
        self.resident.fetch_sub(bytes, Relaxed);
    }

    /// Bytes in buffers that are in use, and of their bookkeeping.
    pub(crate) fn resident(&self) -> u64 {
        self.resident.load(Relaxed)
    }

    /// Bytes that lie in the free lists.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Relaxed)
    }

    /// Frees what lies in the free lists but for `keep` bytes, the largest first.
    pub(crate) fn trim(&self, keep: u64) {
        for (class, list) in self.free.iter().enumerate().rev() {
            while self.free_bytes() > keep {
                let Some(buffer) = list.lock().pop() else {
                    break;
                };
                self.free_bytes
                    .fetch_sub(1 << (SHIFT_MIN as usize + class), Relaxed);
                drop(buffer);
            }
        }
    }

    /// Frees what lies in the free lists past the total; to be called now and then.
    pub(crate) fn balance(&self) {
        let (resident, free) = (self.resident(), self.free_bytes());
        let excess = (resident + free).saturating_sub(self.total_max.load(Relaxed));
        if excess > 0 && free > 0 {
            self.trim(free.saturating_sub(excess));
        }
    }

    /// An empty buffer with room for at least `len` bytes, at most [`BUFFER_MAX`].
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let mut buffer = self.take_stale(len);
        buffer.bytes.clear();
        buffer
    }

    /// A buffer that shows `len` bytes of any content, for a caller that fills them all.
    pub(crate) fn take_filled(self: &Arc<Self>, len: usize) -> Buffer {
        let mut buffer = self.take_stale(len);
        buffer.bytes.resize(len, 0);
        buffer
    }

    fn take_stale(self: &Arc<Self>, len: usize) -> Buffer {
        let shift = len
            .min(BUFFER_MAX)
            .next_power_of_two()
            .trailing_zeros()
            .max(SHIFT_MIN);
        let size = 1u64 << shift;
        let recycled = self.free[(shift - SHIFT_MIN) as usize].lock().pop();
        if recycled.is_some() {
            self.free_bytes.fetch_sub(size, Relaxed);
        }
        self.resident.fetch_add(size, Relaxed);
        Buffer {
            bytes: recycled.unwrap_or_else(|| Vec::with_capacity(1 << shift)),
            shift,
            pool: Arc::clone(self),
        }
    }

    fn put(&self, bytes: Vec<u8>, shift: u32) {
        let size = 1u64 << shift;
        let resident = self.resident.fetch_sub(size, Relaxed) - size;
        let free = self.free_bytes.fetch_add(size, Relaxed) + size;
        let total_max = self.total_max.load(Relaxed);
        if free > total_max / 4 || resident + free > total_max {
            self.free_bytes.fetch_sub(size, Relaxed);
            return;
        }
        self.free[(shift - SHIFT_MIN) as usize].lock().push(bytes);
    }
}

/// Bytes from a pool; dropping it gives them back. A clone is a copy.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    shift: u32,
    pool: Arc<Pool>,
}

impl Buffer {
    /// The bytes that were put in, from the first on.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to be changed in place.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Puts `data` at `at`, over what is there and past it; a hole before it becomes zeroes.
    pub(crate) fn put(&mut self, at: usize, data: &[u8]) {
        if at > self.bytes.len() {
            self.bytes.resize(at, 0);
        }
        let over = (self.bytes.len() - at).min(data.len());
        let (over, past) = data.split_at(over);
        self.bytes[at..at + over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(past);
    }

    /// Puts zeroes from `at` to `end`.
    pub(crate) fn zero(&mut self, at: usize, end: usize) {
        let len = self.bytes.len();
        if at < len {
            self.bytes[at..end.min(len)].fill(0);
        }
        if end > len {
            self.bytes.resize(end, 0);
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = self.pool.take(1 << self.shift);
        copy.bytes.extend_from_slice(&self.bytes);
        copy
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.bytes), self.shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_memory_out_again_within_its_bound() {
        let pool = Pool::new(48 << 10);
        let many: Vec<Buffer> = (0..4).map(|_| pool.take_filled(4096)).collect();
        assert_eq!((pool.resident(), pool.free_bytes()), (16 << 10, 0));
        drop(many);
        assert_eq!((pool.resident(), pool.free_bytes()), (0, 12 << 10));
        assert!(pool.take(4096).bytes().is_empty());
        assert_eq!(pool.take_filled(3000).bytes().len(), 3000);
        // Other sizes do not help: they count until the next balance.
        let large = pool.take(16 << 10);
        assert_eq!((pool.resident(), pool.free_bytes()), (16 << 10, 12 << 10));
        pool.set_total_max(20 << 10);
        pool.balance();
        assert_eq!(pool.free_bytes(), 4 << 10);
        drop(large);
        pool.trim(0);
        assert_eq!((pool.resident(), pool.free_bytes()), (0, 0));
    }

    #[test]
    fn puts_and_zeroes_anywhere() {
        let pool = Pool::new(4 << 20);
        let mut buffer = pool.take(16);
        buffer.put(2, b"abcd");
        buffer.put(4, b"xyz");
        assert_eq!(buffer.bytes(), b"\0\0abxyz");
        let copy = buffer.clone();
        buffer.zero(3, 5);
        buffer.zero(6, 9);
        assert_eq!(buffer.bytes(), b"\0\0a\0\0y\0\0\0");
        buffer.zero(10, 11);
        assert_eq!(buffer.bytes().len(), 11);
        assert_eq!(copy.bytes(), b"\0\0abxyz");
    }
}

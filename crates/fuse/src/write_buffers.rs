//! Data of writers who wait until their pause is over: what was not taken in yet.
//!
//! A request's data are copied once, into memory that goes from writer to writer: allocated and
//! freed for each pause it would be strewn over the allocator's arenas, and stay there. What
//! waits at once is bounded by the threads that write, each with one request.
//!
//! Lock: one, a leaf.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::init::IO_MAX;

/// Most buffers reserved for the next who wait.
const KEPT_MAX: usize = 64;

/// Memory for those who wait.
#[derive(Clone, Debug)]
pub struct WriteBufferPool {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    kept_max: usize,
}

impl Default for WriteBufferPool {
    fn default() -> Self {
        Self {
            free: Arc::default(),
            kept_max: KEPT_MAX,
        }
    }
}

/// The data of one of them.
pub struct WriteBuffer {
    parking: WriteBufferPool,
    bytes: Vec<u8>,
    from: usize,
}

impl fmt::Debug for WriteBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteBuffer({} bytes)", self.rest().len())
    }
}

impl WriteBufferPool {
    /// With room for so many bytes at most while no writer waits.
    pub fn of(bytes: usize) -> Self {
        Self {
            kept_max: (bytes / IO_MAX as usize).clamp(1, KEPT_MAX),
            ..Self::default()
        }
    }

    /// Keeps a copy of data.
    pub fn park(&self, data: &[u8]) -> WriteBuffer {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = free.pop();
        drop(free);
        let mut bytes = kept.unwrap_or_else(|| Vec::with_capacity(IO_MAX as usize));
        bytes.extend_from_slice(data);
        WriteBuffer {
            parking: self.clone(),
            bytes,
            from: 0,
        }
    }
}

impl WriteBuffer {
    /// What was not taken in.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// So many more bytes of it were.
    pub fn taken(&mut self, len: usize) {
        self.from = self.bytes.len().min(self.from + len);
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut free = self
            .parking
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.parking.kept_max {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_from_one_to_the_next() {
        let parking = WriteBufferPool::default();
        let mut one = parking.park(b"abcdef");
        one.taken(2);
        assert_eq!(one.rest(), b"cdef");
        one.taken(100);
        assert!(one.rest().is_empty());
        let at = one.bytes.as_ptr();
        drop(one);
        let next = parking.park(b"xyz");
        assert_eq!((next.bytes.as_ptr(), next.rest()), (at, &b"xyz"[..]));
        let many: Vec<WriteBuffer> = (0..2 * KEPT_MAX).map(|_| parking.park(b"")).collect();
        drop(many);
        assert_eq!(parking.free.lock().unwrap().len(), KEPT_MAX);
        let little = WriteBufferPool::of(3 << 20);
        drop([(); 9].map(|()| little.park(b"")));
        assert_eq!(little.free.lock().unwrap().len(), 3);
    }
}

//! Replies that the leader leaves for another thread to write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crossbeam_queue::ArrayQueue;

use crate::transport::dev::{Device, REPLY_MAX};

/// Replies that may be there: one that a caller waits for, and those of requests that it does not
/// wait for, as RELEASE.
const MAX: usize = 3;

#[derive(Debug)]
struct Reply {
    bytes: Vec<u8>,
    len: usize,
}

/// Replies on their way, in the order in which they were put there, and memory for others.
#[derive(Debug)]
pub(super) struct Outbox {
    replies: ArrayQueue<Reply>,
    free: ArrayQueue<Vec<u8>>,
    taken: AtomicU64,
    is_writing: AtomicBool,
}

impl Default for Outbox {
    fn default() -> Self {
        let free = ArrayQueue::new(MAX);
        while free.push(vec![0; REPLY_MAX]).is_ok() {}
        Self {
            replies: ArrayQueue::new(MAX),
            free,
            taken: AtomicU64::new(0),
            is_writing: AtomicBool::new(false),
        }
    }
}

impl Outbox {
    /// Leaves the first `len` bytes of a reply, and exchanges its memory. False, and nothing is
    /// changed, where there is no place.
    pub(super) fn put(&self, reply: &mut Vec<u8>, len: usize) -> bool {
        let Some(free) = self.free.pop() else {
            return false;
        };
        let bytes = std::mem::replace(reply, free);
        // There are as many places as there is memory.
        self.replies.push(Reply { bytes, len }).is_ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Replies that were taken to be written so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(SeqCst)
    }

    /// Writes what is there; false if there was nothing.
    pub(super) fn write_all(&self, device: &Device) -> bool {
        self.write_each(device, || {})
    }

    /// Writes what is there, the first step of each reply being `before`.
    fn write_each(&self, device: &Device, before: impl Fn()) -> bool {
        let mut is_any = false;
        while let Some(Reply { bytes, len }) = self.replies.pop() {
            self.taken.fetch_add(1, SeqCst);
            before();
            // OK to index: as many as were put there.
            device.write(&bytes[..len]);
            // It has a place: it came from there.
            _ = self.free.push(bytes);
            is_any = true;
        }
        is_any
    }

    /// The same as the answerer, which is seen to be at it meanwhile.
    pub(super) fn answer(&self, device: &Device, before: impl Fn()) {
        self.is_writing.store(true, SeqCst);
        self.write_each(device, before);
        self.is_writing.store(false, SeqCst);
    }

    /// Whether the answerer is at a reply, or was kept from going on after it.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing.load(SeqCst)
    }
}

//! Replies that the leader leaves for another thread to write.
//!
//! A reply stays in its place until it is written, so that the guard can write it where the thread
//! that has taken it is kept from going on. The kernel refuses what it was given before. Places
//! are exchanged as a whole: no thread waits for another one here, which may not get the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use arc_swap::ArcSwapOption;

use crate::transport::dev::Device;

/// Replies that may be there: one that its thread has not let go of, the next, and one that comes
/// late.
pub(super) const PLACES: usize = 3;
/// Bytes of the largest: larger ones the leader writes.
pub(super) const LEN_MAX: usize = 16 << 10;

/// One reply, with its header.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) bytes: Vec<u8>,
    /// From 1; no two have the same.
    pub(super) number: u64,
    /// The thread that asked; 0 where the kernel says none.
    pub(super) caller: u32,
    is_taken: AtomicBool,
}

impl Reply {
    /// Made another one.
    pub(super) fn set(&mut self, bytes: &[u8], number: u64, caller: u32) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        (self.number, self.caller) = (number, caller);
        self.is_taken = AtomicBool::new(false);
    }

    /// Whether the caller is the first to take it.
    fn take(&self) -> bool {
        !self.is_taken.swap(true, SeqCst)
    }

    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(SeqCst)
    }
}

/// Replies on their way, in no order.
#[derive(Debug, Default)]
pub(super) struct Outbox([ArcSwapOption<Reply>; PLACES]);

impl Outbox {
    /// Leaves a reply that no thread has taken. False where there is no place. One thread alone
    /// does this.
    pub(super) fn put(&self, reply: Arc<Reply>) -> bool {
        let free = self.0.iter().find(|place| place.load().is_none());
        free.map(|place| place.store(Some(reply))).is_some()
    }

    /// Whether a reply is there for which this holds.
    pub(super) fn has(&self, is_it: impl Fn(&Reply) -> bool) -> bool {
        let mut places = self.0.iter();
        places.any(|place| place.load().as_deref().is_some_and(&is_it))
    }

    /// Writes what no thread has taken. `before` is done for each before it is taken.
    pub(super) fn write(&self, device: &Device, before: impl Fn()) {
        let is_free = |reply: &Reply| !reply.is_taken();
        for place in &self.0 {
            if !place.load().as_deref().is_some_and(is_free) {
                continue;
            }
            before();
            let there = place.load_full();
            if let Some(reply) = &there
                && reply.take()
            {
                device.write(&reply.bytes);
                place.compare_and_swap(&there, None);
            }
        }
    }

    /// Writes all that is there, taken or not.
    pub(super) fn write_all(&self, device: &Device) {
        for place in &self.0 {
            if let Some(reply) = place.swap(None) {
                device.write(&reply.bytes);
            }
        }
    }

    /// The numbers of what is there, 0 for a place without a reply.
    pub(super) fn numbers(&self) -> [u64; PLACES] {
        let number = |place: &ArcSwapOption<Reply>| place.load().as_ref().map(|it| it.number);
        self.0.each_ref().map(|place| number(place).unwrap_or(0))
    }

    /// Writes the reply of this number, taken or not; whether the kernel had not got it before.
    pub(super) fn write_late(&self, number: u64, device: &Device) -> bool {
        let mut there = self.0.iter().filter_map(ArcSwapOption::load_full);
        let late = there.find(|reply| reply.number == number);
        late.is_some_and(|reply| {
            reply.take();
            device.write(&reply.bytes)
        })
    }
}

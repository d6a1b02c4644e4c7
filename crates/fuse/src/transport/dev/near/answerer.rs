//! The answerer: a thread of the class SCHED_IDLE that writes replies and does nothing else.
//!
//! The caller that it wakes is to find no other thread on the CPU, or it is moved. But from Linux
//! 6.12 on a thread that sleeps while it has had more than its share, as the leader has next to
//! this one, stays in the queue of the CPU until it is picked the next time, and is counted there
//! ("delayed dequeue"). Yielding picks it: it costs some hundred nanoseconds, and makes the
//! difference between one caller in two that stays and 99 of 100.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use rustix::thread::sched_yield;

use super::Near;

/// Runs until the mount is gone.
pub(super) fn run(near: &Near) {
    while !near.is_over.load(SeqCst) {
        near.outbox.answer(&near.device, sched_yield);
        // Who puts a reply there unparks this thread afterwards.
        if near.outbox.is_empty() {
            thread::park();
        }
    }
}

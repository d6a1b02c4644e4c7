//! The answerer: a thread of the class SCHED_IDLE that writes replies and does nothing else.
//!
//! The caller that it wakes is to find no other thread on the CPU, or it is moved. But from Linux
//! 6.12 on a thread that goes to sleep after more than its share of the CPU's time stays in the
//! run queue until it would be picked next ("delayed dequeue"), and counts as running. The leader
//! is such a thread. Yielding makes the scheduler pick it, and so remove it: that costs some
//! hundred nanoseconds, and without it one caller in two is moved.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use rustix::thread::sched_yield;

use super::Near;

/// Runs until the mount is gone.
pub(super) fn run(near: &Near) {
    while !near.is_over.load(SeqCst) {
        // It yields before it takes a reply: others may write it meanwhile.
        near.outbox.write(&near.device, sched_yield);
        // Who puts a reply there unparks this thread afterwards.
        if !near.outbox.has(|reply| !reply.is_taken()) {
            thread::park();
        }
    }
}

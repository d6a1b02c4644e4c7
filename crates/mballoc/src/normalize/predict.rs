//! By what the file did so far.
//!
//! Who has appended goes on appending: a window is as long again as the run so far, so windows double.
//! Who writes here and there gets what is asked for, up to a boundary of 16 KiB. What is dirty behind
//! the request is known to follow and is asked for at once. A file that nobody can write to any more
//! gets what it still needs and no more, so that closed files lie side by side. Nothing is asked for
//! that one file among many should not have, or that the device did not have the last time.

use super::{Span, Surroundings, Wanted};

/// All windows together are at most this part of what is free. What is not used of them comes back with
/// the file's last user; with an eighth ten writers on a half full device get no larger windows than the
/// table gives them.
const SHARE: u64 = 2;
/// Binary logarithm of the bytes that a request here and there is rounded up to.
const SCATTERED: u32 = 14;

pub(super) fn window(wanted: &Wanted, closed: bool, cap: u64, around: &Surroundings<'_>) -> Span {
    let &Wanted { lblk, len, size } = wanted;
    let history = &around.history;
    let request_end = lblk + len;
    let end = if history.is_sequential() {
        let known = size;
        if closed {
            known
        } else {
            // At least as much again as came so far, up to a power of two.
            let run = history.run().max(len);
            let double = (2 * run).next_power_of_two();
            known.max(request_end.saturating_add(double - run))
        }
    } else if closed {
        request_end
    } else {
        let step = 1u64 << SCATTERED.saturating_sub(around.block_size_log2);
        request_end.next_multiple_of(step)
    };
    let share = around.free / (SHARE * u64::from(around.writers.max(1)));
    let had = history.granted().map_or(u64::MAX, |granted| 2 * granted);
    let most = cap.min(share).min(had).max(len);
    Span {
        start: lblk,
        end: end.min(lblk + most).max(request_end),
    }
}

//! Whole stripes: a write that covers a whole stripe of a RAID with parity needs nothing read
//! before.

use std::ops::Range;

use uext4_mballoc::Wanted;

/// Sizes up to so many stripes are rounded to a power of two of them, larger ones to multiples.
const POWERS_UP_TO: u64 = 32;

/// Instead of another rule: 1, 2, 4, 8, 16 or 32 stripes by the size of the file, then multiples
/// (Yu Kuai, linux-ext4, December 2025); begins at a stripe.
pub(super) fn window(wanted: &Wanted, stripe: u64, cap: u64) -> Range<u64> {
    let start = wanted.lblk / stripe * stripe;
    let stripes = wanted.size.div_ceil(stripe);
    let stripes = if stripes <= POWERS_UP_TO {
        stripes.next_power_of_two()
    } else {
        stripes
    };
    // A cap below a stripe cannot be honored by whole ones.
    let len = (stripes * stripe).min((cap / stripe).max(1) * stripe);
    start..start + len
}

//! Whole stripes: a write that covers a whole stripe of a RAID with parity needs nothing read before.

use super::{Span, Surroundings, Wanted};

/// Sizes up to so many stripes are rounded to a power of two of them, larger ones to multiples.
const POWERS_UP_TO: u64 = 32;

/// Blocks of a stripe, where there is one and it can matter.
pub(super) fn whole(around: &Surroundings<'_>) -> Option<u64> {
    let stripe = around.stripe;
    (stripe > 1 && stripe <= around.blocks_per_group).then_some(stripe.into())
}

/// Instead of another rule: 1, 2, 4, 8, 16 or 32 stripes by the size of the file, then multiples
/// (Yu Kuai, linux-ext4, December 2025); begins at a stripe.
pub(super) fn window(wanted: &Wanted, stripe: u64, cap: u64) -> Span {
    let start = wanted.lblk / stripe * stripe;
    let stripes = wanted.size.div_ceil(stripe);
    let stripes = if stripes <= POWERS_UP_TO {
        stripes.next_power_of_two()
    } else {
        stripes
    };
    // A cap below a stripe cannot be kept by whole ones.
    let len = (stripes * stripe).min((cap / stripe).max(1) * stripe);
    Span {
        start,
        end: start + len,
    }
}

/// After another rule: moves the end to the end of a stripe, if there is at least one; down where the
/// window would get too long.
pub(super) fn round_up(span: Span, stripe: u64, cap: u64) -> Span {
    if span.len() < stripe {
        return span;
    }
    let mut end = span.end.next_multiple_of(stripe);
    if end - span.start > cap.max(stripe) {
        end -= stripe;
    }
    let end = if end > span.start { end } else { span.end };
    Span { end, ..span }
}

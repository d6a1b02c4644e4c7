//! The next power of two of the file's end, counted in blocks so that it fits every block size.

use super::{Span, Wanted};

/// From the last multiple of the window's length on, unless the start of the request is respected.
pub(super) fn window(wanted: &Wanted, cap: u64) -> Span {
    let target = wanted.size.next_power_of_two();
    if target <= cap {
        return Span {
            start: 0,
            end: target,
        };
    }
    // Within the last block that is a whole cap before the request; with the start respected, a whole
    // cap from there on.
    Span {
        start: wanted.lblk / cap * cap,
        end: target.min(wanted.lblk + cap),
    }
}

//! The next power of two of the file's end, counted in blocks so that it fits every block size.

use std::ops::Range;

use uext4_mballoc::Wanted;

/// From the last multiple of the window's length on, unless the start of the request is respected.
pub(super) fn window(wanted: &Wanted, cap: u64) -> Range<u64> {
    let target = wanted.size.next_power_of_two();
    if target <= cap {
        return 0..target;
    }
    // Within the last block that is a whole cap before the request; with the start respected, a
    // whole cap from there on.
    wanted.lblk / cap * cap..target.min(wanted.lblk + cap)
}

//! The table: vanilla 3.15's windows, which mainline still has.
//!
//! Files of up to 1 MiB get a power of two from the start of the file on. Longer ones get an
//! aligned window of 2, 4 or 8 MiB. Each of these rows has a second test meant to keep windows
//! within what a buddy tracks; it compares the row with the largest chunk and is true exactly
//! where it should be false. So the last row a block size can reach takes everything: 2 MiB
//! windows with blocks of 1 KiB, 4 MiB with 2 KiB, 8 MiB with 4 KiB. Larger blocks reach the end
//! of the table.

use std::ops::Range;

use uext4_mballoc::Wanted;

use super::normalize::Cap;

/// The rows above 1 MiB, as the binary logarithms of: the size they are for, their window, and the
/// number of blocks that the second test compares.
const ROWS: [(u32, u32, u32); 3] = [(22, 21, 11), (23, 22, 12), (23, 23, 13)];

/// Binary logarithms of the smallest window, and of the largest that begins with the file.
const SMALLEST: u32 = 14;
const FROM_START: u32 = 20;

pub(super) fn window(wanted: &Wanted, block_size_log2: u32, cap: Cap) -> Range<u64> {
    let size = wanted.size << block_size_log2;
    let in_blocks = |log: u32| 1u64 << log.saturating_sub(block_size_log2);
    if size <= 1 << FROM_START {
        let end = size.next_power_of_two().max(1 << SMALLEST) >> block_size_log2;
        return 0..end.max(1);
    }
    let largest_chunk = block_size_log2 + 1;
    for (row, (for_size, window, chunk)) in ROWS.into_iter().enumerate() {
        // The last row looks at the request, the others at the file.
        let fits = if row + 1 < ROWS.len() {
            size <= 1 << for_size
        } else {
            wanted.len <= in_blocks(for_size)
        };
        if fits || cap == Cap::Table && largest_chunk <= chunk {
            let len = in_blocks(window);
            let start = wanted.lblk / len * len;
            return start..start + len;
        }
    }
    wanted.lblk..wanted.lblk + wanted.len
}

/// The longest window of the table in blocks: as the test that is always true makes it, no limit
/// with blocks for which it is not.
pub(super) fn largest(block_size_log2: u32) -> u64 {
    let row = ROWS.iter().find(|(_, _, chunk)| block_size_log2 < *chunk);
    row.map_or(u64::MAX, |(_, window, _)| 1 << (window - block_size_log2))
}

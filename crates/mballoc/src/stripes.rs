//! Free whole stripes of a group, counted and listed.
//!
//! A stripe is all blocks of one row of a RAID; writing all of it needs no reading. Where stripes
//! begin is counted from the start of the device. A bit a stripe reports whether all of it is
//! free, which stays true while blocks come and go; the need was named by T. Ts'o, linux-ext4,
//! October 2025.

use crate::bits;

/// See the file's head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stripes {
    /// Blocks of a stripe, more than 0.
    stripe: u32,
    /// First block of the group's first stripe, relative to the group.
    first: u32,
    /// Whole stripes within the group.
    count: u32,
    /// Set: all of it is free.
    free: Box<[u64]>,
    free_count: u32,
    longest: u32,
}

impl Stripes {
    /// Of a group of `blocks` blocks whose first stripe starts at `first`.
    pub(crate) fn new(used: &[u64], blocks: u32, stripe: u32, first: u32) -> Self {
        let count = blocks.saturating_sub(first) / stripe;
        let mut stripes = Self {
            stripe,
            first,
            count,
            free: vec![0; count.div_ceil(64).max(1) as usize].into_boxed_slice(),
            free_count: 0,
            longest: 0,
        };
        stripes.update(used, 0, blocks);
        stripes
    }

    /// Free stripes.
    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Free stripes in the longest row of them.
    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    /// Stripes that have a block in `start..end`.
    fn touched(&self, start: u32, end: u32) -> std::ops::Range<u32> {
        let low = start.saturating_sub(self.first) / self.stripe;
        let high = end.saturating_sub(self.first).div_ceil(self.stripe);
        low.min(self.count)..high.min(self.count)
    }

    /// Blocks `start..end` of `used` have changed.
    pub(crate) fn update(&mut self, used: &[u64], start: u32, end: u32) {
        let mut changed = false;
        for at in self.touched(start, end) {
            let from = self.first + at * self.stripe;
            let is_free = bits::next(used, from, from + self.stripe, true) == from + self.stripe;
            if is_free == bits::get(&self.free, at) {
                continue;
            }
            changed = true;
            if is_free {
                bits::set(&mut self.free, at);
                self.free_count += 1;
            } else {
                bits::clear(&mut self.free, at);
                self.free_count -= 1;
            }
        }
        if changed {
            self.longest = self.rows(0).map(|(_, len)| len).max().unwrap_or(0);
        }
    }

    /// Rows of free stripes from `from` on: the first, and how many.
    fn rows(&self, from: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut at = from;
        std::iter::from_fn(move || {
            let start = bits::next(&self.free, at, self.count, true);
            at = bits::next(&self.free, start, self.count, false);
            (start < self.count).then_some((start, at - start))
        })
    }

    /// First block of the shortest row of at least `least` free stripes among the first few,
    /// those at or after block `from` first; with the number of rows looked at, at most
    /// `scan_max`.
    pub(crate) fn find(&self, least: u32, from: u32, scan_max: u32) -> (Option<u32>, u32) {
        let from = from.saturating_sub(self.first).div_ceil(self.stripe);
        let rows = self.rows(from).chain(self.rows(0));
        let mut looked = 0;
        let mut best: Option<(u32, u32)> = None;
        for (start, len) in rows
            .filter(|&(_, len)| len >= least)
            .take(scan_max as usize)
        {
            looked += 1;
            if best.is_none_or(|(_, shortest)| len < shortest) {
                best = Some((start, len));
            }
            if len == least {
                break;
            }
        }
        let start = best.map(|(start, _)| self.first + start * self.stripe);
        (start, looked)
    }

    /// Free stripes that taking `start..end` would break.
    pub(crate) fn broken(&self, start: u32, end: u32) -> u32 {
        let touched = self.touched(start, end);
        touched.filter(|&at| bits::get(&self.free, at)).count() as u32
    }
}

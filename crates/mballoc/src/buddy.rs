//! The buddy of one group: its free runs, cut into aligned chunks of a power of two.
//!
//! Next to a copy of the bitmap there is one bitmap an order, in which a bit is set if that chunk
//! is free and no larger free chunk contains it. So the chunks of all orders together are exactly
//! the largest aligned intervals within the free space, however it came about.

use crate::bits;
use crate::runs::{Piece, RunTree};
use crate::stripes::Stripes;

/// Most orders any group has: 64 KiB blocks track chunks up to 2¹⁷ blocks.
pub(crate) const ORDERS_MAX: usize = 18;

/// What all groups of a file system have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Blocks of every group but the last.
    pub(crate) blocks_per_group: u32,
    /// Largest order tracked: a quarter of a full group of 8 × block size blocks, as the kernel
    /// has it.
    pub(crate) order_max: u32,
    /// Blocks of a stripe if free ones are listed, else 0.
    pub(crate) stripe: u32,
}

impl Shape {
    /// With the free stripes of `stripe` blocks listed (0: none).
    pub(crate) fn new(blocks_per_group: u32, block_size_log2: u32, stripe: u32) -> Self {
        let order_max = (block_size_log2 + 1)
            .min(blocks_per_group.ilog2())
            .min(ORDERS_MAX as u32 - 1);
        Self {
            blocks_per_group,
            order_max,
            stripe,
        }
    }

    /// Words of a bitmap over one group.
    fn words(self) -> usize {
        self.blocks_per_group.div_ceil(64) as usize
    }
}

/// The buddy of one group. All positions and lengths are blocks, relative to the group.
#[derive(Debug)]
pub struct Buddy {
    blocks: u32,
    order_max: u32,
    /// Set: used, or past the end of the group.
    used: Box<[u64]>,
    /// Set: a free chunk of that order.
    chunks: Vec<Box<[u64]>>,
    /// `bb_counters`: chunks of each order.
    counters: [u32; ORDERS_MAX],
    /// `bb_free`: free blocks.
    free: u32,
    /// `bb_fragments`: free runs.
    fragments: u32,
    runs: RunTree,
    stripes: Option<Stripes>,
}

impl Buddy {
    /// Cuts the free runs of `bitmap` (bit set: used; bits past `blocks` do not count) into chunks.
    /// The group's first stripe starts at its block `first_stripe`.
    pub(crate) fn generate(shape: Shape, bitmap: &[u8], blocks: u32, first_stripe: u32) -> Self {
        let mut used = vec![!0u64; shape.words()].into_boxed_slice();
        for (word, bytes) in used.iter_mut().zip(bitmap.chunks(8)) {
            let mut full = [0xFF; 8];
            full[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(full);
        }
        let end = used.len() as u32 * 64;
        bits::fill(&mut used, blocks, end, true);
        let chunks = (0..=shape.order_max)
            .map(|order| {
                let bits = (shape.blocks_per_group >> order) as usize + 1;
                vec![0u64; bits.div_ceil(64)].into_boxed_slice()
            })
            .collect();
        let listed = shape.stripe > 0;
        let mut buddy = Self {
            blocks,
            order_max: shape.order_max,
            runs: RunTree::new(&used),
            stripes: listed.then(|| Stripes::new(&used, blocks, shape.stripe, first_stripe)),
            used,
            chunks,
            counters: [0; ORDERS_MAX],
            free: 0,
            fragments: 0,
        };
        let mut at = bits::next(&buddy.used, 0, blocks, false);
        while at < blocks {
            let end = bits::next(&buddy.used, at, blocks, true);
            buddy.insert(at, end, false);
            buddy.free += end - at;
            buddy.fragments += 1;
            at = bits::next(&buddy.used, end, blocks, false);
        }
        buddy
    }

    /// The group has become longer, to `blocks`; what is new is used.
    pub(crate) fn lengthen(&mut self, shape: Shape, blocks: u32, first_stripe: u32) {
        self.blocks = blocks;
        let listed = shape.stripe > 0;
        self.stripes = listed.then(|| Stripes::new(&self.used, blocks, shape.stripe, first_stripe));
    }

    /// Blocks of the group.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Free blocks.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Free runs.
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// Chunks of each order.
    pub(crate) fn counters(&self) -> &[u32] {
        &self.counters[..=self.order_max as usize]
    }

    /// Order of the largest free chunk; `None` if nothing is free.
    pub fn largest_order(&self) -> Option<u32> {
        let found = self.counters().iter().rposition(|&n| n > 0);
        found.map(|order| order as u32)
    }

    /// Free blocks from `start` on, at most `want`.
    pub fn run_at(&self, start: u32, want: u32) -> u32 {
        let end = start.saturating_add(want).min(self.blocks);
        bits::next(&self.used, start.min(end), end, true) - start.min(end)
    }

    /// The first free run of at least `min` blocks at or after `from`, cut at `want`.
    pub(crate) fn next_run(&self, from: u32, want: u32, min: u32) -> Option<Piece> {
        let mut start = bits::next(&self.used, from, self.blocks, false);
        while start < self.blocks {
            let len = self.run_at(start, want);
            if len >= min {
                return Some(Piece { start, len });
            }
            start = bits::next(&self.used, start + len, self.blocks, false);
        }
        None
    }

    /// True if all of `start..start + len` is used.
    pub(crate) fn all_used(&self, start: u32, len: u32) -> bool {
        bits::next(&self.used, start, start + len, false) == start + len
    }

    /// Takes blocks that are free, all of `start..start + len`.
    pub fn take(&mut self, start: u32, len: u32) {
        self.adjust_fragments(start, len, false);
        self.free -= len;
        let end = start + len;
        bits::fill(&mut self.used, start, end, true);
        let mut at = start;
        while at < end {
            let (order, chunk) = self.chunk_with(at);
            let chunk_end = chunk + (1 << order);
            self.drop_chunk(order, chunk);
            self.insert(chunk, at, false);
            self.insert(end.min(chunk_end), chunk_end, false);
            at = chunk_end;
        }
        self.changed(start, end);
    }

    /// Gives back blocks that are used.
    pub(crate) fn give(&mut self, start: u32, len: u32) {
        self.adjust_fragments(start, len, true);
        self.free += len;
        bits::fill(&mut self.used, start, start + len, false);
        self.insert(start, start + len, true);
        self.changed(start, start + len);
    }

    fn changed(&mut self, start: u32, end: u32) {
        self.runs.update(&self.used, start, end);
        if let Some(stripes) = &mut self.stripes {
            stripes.update(&self.used, start, end);
        }
    }

    /// First free block at or after `from`; the end of the group if there is none.
    pub fn next_free(&self, from: u32) -> u32 {
        bits::next(&self.used, from, self.blocks, false)
    }

    /// Free blocks from the free block `start` on as chunks report: to the end of its chunk, and
    /// whole chunks more until there are `need`.
    pub fn extent(&self, start: u32, need: u32) -> Piece {
        let (order, chunk) = self.chunk_with(start);
        let mut end = chunk + (1 << order);
        while end - start < need && end < self.blocks && !bits::get(&self.used, end) {
            end += 1 << self.chunk_with(end).0;
        }
        Piece {
            start,
            len: end - start,
        }
    }

    /// The first chunk of the lowest order there is from `least` up.
    pub fn chunk_of_order(&self, least: u32) -> Option<Piece> {
        let order = (least..=self.order_max).find(|&o| self.counters[o as usize] > 0)?;
        let end = (self.blocks >> order) + 1;
        let at = bits::next(&self.chunks[order as usize], 0, end, true);
        (at < end).then_some(Piece {
            start: at << order,
            len: 1 << order,
        })
    }

    /// Blocks of the longest free run.
    pub(crate) fn longest(&self) -> u32 {
        self.runs.longest()
    }

    /// Free stripes, and how many lie in a row at most; 0 if they are not listed.
    pub(crate) fn stripes(&self) -> (u32, u32) {
        let stripes = self.stripes.as_ref();
        stripes.map_or((0, 0), |s| (s.free_count(), s.longest()))
    }

    /// The shortest of the first few runs of at least `least` blocks, those that follow `from`
    /// first and the one that `from` lies in whole; one that breaks fewer free stripes is better
    /// still. Looks at `scan_max` runs at most, and also returns at how many.
    pub(crate) fn fit(&self, least: u32, from: u32, scan_max: u32) -> (Option<Piece>, u32) {
        let from = from.min(self.blocks);
        let first = if from < self.blocks && !bits::get(&self.used, from) {
            bits::run_start(&self.used, from)
        } else {
            from
        };
        let (mut best, mut looked) = (None, 0);
        let (mut at, mut end, mut round) = (first, self.blocks, false);
        while looked < scan_max {
            let found = self.runs.next(&self.used, end, at, least);
            let Some(piece) = found.filter(|piece| piece.start < end) else {
                if round {
                    break;
                }
                // No run from before `first` goes past it.
                (at, end, round) = (0, first, true);
                continue;
            };
            looked += 1;
            let broken = match &self.stripes {
                Some(stripes) => stripes.broken(piece.start, piece.start + least),
                None => 0,
            };
            let merit = (broken, piece.len);
            if best.is_none_or(|(known, _)| merit < known) {
                best = Some((merit, piece));
            }
            if merit == (0, least) {
                break;
            }
            at = piece.start + piece.len;
        }
        (best.map(|(_, piece)| piece), looked)
    }

    /// As [`Stripes::find`]; none if stripes are not listed.
    pub(crate) fn stripe_row(&self, least: u32, from: u32, scan_max: u32) -> (Option<u32>, u32) {
        match &self.stripes {
            Some(stripes) => stripes.find(least, from, scan_max),
            None => (None, 0),
        }
    }

    /// Order and first block of the chunk that contains the free block `at`.
    fn chunk_with(&self, at: u32) -> (u32, u32) {
        let order = (0..=self.order_max)
            .find(|&order| bits::get(&self.chunks[order as usize], at >> order))
            .unwrap_or(0);
        (order, at >> order << order)
    }

    fn drop_chunk(&mut self, order: u32, start: u32) {
        self.counters[order as usize] -= 1;
        bits::clear(&mut self.chunks[order as usize], start >> order);
    }

    /// Cuts `start..end` into chunks; with `merge`, each joins its free buddies.
    fn insert(&mut self, start: u32, end: u32, merge: bool) {
        let mut at = start;
        while at < end {
            let aligned = at.trailing_zeros().min(self.order_max);
            let mut order = aligned.min((end - at).ilog2());
            let mut chunk = at;
            at += 1 << order;
            while merge && order < self.order_max {
                let buddy = chunk ^ 1 << order;
                let joined = (chunk & buddy) + (2 << order);
                let chunks = &self.chunks[order as usize];
                if joined > self.blocks || !bits::get(chunks, buddy >> order) {
                    break;
                }
                self.drop_chunk(order, buddy);
                chunk &= buddy;
                order += 1;
            }
            self.counters[order as usize] += 1;
            bits::set(&mut self.chunks[order as usize], chunk >> order);
        }
    }

    /// A run of `len` becomes free or used: what that does to the number of free runs.
    fn adjust_fragments(&mut self, start: u32, len: u32, freed: bool) {
        let before = start > 0 && !bits::get(&self.used, start - 1);
        let end = start + len;
        let after = end < self.blocks && !bits::get(&self.used, end);
        match (before, after, freed) {
            (true, true, true) | (false, false, false) => self.fragments -= 1,
            (true, true, false) | (false, false, true) => self.fragments += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the chunks must be, from the definition alone.
    fn naive_counters(shape: Shape, used: &[bool]) -> Vec<u32> {
        let mut counters = vec![0; shape.order_max as usize + 1];
        let mut covered = vec![false; used.len()];
        for order in (0..=shape.order_max).rev() {
            for chunk in (0..used.len()).step_by(1 << order) {
                let range = chunk..chunk + (1 << order);
                if range.end <= used.len()
                    && range.clone().all(|b| !used[b])
                    && !covered[range.start]
                {
                    counters[order as usize] += 1;
                    covered[range].fill(true);
                }
            }
        }
        counters
    }

    fn check(shape: Shape, buddy: &Buddy, used: &[bool]) {
        assert_eq!(buddy.counters(), naive_counters(shape, used));
        assert_eq!(buddy.free() as usize, used.iter().filter(|u| !**u).count());
        let starts = (0..used.len()).filter(|&b| !used[b] && (b == 0 || used[b - 1]));
        assert_eq!(buddy.fragments() as usize, starts.count());
        let regenerated = Buddy::generate(shape, &to_bytes(used), used.len() as u32, 5);
        assert_eq!(buddy.chunks, regenerated.chunks);
        assert_eq!(buddy.used, regenerated.used);
        assert_eq!(buddy.runs, regenerated.runs);
        assert_eq!(buddy.stripes, regenerated.stripes);
    }

    fn to_bytes(used: &[bool]) -> Vec<u8> {
        used.chunks(8)
            .map(|c| {
                c.iter()
                    .enumerate()
                    .fold(0, |b, (i, &u)| b | u8::from(u) << i)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn take_and_give_keep_the_chunks_maximal(
            blocks in 1u32..700,
            ops in prop::collection::vec((any::<u32>(), 1u32..200, any::<bool>()), 1..60),
        ) {
            let shape = Shape::new(700, 7, 24);
            let mut used = vec![false; blocks as usize];
            let mut buddy = Buddy::generate(shape, &to_bytes(&used), blocks, 5);
            for (at, len, take) in ops {
                let start = at % blocks;
                // The longest run from `start` that is all in the wrong state.
                let len = (start..blocks)
                    .take(len as usize)
                    .take_while(|&b| used[b as usize] != take)
                    .count() as u32;
                if len == 0 {
                    continue;
                }
                if take {
                    prop_assert_eq!(buddy.run_at(start, len), len);
                    buddy.take(start, len);
                } else {
                    prop_assert!(buddy.all_used(start, len));
                    buddy.give(start, len);
                }
                used[start as usize..(start + len) as usize].fill(take);
                check(shape, &buddy, &used);
            }
        }

        #[test]
        fn found_runs_are_free_and_long_enough(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 88),
            want in 1u32..300,
            from in 0u32..700,
        ) {
            let shape = Shape::new(700, 7, 24);
            let buddy = Buddy::generate(shape, &bytes, 700, 5);
            let runs: Vec<Piece> = (0..700)
                .filter(|&b| b == 0 || buddy.run_at(b - 1, 1) == 0)
                .map(|start| Piece { start, len: buddy.run_at(start, 700) })
                .filter(|piece| piece.len > 0)
                .collect();
            let longest = runs.iter().map(|piece| piece.len).max().unwrap_or(0);
            prop_assert_eq!(buddy.longest(), longest);
            let (fit, looked) = buddy.fit(want, from, u32::MAX);
            prop_assert_eq!(fit.is_some(), longest >= want);
            prop_assert!(looked as usize <= runs.len());
            if let Some(piece) = fit {
                prop_assert!(runs.contains(&piece));
                let best = |p: &&Piece| p.len >= want;
                let broken = |p: &Piece| buddy.stripes.as_ref().unwrap().broken(p.start, p.start + want);
                let merits = runs.iter().filter(best).map(|p| (broken(p), p.len));
                prop_assert_eq!(merits.min(), Some((broken(&piece), piece.len)));
            }
            for piece in &runs {
                let extent = buddy.extent(piece.start, want);
                prop_assert!(extent.len >= want.min(piece.len) && extent.len <= piece.len);
            }
            let (row, _) = buddy.stripe_row(1, from, 5);
            prop_assert_eq!(row.is_some(), buddy.stripes().0 > 0);
            if let Some(start) = row {
                prop_assert_eq!((start % 24, buddy.run_at(start, 24)), (5, 24));
            }
        }
    }

    #[test]
    fn whole_group_is_one_run() {
        let shape = Shape::new(32768, 12, 0);
        assert_eq!(shape.order_max, 13);
        let buddy = Buddy::generate(shape, &[0; 4096], 32768, 0);
        assert_eq!(buddy.counters()[13], 4);
        assert_eq!(buddy.largest_order(), Some(13));
        assert_eq!(buddy.longest(), 32768);
        assert_eq!(buddy.extent(100, 32000).len, 32668);
    }
}

//! Blocks that become what the device holds in other places: a remedy that gives each owner a copy
//! of shared blocks keeps ranges, not contents, so that terabytes cost as much as one block.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::report::Cause;

/// Ranges of copies, which do not overlap, by their first blocks.
#[derive(Debug, Default)]
pub struct Copies {
    runs: BTreeMap<u64, Copied>,
    blocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Copied {
    end: u64,
    from: u64,
    cause: Cause,
}

/// Copies at one stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first copy.
    pub start: u64,
    /// The block behind the last one.
    pub end: u64,
    /// The block that the first one is a copy of.
    pub from: u64,
    /// The finding that caused it.
    pub cause: Cause,
}

impl Copies {
    /// How many copies there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Adds copies of the blocks from `from` on. None of them may be a copy already.
    pub fn put(&mut self, copies: Range<u64>, from: u64, cause: Cause) {
        let len = copies.end.saturating_sub(copies.start);
        self.blocks = self.blocks.saturating_add(len);
        if let Some((start, before)) = self.runs.range_mut(..copies.start).next_back()
            && before.end == copies.start
            && before.from + (before.end - start) == from
            && before.cause == cause
        {
            before.end = copies.end;
            return;
        }
        let end = copies.end;
        self.runs.insert(copies.start, Copied { end, from, cause });
    }

    fn of(&self, block: u64) -> Option<Run> {
        let (&start, &Copied { end, from, cause }) = self.runs.range(..=block).next_back()?;
        (block < end).then_some(Run {
            start,
            end,
            from,
            cause,
        })
    }

    /// The block that this one is a copy of.
    pub fn source(&self, block: u64) -> Option<u64> {
        self.of(block).map(|run| run.from + (block - run.start))
    }

    /// Why this block is a copy, if it is one.
    pub fn cause(&self, block: u64) -> Option<Cause> {
        self.of(block).map(|run| run.cause)
    }

    /// The first copy from `from` on.
    pub fn next(&self, from: u64) -> Option<u64> {
        match self.of(from) {
            Some(_) => Some(from),
            None => self.runs.range(from..).next().map(|(&start, _)| start),
        }
    }

    /// Where the device holds the contents of a block, and of how many, at most `len`, behind it.
    pub fn resolve(&self, block: u64, len: u64) -> (u64, u64) {
        match self.of(block) {
            Some(run) => (run.from + (block - run.start), len.min(run.end - block)),
            None => {
                let next = self.next(block);
                (block, next.map_or(len, |next| len.min(next - block)))
            }
        }
    }

    /// The copies within a range, at the end of which the first and the last are cut.
    pub fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = Run> + '_ {
        let first = self.of(blocks.start).map_or(blocks.start, |run| run.start);
        let runs = self.runs.range(first..blocks.end.max(first));
        runs.map(move |(&start, copied)| {
            let from = start.max(blocks.start);
            Run {
                start: from,
                end: copied.end.min(blocks.end),
                from: copied.from + (from - start),
                cause: copied.cause,
            }
        })
    }

    /// All of them.
    pub fn all(&self) -> Vec<Run> {
        self.within(0..u64::MAX).collect()
    }
}

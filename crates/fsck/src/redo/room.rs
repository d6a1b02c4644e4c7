//! Where a log finds room: in one run of free blocks, or in several where the file system has no
//! such run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use uext4_redo::{LogRun, Places};

use crate::clusters::ClusterSet;

/// What is asked of the runs of a log.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Blocks in all.
    pub blocks: u64,
    /// Most runs.
    pub runs_max: usize,
    /// Blocks that it must not take, ascending.
    pub not: &'a [u64],
    /// The first block that is not the file system's, or not the device's.
    pub end: u64,
}

/// Free runs that hold a log: the first that holds all of it, or else the longest ones.
pub fn find_room(used: &ClusterSet, wanted: &Wanted<'_>) -> Option<Places> {
    let mut longest = BinaryHeap::new();
    let mut at = used.first_absent(0);
    while let Some(first) = at {
        let end = used.first_present(first, u64::MAX);
        let blocks = used.first_block(first).0..used.first_block(end).0.min(wanted.end);
        for run in without(blocks, wanted.not) {
            if run.blocks >= wanted.blocks {
                let blocks = wanted.blocks;
                return Places::new(vec![LogRun { blocks, ..run }], wanted.end);
            }
            longest.push(Reverse(run));
            if longest.len() > wanted.runs_max {
                longest.pop();
            }
        }
        at = used.first_absent(end);
    }
    let mut runs = Vec::new();
    let mut missing = wanted.blocks;
    for Reverse(run) in longest.into_sorted_vec() {
        let blocks = run.blocks.min(missing);
        missing -= blocks;
        runs.push(LogRun { blocks, ..run });
        if missing == 0 {
            return Places::new(runs, wanted.end);
        }
    }
    None
}

/// A run, cut into pieces by the blocks in `not`, which ascend.
fn without(run: std::ops::Range<u64>, not: &[u64]) -> impl Iterator<Item = LogRun> {
    let from = not.partition_point(|&block| block < run.start);
    let inside = not[from..].iter().copied().take_while({
        let end = run.end;
        move |&block| block < end
    });
    let starts = std::iter::once(run.start).chain(inside.clone().map(|block| block + 1));
    let ends = inside.chain(std::iter::once(run.end));
    let pieces = starts.zip(ends).filter(|(start, end)| start < end);
    pieces.map(|(start, end)| LogRun {
        blocks: end - start,
        start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, blocks: u64) -> LogRun {
        LogRun { blocks, start }
    }

    #[test]
    fn a_run_is_cut_by_the_blocks_that_it_must_not_have() {
        let pieces: Vec<_> = without(10..20, &[3, 10, 14, 15, 19, 40]).collect();
        assert_eq!(pieces, [run(11, 3), run(16, 3)]);
        assert_eq!(without(10..20, &[]).collect::<Vec<_>>(), [run(10, 10)]);
    }
}

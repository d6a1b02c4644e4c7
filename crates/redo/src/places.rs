//! Where the blocks of a log lie: in one run of free blocks, or in several where the file system
//! has no such run.

use serde::{Deserialize, Serialize};
use uext4_ondisk::repair_log::RUN_LEN;

/// Consecutive blocks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogRun {
    /// How many; first, so that runs are compared by it.
    pub blocks: u64,
    /// The first of them.
    pub start: u64,
}

impl LogRun {
    /// The bytes in the list of runs.
    pub fn bytes(self) -> [u8; RUN_LEN] {
        let mut bytes = [0; RUN_LEN];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..].copy_from_slice(&self.blocks.to_le_bytes());
        bytes
    }

    /// The run of an entry of the list.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (start, blocks) = (word(0)?, word(8)?);
        Some(Self { blocks, start })
    }
}

/// The blocks of a log in their order. They all lie on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    runs: Vec<LogRun>,
    /// The number in the log of the first block of each run.
    firsts: Vec<u64>,
    blocks: u64,
}

impl Places {
    /// In these runs; `None` if there are none, one is empty or not on the device, or two overlap.
    pub fn new(runs: Vec<LogRun>, device_blocks: u64) -> Option<Self> {
        let mut blocks = 0_u64;
        let mut firsts = Vec::with_capacity(runs.len());
        for run in &runs {
            let end = run.start.checked_add(run.blocks)?;
            if run.blocks == 0 || end > device_blocks {
                return None;
            }
            firsts.push(blocks);
            blocks = blocks.checked_add(run.blocks)?;
        }
        let mut sorted: Vec<&LogRun> = runs.iter().collect();
        sorted.sort_unstable_by_key(|run| run.start);
        let is_before = |a: &&LogRun, b: &&LogRun| a.start + a.blocks <= b.start;
        (blocks > 0 && sorted.is_sorted_by(is_before)).then_some(Self {
            runs,
            firsts,
            blocks,
        })
    }

    /// How many.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The runs in their order.
    pub fn runs(&self) -> &[LogRun] {
        &self.runs
    }

    /// The block with this number in the log.
    pub fn block(&self, number: u64) -> Option<u64> {
        let nr = self.firsts.partition_point(|&first| first <= number);
        let nr = nr.checked_sub(1)?;
        let (run, first) = (self.runs.get(nr)?, self.firsts.get(nr)?);
        let at = number - first;
        (at < run.blocks).then(|| run.start + at)
    }

    /// The number in the log of a block of the device.
    pub fn number(&self, block: u64) -> Option<u64> {
        let mut runs = self.runs.iter().zip(&self.firsts);
        runs.find_map(|(run, first)| {
            let at = block.checked_sub(run.start)?;
            (at < run.blocks).then(|| first + at)
        })
    }

    /// Whether one of these blocks, which ascend, is among them.
    pub fn contain_any(&self, blocks: &[u64]) -> bool {
        self.runs.iter().any(|run| {
            let next = blocks.partition_point(|&block| block < run.start);
            let next = blocks.get(next);
            next.is_some_and(|&block| block - run.start < run.blocks)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, blocks: u64) -> LogRun {
        LogRun { blocks, start }
    }

    #[test]
    fn blocks_of_a_log_are_found_in_its_runs() {
        let places = Places::new(vec![run(70, 2), run(5, 1), run(9, 3)], 72).unwrap();
        let blocks: Vec<_> = (0..7).map_while(|number| places.block(number)).collect();
        assert_eq!(blocks, [70, 71, 5, 9, 10, 11]);
        assert_eq!(places.blocks(), 6);
        let numbers = blocks.iter().map(|&block| places.number(block));
        assert!(numbers.eq((0..6).map(Some)));
        assert_eq!(places.number(6), None);
        assert!(places.contain_any(&[1, 10]));
        assert!(!places.contain_any(&[4, 6, 8, 12, 69, 72]));
        for wrong in [
            vec![],
            vec![run(70, 3)],
            vec![run(1, 0)],
            vec![run(u64::MAX, 2)],
        ] {
            assert!(Places::new(wrong, 72).is_none());
        }
        assert_eq!(LogRun::of_bytes(&run(7, 9).bytes()), Some(run(7, 9)));
    }
}

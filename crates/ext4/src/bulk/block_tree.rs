//! Block numbers of files without extents: twelve direct ones, then trees of one, two and three
//! levels, built in one pass over the extents.

use uext4_mballoc::Run;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::{I_BLOCK_LEN, NDIR_BLOCKS};
use uext4_ondisk::{Lblk, Pblk};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::base::error::{Error, Result};
use crate::journal::sbi::Sbi;

/// Levels of the deepest tree.
const LEVELS: usize = 3;

/// How far the trees of one block size reach.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// Numbers in a block.
    per_block: u64,
}

impl Reach {
    fn new(block_len: usize) -> Self {
        Self {
            per_block: block_len as u64 / 4,
        }
    }

    /// Data blocks below one block of `level` 1 to 3.
    fn below(self, level: usize) -> u64 {
        self.per_block.pow(level as u32)
    }

    /// First logical block of the tree of `level` levels.
    fn first(self, level: usize) -> u64 {
        NDIR_BLOCKS as u64 + (1..level).map(|l| self.below(l)).sum::<u64>()
    }

    /// Levels of the tree that a logical block hangs in (0: direct), and its place there.
    fn locate(self, lblk: u64) -> Option<(usize, u64)> {
        if lblk < NDIR_BLOCKS as u64 {
            return Some((0, lblk));
        }
        (1..=LEVELS)
            .find(|&level| lblk < self.first(level) + self.below(level))
            .map(|level| (level, lblk - self.first(level)))
    }
}

/// Blocks of numbers that a file with data at `ranges` (first block and length, ascending, disjoint)
/// needs; `None` if a block is out of reach.
pub(super) fn blocks(ranges: &[(Lblk, u32)], block_len: usize) -> Option<u64> {
    let reach = Reach::new(block_len);
    let mut count = 0;
    // The last block counted of each level of each tree.
    let mut last = [[None; LEVELS]; LEVELS];
    for &(start, len) in ranges {
        let end = u64::from(start.0) + u64::from(len);
        reach.locate(end.checked_sub(1)?)?;
        for tree in 1..=LEVELS {
            let first = reach.first(tree);
            let from = u64::from(start.0).max(first);
            let to = end.min(first + reach.below(tree));
            if from >= to {
                continue;
            }
            for level in 1..=tree {
                let begin = (from - first) / reach.below(level);
                let finish = (to - 1 - first) / reach.below(level);
                let seen = &mut last[tree - 1][level - 1];
                count += finish - begin + 1 - u64::from(*seen == Some(begin));
                *seen = Some(finish);
            }
        }
    }
    Some(count)
}

/// Largest file such trees can hold, in blocks.
pub(super) fn blocks_max(block_len: usize) -> u64 {
    let reach = Reach::new(block_len);
    reach.first(LEVELS) + reach.below(LEVELS)
}

/// Builds the trees of `extents` (ascending, not overlapping); `runs` hold at least as many blocks as
/// [`blocks`] says.
pub(super) fn build(sbi: &Sbi, extents: &[Extent], runs: &[Run]) -> Result<[u8; I_BLOCK_LEN]> {
    let mut builder = Builder {
        sbi,
        reach: Reach::new(sbi.block_len()),
        spare: runs
            .iter()
            .flat_map(|run| (run.start.0..run.start.0 + u64::from(run.len)).map(Pblk)),
        open: Default::default(),
        root: [U32::ZERO; I_BLOCK_LEN / 4],
    };
    for extent in extents {
        for i in 0..u64::from(extent.len) {
            builder.put(u64::from(extent.lblk.0) + i, extent.pblk.0 + i)?;
        }
    }
    for level in 1..=LEVELS {
        builder.close(level);
    }
    let mut i_block = [0; I_BLOCK_LEN];
    i_block.copy_from_slice(builder.root.as_bytes());
    Ok(i_block)
}

/// Names an indirect block among those of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableId {
    /// The number of levels of its tree: 1, 2 or 3.
    tree: usize,
    /// Its index among the blocks of its level.
    index: u64,
}

/// A block of numbers being filled.
#[derive(Debug, Default)]
struct Open {
    /// Which one it is; `None`: none is open.
    is: Option<TableId>,
    at: Pblk,
    numbers: Vec<U32>,
}

struct Builder<'a, I> {
    sbi: &'a Sbi,
    reach: Reach,
    spare: I,
    /// The open block of each level, 1 first.
    open: [Open; LEVELS],
    root: [U32; I_BLOCK_LEN / 4],
}

impl<I: Iterator<Item = Pblk>> Builder<'_, I> {
    /// Notes that logical block `lblk` lies in `pblk`.
    fn put(&mut self, lblk: u64, pblk: u64) -> Result<()> {
        let number = U32::new(u32::try_from(pblk).map_err(|_| Error::FileTooBig)?);
        let (tree, place) = self.reach.locate(lblk).ok_or(Error::FileTooBig)?;
        if tree == 0 {
            self.root[place as usize] = number;
            return Ok(());
        }
        for level in (1..=tree).rev() {
            let index = place / self.reach.below(level);
            let wanted = TableId { tree, index };
            if self.open[level - 1].is != Some(wanted) {
                self.begin(level, wanted)?;
            }
        }
        self.open[0].numbers[(place % self.reach.per_block) as usize] = number;
        Ok(())
    }

    /// Opens a new block of `level`, and hangs it into the level above, whose block is open.
    fn begin(&mut self, level: usize, is: TableId) -> Result<()> {
        for below in 1..=level {
            self.close(below);
        }
        let at = self.spare.next().ok_or(Error::FileTooBig)?;
        let number = U32::new(u32::try_from(at.0).map_err(|_| Error::FileTooBig)?);
        if level == is.tree {
            self.root[NDIR_BLOCKS + level - 1] = number;
        } else {
            self.open[level].numbers[(is.index % self.reach.per_block) as usize] = number;
        }
        let open = &mut self.open[level - 1];
        open.is = Some(is);
        open.at = at;
        open.numbers.clear();
        open.numbers
            .resize(self.reach.per_block as usize, U32::ZERO);
        Ok(())
    }

    /// Writes the open block of `level`, if there is one.
    fn close(&mut self, level: usize) {
        let open = &mut self.open[level - 1];
        if open.is.take().is_some() {
            let numbers = open.numbers.as_bytes();
            let buffer = self.sbi.cache().getblk_zeroed(open.at);
            buffer.modify(|bytes| bytes.copy_from_slice(numbers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the definition: which blocks of numbers does each data block need?
    fn naive(ranges: &[(Lblk, u32)], block_len: usize) -> Option<u64> {
        let reach = Reach::new(block_len);
        let mut needed = std::collections::BTreeSet::new();
        for &(start, len) in ranges {
            for lblk in u64::from(start.0)..u64::from(start.0) + u64::from(len) {
                let (tree, place) = reach.locate(lblk)?;
                needed.extend((1..=tree).map(|l| (tree, l, place / reach.below(l))));
            }
        }
        Some(needed.len() as u64)
    }

    #[test]
    fn count_follows_from_the_definition() {
        let p = 256;
        let cases: &[&[(u32, u32)]] = &[
            &[],
            &[(0, 12)],
            &[(0, 13)],
            &[(11, 2), (200, 1)],
            &[(12 + p, 1)],
            &[(0, 12 + p + 3 * p)],
            &[
                (5, 1),
                (12 + p - 1, 2),
                (12 + p + p, 1),
                (12 + p + 2 * p - 1, 2),
            ],
            &[(12 + p + p * p - 1, 1), (12 + p + p * p, 300)],
            &[(12 + p + p * p + 70_000, 70_000)],
        ];
        for case in cases {
            let ranges: Vec<_> = case.iter().map(|&(l, n)| (Lblk(l), n)).collect();
            assert_eq!(blocks(&ranges, 1024), naive(&ranges, 1024), "{case:?}");
        }
        let past = u32::try_from(blocks_max(1024)).unwrap();
        assert!(blocks(&[(Lblk(past - 1), 1)], 1024).is_some());
        assert_eq!(blocks(&[(Lblk(past), 1)], 1024), None);
    }
}

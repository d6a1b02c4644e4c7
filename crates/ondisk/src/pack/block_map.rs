//! Maps of files without extents: block numbers in the inode, then trees of one, two and three
//! levels of tables, built in one pass over the file in logical order.

use std::ops::Range;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::indirect::{LEVELS, Reach, Segment};
use crate::inode::{I_BLOCK_LEN, NDIR_BLOCKS};
use crate::num::{index, lo32};
use crate::pack::PackError;
use crate::units::{BlockSize, Pblk};

/// Where the tables of a map go.
pub trait Tables {
    /// What may go wrong.
    type Error: From<PackError>;
    /// Whether tables are only counted: they stay empty, and cost no memory.
    const COUNTS: bool = false;

    /// A new block for a table, which is filled later.
    ///
    /// # Errors
    /// If there is no block.
    fn take(&mut self) -> Result<Pblk, Self::Error>;

    /// Writes a table, whole, to a block that was taken.
    fn put(&mut self, at: Pblk, table: &[u8]);
}

/// Tables that a file with data in these logical blocks needs (ascending, disjoint); `None` if a
/// block is out of reach.
pub fn tables(block_size: BlockSize, ranges: impl IntoIterator<Item = Range<u64>>) -> Option<u64> {
    let mut map = BlockMap::new(block_size);
    for Range { mut start, end } in ranges {
        while start < end {
            let segment = map
                .open(start, end.saturating_sub(start), &mut Counted)
                .ok()?;
            start = start.saturating_add(segment.len);
        }
    }
    Some(map.tables())
}

/// Tables that are only counted.
struct Counted;

impl Tables for Counted {
    type Error = PackError;
    const COUNTS: bool = true;

    fn take(&mut self) -> Result<Pblk, PackError> {
        Ok(Pblk(0))
    }

    fn put(&mut self, _: Pblk, _: &[u8]) {}
}

/// A map that is being built.
#[derive(Debug)]
pub struct BlockMap {
    reach: Reach,
    /// The open table of each level, 1 first.
    open: [Open; LEVELS],
    root: [U32; I_BLOCK_LEN / 4],
    tables: u64,
}

/// Names a table among those of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableId {
    /// The number of levels of its tree: 1, 2 or 3.
    tree: usize,
    /// Its index among the tables of its level.
    index: u64,
}

/// A table being filled.
#[derive(Debug, Default)]
struct Open {
    /// Which one it is; `None`: none is open.
    is: Option<TableId>,
    at: Pblk,
    numbers: Vec<U32>,
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "levels are 1 to 3; the reach of a map and the numbers in it are tested before use"
)]
impl BlockMap {
    /// Of a file that maps nothing yet, in blocks of this size.
    pub fn new(block_size: BlockSize) -> Self {
        Self {
            reach: Reach::new(block_size),
            open: Default::default(),
            root: [U32::ZERO; I_BLOCK_LEN / 4],
            tables: 0,
        }
    }

    /// Takes the tables that lead to logical block `lblk`, those nearer to the root first, and
    /// writes those that are complete: blocks are mapped in ascending order. The segment says how
    /// many of the `len` blocks from `lblk` on need no other table.
    ///
    /// # Errors
    /// [`PackError::OutOfReach`], [`PackError::BlockNumber`], those of `tables`.
    pub fn open<T: Tables>(
        &mut self,
        lblk: u64,
        len: u64,
        tables: &mut T,
    ) -> Result<Segment, T::Error> {
        let segment = self.reach.segment(lblk, len);
        let segment = segment.ok_or(PackError::OutOfReach { lblk })?;
        for level in (1..=segment.tree).rev() {
            let wanted = TableId {
                tree: segment.tree,
                index: segment.place / self.reach.size(level),
            };
            if self.open[level - 1].is != Some(wanted) {
                self.begin(level, wanted, tables)?;
            }
        }
        Ok(segment)
    }

    /// Maps `len` logical blocks from `lblk` on, which lies behind all that is mapped, to `pblk`
    /// and the blocks after it.
    ///
    /// # Errors
    /// As [`BlockMap::open`].
    pub fn put<T: Tables>(
        &mut self,
        lblk: u64,
        pblk: Pblk,
        len: u64,
        tables: &mut T,
    ) -> Result<(), T::Error> {
        if let Some(last) = len.checked_sub(1) {
            number(Pblk(pblk.0.saturating_add(last)))?;
        }
        let mut done = 0;
        while done < len {
            let segment = self.open(lblk + done, len - done, tables)?;
            let slots = match segment.tree {
                0 => &mut self.root[index(lo32(segment.place))..],
                _ => &mut self.open[0].numbers[self.reach.index(segment.place, 1)..],
            };
            let numbers = pblk.0 + done..pblk.0 + done + segment.len;
            for (slot, number) in slots.iter_mut().zip(numbers) {
                // The last one of all has 32 bits.
                *slot = lo32(number).into();
            }
            done += segment.len;
        }
        Ok(())
    }

    /// Tables taken so far.
    pub fn tables(&self) -> u64 {
        self.tables
    }

    /// Writes the tables that are open, and gives the numbers in the inode.
    pub fn finish<T: Tables>(mut self, tables: &mut T) -> [u8; I_BLOCK_LEN] {
        for level in 1..=LEVELS {
            self.close(level, tables);
        }
        let mut i_block = [0; I_BLOCK_LEN];
        i_block.copy_from_slice(self.root.as_bytes());
        i_block
    }

    /// Opens a new table of `level`, and stores its number in the level above, whose table is open.
    fn begin<T: Tables>(
        &mut self,
        level: usize,
        is: TableId,
        tables: &mut T,
    ) -> Result<(), T::Error> {
        for below in 1..=level {
            self.close(below, tables);
        }
        let at = tables.take()?;
        let number = number(at)?;
        let per_table = self.reach.size(1);
        if level == is.tree {
            self.root[NDIR_BLOCKS + level - 1] = number;
        } else if !T::COUNTS {
            self.open[level].numbers[index(lo32(is.index % per_table))] = number;
        }
        let open = &mut self.open[level - 1];
        open.is = Some(is);
        open.at = at;
        if !T::COUNTS {
            open.numbers.clear();
            open.numbers.resize(index(lo32(per_table)), U32::ZERO);
        }
        self.tables += 1;
        Ok(())
    }

    /// Writes the open table of `level`, if there is one.
    fn close<T: Tables>(&mut self, level: usize, tables: &mut T) {
        let open = &mut self.open[level - 1];
        if open.is.take().is_some() {
            tables.put(open.at, open.numbers.as_bytes());
        }
    }
}

/// A block's number in a table: it has 32 bits.
fn number(block: Pblk) -> Result<U32, PackError> {
    let number = u32::try_from(block.0).map_err(|_| PackError::BlockNumber { block })?;
    Ok(number.into())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::indirect::number_at;

    /// Tables in memory, in blocks from 1 on.
    #[derive(Default)]
    struct Memory {
        taken: u64,
        tables: BTreeMap<u64, Vec<u8>>,
    }

    impl Tables for Memory {
        type Error = PackError;

        fn take(&mut self) -> Result<Pblk, PackError> {
            self.taken += 1;
            Ok(Pblk(self.taken))
        }

        fn put(&mut self, at: Pblk, table: &[u8]) {
            assert!(self.tables.insert(at.0, table.to_vec()).is_none());
        }
    }

    /// Where a logical block lies, read from the root down.
    fn read(root: &[u8], memory: &Memory, lblk: u64) -> u32 {
        let reach = Reach::new(BlockSize::MIN);
        let segment = reach.segment(lblk, 1).unwrap();
        if segment.tree == 0 {
            return number_at(root, segment.place as usize);
        }
        let top = number_at(root, NDIR_BLOCKS + segment.tree - 1);
        (1..=segment.tree).rev().fold(top, |table, level| {
            let table = memory.tables.get(&table.into());
            table.map_or(0, |t| number_at(t, reach.index(segment.place, level)))
        })
    }

    /// From the definition: the tables that each data block needs.
    fn naive(ranges: &[Range<u64>]) -> Option<u64> {
        let reach = Reach::new(BlockSize::MIN);
        let mut needed = BTreeSet::new();
        for lblk in ranges.iter().cloned().flatten() {
            let at = reach.segment(lblk, 1)?;
            needed.extend((1..=at.tree).map(|l| (at.tree, l, at.place / reach.size(l))));
        }
        Some(needed.len() as u64)
    }

    fn cases() -> Vec<Vec<Range<u64>>> {
        let p = 256;
        let second = 12 + p;
        vec![
            vec![],
            vec![0..12],
            vec![0..13],
            vec![11..13, 200..201],
            vec![second..second + 1],
            vec![0..second + 3 * p],
            vec![5..6, second - 1..second + 1, second + p..second + p + 1],
            vec![second + 2 * p - 1..second + 2 * p + 1],
            vec![
                second + p * p - 1..second + p * p,
                second + p * p..second + p * p + 300,
            ],
            vec![second + p * p + 70_000..second + p * p + 140_000],
        ]
    }

    #[test]
    fn packed_entries_are_read_back_and_counted() {
        for case in cases() {
            let (mut memory, mut map) = (Memory::default(), BlockMap::new(BlockSize::MIN));
            for range in &case {
                let len = range.end - range.start;
                let pblk = Pblk(1_000_000 + range.start);
                map.put(range.start, pblk, len, &mut memory).unwrap();
            }
            let count = tables(BlockSize::MIN, case.iter().cloned());
            assert_eq!(count, naive(&case), "{case:?}");
            assert_eq!(count, Some(map.tables()), "{case:?}");
            let root = map.finish(&mut memory);
            assert_eq!(memory.tables.len() as u64, memory.taken);
            for range in &case {
                for lblk in range.clone() {
                    assert_eq!(u64::from(read(&root, &memory, lblk)), 1_000_000 + lblk);
                }
                let behind = case.iter().any(|r| r.contains(&range.end));
                assert_eq!(read(&root, &memory, range.end) == 0, !behind, "{case:?}");
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let past = Reach::new(BlockSize::MIN).blocks_max();
        let one = |lblk| tables(BlockSize::MIN, std::iter::once(lblk..lblk + 1));
        assert!(one(past - 1).is_some());
        assert_eq!(one(past), None);
        let (mut memory, mut map) = (Memory::default(), BlockMap::new(BlockSize::MIN));
        let high = map.put(0, Pblk(u32::MAX.into()), 2, &mut memory);
        let block = Pblk(1 << 32);
        assert_eq!(high, Err(PackError::BlockNumber { block }));
        let far = map.put(past, Pblk(1), 1, &mut memory);
        assert_eq!(far, Err(PackError::OutOfReach { lblk: past }));
    }
}

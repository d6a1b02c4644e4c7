//! Changes of direct, indirect, double and triple indirect blocks: mapping and unmapping.
//!
//! What is mapped goes into one table after another, each changed once. Unmapping goes through the
//! tables backwards, looks only at those that exist, and frees those that become empty.

use std::collections::HashSet;
use std::ops::Range;

use uext4_ondisk::extent::Extent;
use uext4_ondisk::indirect::{LEVELS, Reach, Segment, number_at, numbers, put_numbers};
use uext4_ondisk::inode::NDIR_BLOCKS;
use uext4_ondisk::{Damage, Pblk};
use zerocopy::little_endian::U32;

use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::mapping::LblkRun;
use crate::base::owner::{Kind, Owner, tag};
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map::file_blocks::{
    Progress, add_blocks, afford, check_countable, credits_anywhere, credits_revoke, free_data,
    free_map_block, groups_of_run, range_end, take_map_blocks,
};
use crate::map::indirect::read_table;

fn owner() -> Owner {
    Owner::of(Kind::Indirect)
}

/// Stores numbers in a table from `first` on.
fn change_table(
    handle: &Handle<'_>,
    table: u32,
    first: usize,
    numbers: impl IntoIterator<Item = u32>,
) -> Result<()> {
    let what = "indirect block";
    let block = Pblk(table.into());
    let buffer = handle
        .sbi()
        .bread(what, block, tag(Kind::Indirect), |_| Ok(()))?;
    handle.change(&buffer, owner(), |bytes| {
        put_numbers(bytes, first, numbers);
    });
    Ok(())
}

/// Blocks of numbers that `len` data blocks in a row may need.
fn tables_max(sbi: &Sbi, len: u32) -> u32 {
    let reach = Reach::new(sbi.geometry().block_size);
    let full = |level| u32::try_from(u64::from(len) / reach.size(level)).unwrap_or(u32::MAX);
    // Of each level those that are full, and two at the ends; and one more at each seam of trees.
    (1..=LEVELS)
        .map(|level| full(level).saturating_add(2))
        .fold(LEVELS as u32, u32::saturating_add)
        .min(len.saturating_mul(LEVELS as u32))
}

/// Most credits of mapping `len` blocks.
pub(crate) fn credits_insert(sbi: &Sbi, len: u32) -> u32 {
    let tables = tables_max(sbi, len);
    tables.saturating_add(credits_anywhere(sbi, tables))
}

/// Credits that let [`remove`] make some progress: tables of each level changed or freed, and
/// data in two groups.
pub(crate) fn credits_step(sbi: &Sbi) -> u32 {
    credits_unwind(sbi, 2)
}

fn credits_unwind(sbi: &Sbi, groups: u32) -> u32 {
    let levels = LEVELS as u32;
    levels + credits_anywhere(sbi, groups.saturating_add(levels))
}

/// Maps blocks that are not mapped yet.
///
/// Fails as `crate::map::change::insert`.
pub(crate) fn insert(handle: &Handle<'_>, inode: &mut Inode, extent: Extent) -> Result<()> {
    let sbi = handle.sbi();
    let len = u64::from(extent.len);
    sbi.check_range("extent", extent.pblk, len)?;
    if len == 0 {
        return Err(Error::Invalid(Invalid::Extent {
            lblk: extent.lblk,
            len: 0,
        }));
    }
    if extent.pblk.0 + len > 1 << 32 {
        return Err(Error::FileTooBig);
    }
    check_countable(sbi, inode, len)?;
    let reach = Reach::new(sbi.geometry().block_size);
    let missing = plan(sbi, inode, reach, extent)?;
    let mut spare = take_map_blocks(handle, inode, extent.pblk, missing)?;
    if let Some(far) = spare.iter().find(|block| block.0 > u32::MAX.into()) {
        let free = handle.rw().allocator.free_blocks();
        let error = Error::NoSpace {
            needed: far.0,
            free,
        };
        for block in spare {
            free_map_block(handle, inode, block)?;
        }
        return Err(error);
    }
    spare.reverse();
    let mut done = 0;
    while done < len {
        let lblk = u64::from(extent.lblk.0) + done;
        let segment = reach.segment(lblk, len - done).ok_or(Error::FileTooBig)?;
        let pblk = extent.pblk.0 + done;
        // OK to truncate: 32 bits, as was checked.
        put_segment(handle, inode, reach, segment, pblk as u32, &mut spare)?;
        done += segment.len;
    }
    add_blocks(handle, inode, len);
    Ok(())
}

/// Makes sure that nothing is mapped where the extent goes, and counts the tables that it lacks.
fn plan(sbi: &Sbi, inode: &Inode, reach: Reach, extent: Extent) -> Result<usize> {
    let mapped = |numbers: &[U32], first: usize, count: usize| {
        let mut places = numbers.iter().skip(first).take(count);
        places.any(|n| n.get() != 0)
    };
    let taken = Error::Invalid(Invalid::Mapped {
        lblk: extent.lblk,
        len: extent.len.into(),
    });
    let len = u64::from(extent.len);
    let mut missing = 0;
    // The last one counted on each level.
    let mut last = [None; LEVELS];
    let mut done = 0;
    while done < len {
        let lblk = u64::from(extent.lblk.0) + done;
        let segment = reach.segment(lblk, len - done).ok_or(Error::FileTooBig)?;
        done += segment.len;
        let count = segment.len as usize;
        if segment.tree == 0 {
            if mapped(numbers(&inode.i_block), segment.place as usize, count) {
                return Err(taken);
            }
            continue;
        }
        let mut table = number_at(&inode.i_block, NDIR_BLOCKS + segment.tree - 1);
        for level in (1..=segment.tree).rev() {
            if table == 0 {
                let is = Some((segment.tree, segment.place / reach.below(level + 1)));
                missing += usize::from(last[level - 1] != is);
                last[level - 1] = is;
                continue;
            }
            let data = read_table(sbi, Pblk(table.into()))?;
            let index = reach.index(segment.place, level);
            if level == 1 && mapped(numbers(&data), index, count) {
                return Err(taken);
            }
            table = number_at(&data, index);
        }
    }
    Ok(missing)
}

/// Writes the numbers of one segment, with the tables on the way to it.
fn put_segment(
    handle: &Handle<'_>,
    inode: &mut Inode,
    reach: Reach,
    segment: Segment,
    pblk: u32,
    spare: &mut Vec<Pblk>,
) -> Result<()> {
    let numbers = (pblk..=u32::MAX).take(segment.len as usize);
    if segment.tree == 0 {
        put_numbers(&mut inode.i_block, segment.place as usize, numbers);
        return Ok(());
    }
    // None: the number stands in the inode.
    let mut parent = None;
    let mut index = NDIR_BLOCKS + segment.tree - 1;
    let mut table = number_at(&inode.i_block, index);
    for level in (1..=segment.tree).rev() {
        if table == 0 {
            let block = spare.pop().ok_or(Error::FileTooBig)?;
            handle.change(&handle.fresh(block), owner(), |_| ());
            // OK to truncate: `insert` has made sure that they fit.
            table = block.0 as u32;
            match parent {
                None => put_numbers(&mut inode.i_block, index, [table]),
                Some(parent) => change_table(handle, parent, index, [table])?,
            }
        }
        (parent, index) = (Some(table), reach.index(segment.place, level));
        if level > 1 {
            let data = read_table(handle.sbi(), Pblk(table.into()))?;
            table = number_at(&data, index);
        }
    }
    change_table(handle, table, index, numbers)
}

/// Tables of one file that were emptied and freed: none may be met again. All that one change of a
/// file frees goes through one of these, in as many handles as it takes.
#[derive(Debug, Default)]
pub(crate) struct Freed(HashSet<u32>);

/// Tables that are looked at in one handle, at most: those in a group whose bitmap is wrong take no
/// credits, and no other thread's commit may wait for all of them.
const TABLES_MAX: usize = 256;

/// Unmaps and frees the blocks of `run`, the last ones first.
pub(crate) fn remove(
    handle: &Handle<'_>,
    inode: &mut Inode,
    run: LblkRun,
    freed: &mut Freed,
) -> Result<Progress> {
    let from = u64::from(run.start.0);
    let until = range_end(run.start, run.len);
    let mut clear = Clear {
        handle,
        reach: Reach::new(handle.sbi().geometry().block_size),
        stopped: None,
        freed,
        tables: 0,
    };
    for tree in (0..=LEVELS).rev() {
        let first = clear.reach.first(tree);
        let size = clear.reach.size(tree);
        let range = Range {
            start: from.saturating_sub(first).min(size),
            end: until.saturating_sub(first).min(size),
        };
        if !range.is_empty() {
            clear.tree(inode, tree, &range)?;
        }
        if let Some(at) = clear.stopped {
            return Ok(Progress::rest(from, first + at));
        }
    }
    Ok(Progress::Done)
}

/// An indirect block.
#[derive(Clone, Copy, Debug)]
struct Table {
    /// Where it lies on the device.
    block: u32,
    /// Its level; 1 if its numbers lead to data.
    level: usize,
    /// The place in its tree of the first data block below it.
    base: u64,
}

/// Unmapping of part of one tree.
struct Clear<'a, 'h> {
    handle: &'a Handle<'h>,
    reach: Reach,
    freed: &'a mut Freed,
    /// Tables looked at with this handle.
    tables: usize,
    /// Place in the tree where the credits ran out: everything from there on is unmapped.
    stopped: Option<u64>,
}

impl Clear<'_, '_> {
    /// Unmaps places of one tree, and drops the tree if it is empty then.
    fn tree(&mut self, inode: &mut Inode, tree: usize, range: &Range<u64>) -> Result<()> {
        if tree == 0 {
            let root = inode.i_block;
            let freed = self.data(inode, &numbers(&root)[..NDIR_BLOCKS], 0, range)?;
            let cleared = (freed..range.end).map(|_| 0);
            put_numbers(&mut inode.i_block, freed as usize, cleared);
            return Ok(());
        }
        let index = NDIR_BLOCKS + tree - 1;
        let table = Table {
            block: number_at(&inode.i_block, index),
            level: tree,
            base: 0,
        };
        if table.block != 0 && self.table(inode, table, range)? {
            free_map_block(self.handle, inode, Pblk(table.block.into()))?;
            put_numbers(&mut inode.i_block, index, [0]);
        }
        Ok(())
    }

    /// As [`Self::table_once`] for a table that was not met before, if this handle may go on.
    fn table(&mut self, inode: &mut Inode, table: Table, range: &Range<u64>) -> Result<bool> {
        if self.tables >= TABLES_MAX {
            let past = table.base.saturating_add(self.reach.below(table.level + 1));
            self.stopped = Some(past.min(range.end));
            return Ok(false);
        }
        self.tables += 1;
        if !self.freed.0.insert(table.block) {
            return Err(Error::Corrupt(Damage::InodeField {
                ino: inode.ino,
                field: "indirect block",
                value: table.block.into(),
                why: "the file's block map leads to it more than once",
            }));
        }
        let is_empty = self.table_once(inode, table, range)?;
        if !is_empty || self.stopped.is_some() {
            // It stays, and is met again with the next handle.
            self.freed.0.remove(&table.block);
        }
        Ok(is_empty)
    }

    /// Unmaps places below a table; returns whether it is empty then. An empty table is not
    /// changed itself.
    fn table_once(&mut self, inode: &mut Inode, table: Table, range: &Range<u64>) -> Result<bool> {
        let Table { block, level, base } = table;
        let data = read_table(self.handle.sbi(), Pblk(block.into()))?;
        let numbers = numbers(&data);
        let below = self.reach.below(level);
        let from = range.start.saturating_sub(base);
        let until = range.end.saturating_sub(base).min(self.reach.size(level));
        // Numbers that are cleared, and those of them that are not 0.
        let (first, past, cleared) = if level == 1 {
            let kept = self.data(inode, numbers, base, &(base + from..base + until))?;
            let (first, past) = ((kept - base) as usize, until as usize);
            (first, past, numbers.get(first..past).is_some_and(has_any))
        } else {
            let indices = (from / below) as usize..until.div_ceil(below) as usize;
            self.children(inode, numbers, table, indices, range)?
        };
        let rest = [numbers.get(..first), numbers.get(past..)];
        let is_empty = !rest.into_iter().flatten().any(has_any);
        drop(data);
        if is_empty || !cleared {
            return Ok(is_empty);
        }
        change_table(self.handle, block, first, (first..past).map(|_| 0))?;
        Ok(false)
    }

    /// Unmaps what lies below the children of `table` at `indices`; returns which of these
    /// numbers are to be cleared, and whether any is set.
    fn children(
        &mut self,
        inode: &mut Inode,
        numbers: &[U32],
        table: Table,
        indices: Range<usize>,
        range: &Range<u64>,
    ) -> Result<(usize, usize, bool)> {
        // Only the first and the last child may keep something, so what goes stands together.
        let (mut first, mut past) = (indices.end, indices.end);
        let mut cleared = false;
        for index in indices.rev() {
            let child = numbers.get(index).map_or(0, |n| n.get());
            if child == 0 {
                first = if first > index { index } else { first };
                continue;
            }
            let below = Table {
                block: child,
                level: table.level - 1,
                base: table.base + self.reach.below(table.level) * index as u64,
            };
            let is_empty = self.table(inode, below, range)?;
            if is_empty && self.stopped.is_none() {
                free_map_block(self.handle, inode, Pblk(child.into()))?;
                (first, cleared) = (index, true);
            } else if !cleared {
                (first, past) = (index, index);
            }
            if self.stopped.is_some() {
                break;
            }
        }
        Ok((first, past, cleared))
    }

    /// Frees the data that numbers at `range` lead to, the last ones first; `numbers` begins with
    /// place `base`. Returns from which place on they were freed.
    fn data(
        &mut self,
        inode: &mut Inode,
        numbers: &[U32],
        base: u64,
        range: &Range<u64>,
    ) -> Result<u64> {
        let sbi = self.handle.sbi();
        let number = |place: u64| {
            let n = numbers.get((place - base) as usize);
            n.map_or(0, |n| n.get())
        };
        let len_max = sbi.geometry().blocks_per_group.get().into();
        let mut past = range.end;
        while past > range.start {
            let last = number(past - 1);
            if last == 0 {
                past -= 1;
                continue;
            }
            let mut first = past - 1;
            while first > range.start
                && past - first < len_max
                && number(first - 1) != 0
                && u64::from(number(first - 1)) + (past - first) == u64::from(last)
            {
                first -= 1;
            }
            // OK to truncate: at most the numbers of a block.
            let len = (past - first) as u32;
            let revokes = credits_revoke(self.handle, inode, len.into());
            let credits = credits_unwind(sbi, groups_of_run(sbi, len)) + revokes;
            if !afford(self.handle, credits) {
                self.stopped = Some(past);
                return Ok(past);
            }
            let start = Pblk(number(first).into());
            sbi.check_range("block map", start, len.into())?;
            free_data(self.handle, inode, start, len)?;
            past = first;
        }
        Ok(range.start)
    }
}

fn has_any(numbers: &[U32]) -> bool {
    numbers.iter().any(|n| n.get() != 0)
}

//! Blocks of files with indirect blocks: numbers are changed where they stand, so that there can
//! be a transaction after any of them.

use uext4_ondisk::indirect::{number_at, put_numbers};
use uext4_ondisk::inode::{NDIR_BLOCKS, RawInode};
use uext4_ondisk::{Ino, Pblk};

use crate::batch::Batch;
use crate::{Error, Result, quota};

/// Numbers in `i_block`.
const NUMBERS: usize = NDIR_BLOCKS + 3;

/// Where numbers stand.
#[derive(Clone, Copy)]
enum Holder {
    Inode(Ino),
    Block(Pblk),
}

/// The tables of an inode that owns no more than `most` blocks.
///
/// # Errors
/// [`Error::Unsound`] if there are more, those of the device.
pub fn tables_of(batch: &Batch<'_>, raw: &RawInode, most: u64) -> Result<Vec<Pblk>> {
    let mut tables = Vec::new();
    let mut level: Vec<Pblk> = Vec::new();
    // From the deepest tree on: each level's tables are those of the level above and its own root.
    for depth in (0..NUMBERS - NDIR_BLOCKS).rev() {
        let mut next = Vec::new();
        for table in level {
            let bytes = batch.block(table)?;
            let numbers = (0..bytes.len() / 4).map(|at| number_at(&bytes, at));
            next.extend(numbers.filter(|&n| n != 0).map(|n| Pblk(n.into())));
            must_fit(tables.len() + next.len(), most)?;
        }
        let own = number_at(&raw.i_block, NDIR_BLOCKS + depth);
        next.extend((own != 0).then_some(Pblk(own.into())));
        tables.extend(&next);
        must_fit(tables.len(), most)?;
        level = next;
    }
    Ok(tables)
}

fn must_fit(tables: usize, most: u64) -> Result<()> {
    let what = "a file has more indirect blocks than blocks";
    (tables as u64 <= most)
        .then_some(())
        .ok_or(Error::Unsound { what })
}

/// Moves the blocks of one inode.
struct Mover<'a, 'b> {
    batch: &'a mut Batch<'b>,
    /// Indirect blocks that may still be read: no more than the inode has blocks.
    budget: u64,
}

/// Moves the blocks of an inode that lie past the limit, and changes the inode where it is stored.
/// There may be transactions in between.
///
/// # Errors
/// [`Error::Full`], [`Error::Unsound`], those of the device and the journal.
pub fn move_blocks(batch: &mut Batch<'_>, ino: Ino, raw: &RawInode) -> Result<()> {
    let budget = quota::blocks_of(batch.geometry(), raw);
    let mut mover = Mover { batch, budget };
    let holder = Holder::Inode(ino);
    mover.data(holder, NDIR_BLOCKS)?;
    for level in 0..NUMBERS - NDIR_BLOCKS {
        let at = NDIR_BLOCKS + level;
        let number = number_at(&mover.numbers(holder)?, at);
        mover.table(holder, at, number, level)?;
    }
    Ok(())
}

/// Moves only the double indirect block of inode 7, whose other blocks have their places.
///
/// # Errors
/// As [`move_blocks`].
pub fn move_double(batch: &mut Batch<'_>, ino: Ino) -> Result<()> {
    let mut mover = Mover { batch, budget: 1 };
    let holder = Holder::Inode(ino);
    let number = number_at(&mover.numbers(holder)?, NDIR_BLOCKS + 1);
    mover.one(holder, NDIR_BLOCKS + 1, number).map(drop)
}

impl Mover<'_, '_> {
    fn numbers(&self, holder: Holder) -> Result<Vec<u8>> {
        match holder {
            Holder::Block(block) => self.batch.block(block),
            Holder::Inode(ino) => {
                let bytes = self.batch.inode(ino)?;
                Ok(RawInode::parse(&bytes, ino)?.i_block.to_vec())
            }
        }
    }

    fn put(&mut self, holder: Holder, first: usize, from: u32, count: u32) -> Result<()> {
        let numbers = from..from + count;
        match holder {
            Holder::Block(block) => {
                put_numbers(self.batch.edit(block)?, first, numbers);
                Ok(())
            }
            Holder::Inode(ino) => {
                let mut bytes = self.batch.inode(ino)?;
                let mut raw = RawInode::parse(&bytes, ino)?;
                put_numbers(&mut raw.i_block, first, numbers);
                raw.store(&mut bytes);
                self.batch.put_inode(ino, bytes)
            }
        }
    }

    /// Moves the data that the first `count` numbers name.
    fn data(&mut self, holder: Holder, count: usize) -> Result<()> {
        let bytes = self.numbers(holder)?;
        let limit = self.batch.limit.0;
        let mut at = 0;
        while at < count {
            let from = number_at(&bytes, at);
            if u64::from(from) < limit {
                at += 1;
                continue;
            }
            let follows = |n: &usize| number_at(&bytes, at + n) == from.wrapping_add(*n as u32);
            let len = (1..count - at).take_while(follows).count() + 1;
            let run = self.batch.allocate(len as u32)?;
            let from = Pblk(from.into());
            self.batch.free(from, run.clusters)?;
            self.batch.copy(from, run.start, run.clusters.into())?;
            self.put(holder, at, run.start.0 as u32, run.clusters)?;
            at += run.clusters as usize;
        }
        Ok(())
    }

    /// Moves a table, which `number` names, and what its numbers name. `level` is the number of
    /// tables below it.
    fn table(&mut self, holder: Holder, at: usize, number: u32, level: usize) -> Result<()> {
        let Some(table) = self.one(holder, at, number)? else {
            return Ok(());
        };
        let left = self.budget.checked_sub(1);
        let what = "a file has more indirect blocks than blocks";
        self.budget = left.ok_or(Error::Unsound { what })?;
        let per_block = self.batch.geometry().block_size.len() / 4;
        match level {
            0 => self.data(Holder::Block(table), per_block)?,
            _ => {
                let bytes = self.batch.block(table)?;
                for at in 0..per_block {
                    let number = number_at(&bytes, at);
                    self.table(Holder::Block(table), at, number, level - 1)?;
                }
            }
        }
        self.batch.commit_if_large()
    }

    /// Moves one table itself, and returns where it is then.
    fn one(&mut self, holder: Holder, at: usize, number: u32) -> Result<Option<Pblk>> {
        let from = Pblk(number.into());
        if number == 0 || from.0 < self.batch.limit.0 {
            return Ok((number != 0).then_some(from));
        }
        let bytes = self.batch.block(from)?;
        self.batch.free(from, 1)?;
        let to = self.batch.allocate(1)?.start;
        self.batch.put(to, bytes);
        self.put(holder, at, to.0 as u32, 1)?;
        Ok(Some(to))
    }
}

//! The walk over a map of block numbers: numbers in the inode and tables of numbers.
//!
//! A table has no mark of its own, so that garbage looks like a table. One of which several
//! numbers cannot be is taken for something else, and nothing of it is used.

use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, Extent};
use uext4_ondisk::indirect::{LEVELS, Reach, number_at, numbers};
use uext4_ondisk::inode::{I_BLOCK_LEN, NDIR_BLOCKS, RawInode};
use uext4_ondisk::{Geometry, Ino, Lblk, Pblk};

use super::{Buffers, Spot, Visitor, is_inside};
use crate::error::Result;
use crate::problem::MappingProblem;
use crate::state::State;

/// So many numbers of a table may be wrong, and the rest is still used.
const WRONG_MAX: u64 = 8;

struct Walk<'w, 's, V> {
    state: &'w State<'s>,
    reach: Reach,
    buffers: &'w mut Buffers,
    visitor: &'w mut V,
    /// The extent that is being put together.
    open: Option<Extent>,
    len_max: u16,
    /// The visitor wants no more.
    is_over: bool,
}

/// A number in the map.
#[derive(Clone, Copy)]
struct Number {
    value: u32,
    /// 0 for a block of data; above, for a table whose numbers are of the level below.
    level: usize,
    /// First logical block that it maps.
    lblk: u64,
    /// The table that it stands in.
    table: Option<Pblk>,
}

/// Walks the numbers of an inode. Of the resize inode, whose data are the descriptors that are
/// reserved, only the table of its own is shown.
pub fn walk<V: Visitor>(
    state: &State<'_>,
    ino: Ino,
    raw: &RawInode,
    buffers: &mut Buffers,
    visitor: &mut V,
) -> Result<()> {
    let root = &raw.i_block;
    if ino == Ino::RESIZE {
        let own = Pblk(number_at(root, NDIR_BLOCKS + 1).into());
        if is_inside(state.geometry(), own, 1) && !state.is_metadata(own) {
            visitor.node(own);
        }
        return Ok(());
    }
    let reach = Reach::new(state.geometry().block_size);
    let mut walk = Walk {
        state,
        reach,
        buffers,
        visitor,
        open: None,
        // Bad blocks are judged one by one.
        len_max: if ino == Ino::BAD_BLOCKS {
            1
        } else {
            EXT_INIT_MAX_LEN
        },
        is_over: false,
    };
    for at in 0..I_BLOCK_LEN / 4 {
        let level = at.saturating_sub(NDIR_BLOCKS - 1);
        let lblk = match level {
            0 => at as u64,
            level => reach.first(level.min(LEVELS)),
        };
        walk.number(Number {
            value: number_at(root, at),
            level,
            lblk,
            table: None,
        })?;
    }
    walk.close();
    Ok(())
}

impl<V: Visitor> Walk<'_, '_, V> {
    fn number(&mut self, number: Number) -> Result<()> {
        if number.value == 0 || self.is_over {
            return Ok(());
        }
        if number.level == 0 {
            self.data(number);
            return Ok(());
        }
        let block = Pblk(number.value.into());
        let mut spot = self.spot(number);
        if !is_inside(self.state.geometry(), block, 1) || self.state.is_metadata(block) {
            self.visitor.problem(MappingProblem::TableRange, spot);
            return Ok(());
        }
        if !self.buffers.is_new(block) {
            self.visitor.problem(MappingProblem::NodeTwice, spot);
            return Ok(());
        }
        let mut buffer = self.buffers.take(self.state.geometry());
        self.state.volume.overlay().read_block(block, &mut buffer)?;
        let wrong = count_wrong(self.state.geometry(), &buffer);
        if wrong > WRONG_MAX {
            spot.block = Some(block);
            spot.found = wrong;
            spot.right = numbers(&buffer).len() as u64;
            self.visitor.problem(MappingProblem::TableGarbage, spot);
        } else if self.visitor.node(block) {
            self.table(&buffer, block, number)?;
        } else {
            spot.block = Some(block);
            self.visitor.problem(MappingProblem::NodeTooOften, spot);
            self.is_over = true;
        }
        self.buffers.give(buffer);
        Ok(())
    }

    fn table(&mut self, bytes: &[u8], block: Pblk, parent: Number) -> Result<()> {
        let level = parent.level - 1;
        let step = self.reach.below(parent.level);
        let mut lblk = parent.lblk;
        for value in numbers(bytes) {
            self.number(Number {
                value: value.get(),
                level,
                lblk,
                table: Some(block),
            })?;
            lblk = lblk.saturating_add(step);
        }
        Ok(())
    }

    fn data(&mut self, number: Number) {
        let pblk = Pblk(number.value.into());
        let lblk = u32::try_from(number.lblk).ok().map(Lblk);
        let lblk = lblk.filter(|&lblk| lblk <= Lblk::LAST);
        let Some(lblk) = lblk.filter(|_| is_inside(self.state.geometry(), pblk, 1)) else {
            let spot = self.spot(number);
            self.visitor.problem(MappingProblem::BlockRange, spot);
            return;
        };
        if let Some(open) = &mut self.open {
            let len = u32::from(open.len);
            let follows = open.lblk.0.checked_add(len) == Some(lblk.0)
                && open.pblk.0.checked_add(len.into()) == Some(pblk.0);
            if follows && open.len < self.len_max {
                open.len += 1;
                return;
            }
        }
        self.close();
        self.open = Some(Extent {
            lblk,
            len: 1,
            pblk,
            unwritten: false,
        });
    }

    fn close(&mut self) {
        if let Some(extent) = self.open.take() {
            self.visitor.extent(extent);
        }
    }

    fn spot(&self, number: Number) -> Spot {
        Spot {
            block: number.table,
            lblk: u32::try_from(number.lblk).ok().map(Lblk),
            found: number.value.into(),
            right: 0,
        }
    }
}

/// How many numbers of a table are not those of blocks.
fn count_wrong(geometry: &Geometry, table: &[u8]) -> u64 {
    let first = geometry.first_data_block;
    let end = u32::try_from(geometry.blocks_count).unwrap_or(u32::MAX);
    let is_wrong = |&&number: &&zerocopy::little_endian::U32| {
        let number = number.get();
        number != 0 && (number <= first || number >= end)
    };
    numbers(table).iter().filter(is_wrong).count() as u64
}

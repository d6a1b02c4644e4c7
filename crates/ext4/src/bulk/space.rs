//! Allocates blocks for new data: one stream over the device, without gaps.

use uext4_mballoc::{Allocator, Request, Run};
use uext4_ondisk::Pblk;

use crate::alloc::groups::Groups;
use crate::base::edit::Direct;
use crate::base::error::{Error, Result};
use crate::journal::sbi::Sbi;

/// The allocator and the position of the stream.
#[derive(Debug)]
pub(super) struct Space {
    allocator: Allocator,
    /// The block after the last one allocated.
    goal: Pblk,
}

impl Space {
    /// Starts at the first free block.
    pub(super) fn open(sbi: &Sbi, groups: &Groups) -> Result<Self> {
        Ok(Self {
            allocator: Allocator::new(sbi.geometry(), &groups.bitmaps(sbi, &Direct(sbi)))?,
            goal: Pblk(sbi.geometry().first_data_block.into()),
        })
    }

    /// Free blocks.
    pub(super) fn free_blocks(&self) -> u64 {
        self.allocator.free_blocks()
    }

    /// Allocates `blocks` blocks and appends their runs to `runs`, in the order of the stream.
    /// Adjacent runs are joined.
    ///
    /// Fails with [`Error::NoSpace`], in which case nothing was allocated; damage of a bitmap,
    /// device errors.
    pub(super) fn take(
        &mut self,
        sbi: &Sbi,
        groups: &Groups,
        blocks: u64,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let free = self.free_blocks();
        if blocks > free {
            let needed = blocks;
            return Err(Error::NoSpace { needed, free });
        }
        let mut left = blocks;
        while left > 0 {
            let request = Request {
                goal: self.goal,
                len: u32::try_from(left).unwrap_or(u32::MAX),
                min_len: 1,
                next_fit: true,
            };
            let run = self
                .allocator
                .allocate(&groups.bitmaps(sbi, &Direct(sbi)), &request)?;
            left -= u64::from(run.len);
            self.goal = Pblk(run.start.0 + u64::from(run.len));
            match runs.last_mut() {
                Some(last)
                    if last.start.0 + u64::from(last.len) == run.start.0
                        && last.len.checked_add(run.len).is_some() =>
                {
                    last.len += run.len;
                }
                _ => runs.push(run),
            }
        }
        Ok(())
    }

    /// Allocates one block.
    pub(super) fn take_one(&mut self, sbi: &Sbi, groups: &Groups) -> Result<Pblk> {
        let request = Request {
            goal: self.goal,
            len: 1,
            min_len: 1,
            next_fit: true,
        };
        let run = self
            .allocator
            .allocate(&groups.bitmaps(sbi, &Direct(sbi)), &request)?;
        self.goal = Pblk(run.start.0 + 1);
        Ok(run.start)
    }

    /// Moves the stream to `goal`, and returns its previous position.
    pub(super) fn move_to(&mut self, goal: Pblk) -> Pblk {
        std::mem::replace(&mut self.goal, goal)
    }

    /// Frees blocks, so that the stream can use them again.
    pub(super) fn give_back(&mut self, sbi: &Sbi, groups: &Groups, runs: &[Run]) -> Result<()> {
        for run in runs {
            self.allocator
                .free(&groups.bitmaps(sbi, &Direct(sbi)), *run)?;
        }
        Ok(())
    }
}

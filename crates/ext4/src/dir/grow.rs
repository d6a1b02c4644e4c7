//! Adds blocks at the end of a directory.

use uext4_ondisk::extent::Extent;
use uext4_ondisk::{Lblk, Pblk};

use crate::base::error::{Error, Result};
use crate::base::mapping::MapState;
use crate::dir::format;
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map;
use crate::map::map_blocks;

/// Maximum number of blocks that one new name adds: a leaf, two split nodes, one below the root.
pub(crate) const GROW_MAX: usize = 4;

/// Blocks that were added to a directory, with adjacent logical numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grown {
    first: Lblk,
    blocks: [Pblk; GROW_MAX],
    count: usize,
    next: usize,
}

impl Grown {
    /// Returns the next block: its position in the directory, and its location on the device.
    pub(crate) fn next(&mut self) -> Option<(Lblk, Pblk)> {
        let block = self.blocks[..self.count].get(self.next)?;
        // OK to truncate: at most GROW_MAX.
        let lblk = Lblk(self.first.0 + self.next as u32);
        self.next += 1;
        Some((lblk, *block))
    }
}

/// Credits that adding `count` blocks may need, for their bitmaps and the map.
pub(crate) fn credits_grow(sbi: &Sbi, dir: &Inode, count: usize) -> u32 {
    // At most GROW_MAX blocks, none of which may be adjacent.
    count as u32 * (1 + map::change::credits_insert(sbi, dir, 1))
}

/// The allocation goal for the directory's next block.
fn goal(sbi: &Sbi, dir: &Inode, blocks: u64) -> Result<Pblk> {
    let last = blocks
        .checked_sub(1)
        .and_then(|last| u32::try_from(last).ok());
    if let Some(last) = last {
        let last = map_blocks(sbi, dir, Lblk(last), 1)?;
        if last.state != MapState::Hole {
            return Ok(Pblk(last.pblk.0 + 1));
        }
    }
    let group = sbi.geometry().inode_group(dir.ino);
    Ok(group.map_or(Pblk(0), |(group, _)| sbi.geometry().group_start(group)))
}

/// Adds `count` blocks, at most [`GROW_MAX`], to the end of a directory and updates its size. The
/// caller fills them. If there is no space, nothing was changed.
pub(crate) fn grow(handle: &Handle<'_>, dir: &mut Inode, count: usize) -> Result<Grown> {
    let sbi = handle.sbi();
    let block_size = sbi.geometry().block_size;
    let count = count.min(GROW_MAX);
    let before = block_size.blocks_for(dir.size);
    let after = before + count as u64;
    let fits = after <= format(sbi).blocks_max();
    let is_full = handle.rw().limits.is_full(dir.size);
    let first = u32::try_from(before).ok();
    let Some(first) = first.filter(|_| fits && !is_full) else {
        let why = match is_full {
            true => "it is as large as max_dir_size_kb= allows",
            false => {
                "it is as large as a directory may be; larger blocks (`-b 4096`), or the \
                      feature large_dir, allow more"
            }
        };
        return Err(Error::DirectoryFull { ino: dir.ino, why });
    };
    let mut grown = Grown {
        first: Lblk(first),
        blocks: [Pblk(0); GROW_MAX],
        count: 0,
        next: 0,
    };
    let goal = goal(sbi, dir, before)?;
    if let Some(owners) = &mut dir.owners {
        let bytes = (count as u64) << block_size.log2();
        owners.reservation(bytes)?;
        owners.draw(bytes);
    }
    let taken = take(handle, &mut grown, count, goal).and_then(|()| map(handle, dir, &grown));
    if let Some(owners) = &mut dir.owners {
        owners.give_back();
    }
    taken?;
    dir.size = after << block_size.log2();
    Ok(grown)
}

/// Allocates blocks one after the other, all or none.
fn take(handle: &Handle<'_>, grown: &mut Grown, count: usize, mut goal: Pblk) -> Result<()> {
    while grown.count < count {
        match handle.take_block(goal) {
            Ok(block) => {
                grown.blocks[grown.count] = block;
                grown.count += 1;
                goal = Pblk(block.0 + 1);
            }
            Err(error) => return give_back(handle, &grown.blocks[..grown.count], error),
        }
    }
    Ok(())
}

fn give_back<T>(handle: &Handle<'_>, blocks: &[Pblk], error: Error) -> Result<T> {
    for &block in blocks {
        handle.failed(handle.free_blocks(block, 1))?;
    }
    Err(error)
}

fn map(handle: &Handle<'_>, dir: &mut Inode, grown: &Grown) -> Result<()> {
    let blocks = &grown.blocks[..grown.count];
    let mut at = 0;
    while let Some(&start) = blocks.get(at) {
        let run = blocks[at..]
            .iter()
            .zip(0..)
            .take_while(|(block, i)| block.0 == start.0 + i)
            .count();
        let extent = Extent {
            lblk: Lblk(grown.first.0 + at as u32),
            len: run as u16,
            pblk: start,
            unwritten: false,
        };
        match map::change::insert(handle, dir, extent) {
            Ok(()) => at += run,
            // Nothing is mapped yet.
            Err(error) if at == 0 => return give_back(handle, blocks, error),
            Err(error) => return handle.failed(Err(error)),
        }
    }
    Ok(())
}

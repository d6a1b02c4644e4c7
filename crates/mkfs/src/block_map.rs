//! Maps of new files: an extent tree, or direct and indirect blocks, over blocks taken in order.

use uext4_ondisk::extent::{
    EXT_INIT_MAX_LEN, Extent, max_entries, put_index, put_leaf, update_tail,
};
use uext4_ondisk::inode::{I_BLOCK_LEN, NDIR_BLOCKS};
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::Error;
use crate::plan::{GENERATION, Plan};
use crate::space::Run;

/// A file's blocks and how its inode finds them.
#[derive(Clone, Debug)]
pub(crate) struct FileMap {
    pub i_block: [u8; I_BLOCK_LEN],
    /// Blocks of data, in logical order, the first at logical block 0.
    pub runs: Vec<Run>,
    /// Blocks that hold the map.
    pub meta_blocks: u64,
}

impl FileMap {
    /// Blocks the inode owns, in whole clusters.
    pub fn blocks(&self, plan: &Plan) -> u64 {
        let data = self.runs.iter().map(|run| plan.whole_clusters(run.len));
        data.sum::<u64>() + self.meta_blocks * plan.whole_clusters(1)
    }
}

/// Builds an extent tree for data that is taken already; the runs are in logical order.
///
/// # Errors
/// [`Error::NoSpace`] for a block of the tree.
pub(crate) fn extent_tree(plan: &mut Plan, ino: Ino, runs: Vec<Run>) -> Result<FileMap, Error> {
    let extents = split_into_extents(&runs);
    let mut i_block = [0; I_BLOCK_LEN];
    let root_room = max_entries(I_BLOCK_LEN, false);
    let in_root = extents.len().min(root_room.into());
    // Where there are too many, the root keeps the bytes of the first ones behind its index, as it
    // does when a tree grows.
    put_leaf(&mut i_block, root_room, &extents[..in_root]);
    let mut children = Vec::new();
    if extents.len() > in_root {
        let goal = runs.first().map_or(0, |run| run.start.saturating_sub(1));
        children = leaves(plan, ino, &extents, goal)?;
        if children.len() > root_room.into() {
            return Err(Error::NoSpace {
                what: "extent tree",
                len: children.len() as u64,
            });
        }
        put_index(&mut i_block, root_room, 1, &children);
    }
    Ok(FileMap {
        i_block,
        runs,
        meta_blocks: children.len() as u64,
    })
}

/// Puts the extents into leaf blocks looked for from `goal` on.
fn leaves(
    plan: &mut Plan,
    ino: Ino,
    extents: &[Extent],
    goal: u64,
) -> Result<Vec<(Lblk, Pblk)>, Error> {
    let room = max_entries(plan.block_len(), plan.geometry.csum_seed.is_some());
    let mut goal = goal;
    let mut children = Vec::new();
    for leaf in extents.chunks(room.into()) {
        let block = plan.take_block(goal, "extent tree")?;
        goal = block + 1;
        let mut node = vec![0; plan.block_len()];
        put_leaf(&mut node, room, leaf);
        if let Some(seed) = plan.geometry.csum_seed {
            update_tail(&mut node, seed.inode(ino, GENERATION));
        }
        plan.put(block, node);
        // OK to index: chunks are not empty.
        children.push((leaf[0].lblk, Pblk(block)));
    }
    Ok(children)
}

fn split_into_extents(runs: &[Run]) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut lblk = 0u64;
    for run in runs {
        let mut done = 0;
        while done < run.len {
            let len = (run.len - done).min(EXT_INIT_MAX_LEN.into());
            extents.push(Extent {
                lblk: Lblk((lblk + done) as u32),
                len: len as u16,
                pblk: Pblk(run.start + done),
                unwritten: false,
            });
            done += len;
        }
        lblk += run.len;
    }
    extents
}

/// Maps at most twelve blocks, given in logical order, without indirect blocks.
pub(crate) fn direct_map(blocks: &[u64]) -> FileMap {
    let mut i_block = [0; I_BLOCK_LEN];
    for (word, &block) in i_block.chunks_exact_mut(4).zip(blocks) {
        word.copy_from_slice(U32::new(block as u32).as_bytes());
    }
    FileMap {
        i_block,
        runs: join(blocks),
        meta_blocks: 0,
    }
}

/// Single blocks as runs.
pub(crate) fn join(blocks: &[u64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &start in blocks {
        match runs.last_mut() {
            Some(last) if last.end() == start => last.len += 1,
            _ => runs.push(Run { start, len: 1 }),
        }
    }
    runs
}

/// Takes `count` blocks one after the other from `goal` and maps them, each indirect block lying
/// before the first block it names, as a writer that allocates block by block leaves them.
///
/// # Errors
/// [`Error::NoSpace`] for `what`.
pub(crate) fn indirect_file(
    plan: &mut Plan,
    count: u64,
    goal: u64,
    what: &'static str,
) -> Result<FileMap, Error> {
    let mut builder = IndirectBuilder {
        next: goal,
        what,
        runs: Vec::new(),
        meta: 0,
    };
    let per_block = plan.block_len() as u64 / 4;
    let mut words = [U32::ZERO; I_BLOCK_LEN / 4];
    let mut left = count;
    for word in words.iter_mut().take(NDIR_BLOCKS) {
        if left == 0 {
            break;
        }
        *word = (builder.take_run(plan, 1)?.start as u32).into();
        left -= 1;
    }
    let mut room = 1;
    for (word, depth) in words[NDIR_BLOCKS..].iter_mut().zip(1..) {
        room *= per_block;
        let here = left.min(room);
        if here > 0 {
            *word = (builder.subtree(plan, depth, here, per_block)? as u32).into();
            left -= here;
        }
    }
    if left > 0 {
        return Err(Error::NoSpace { what, len: count });
    }
    let mut i_block = [0; I_BLOCK_LEN];
    i_block.copy_from_slice(words.as_bytes());
    Ok(FileMap {
        i_block,
        runs: builder.runs,
        meta_blocks: builder.meta,
    })
}

struct IndirectBuilder {
    next: u64,
    what: &'static str,
    runs: Vec<Run>,
    meta: u64,
}

impl IndirectBuilder {
    /// Takes free blocks in a row, at most `most`.
    fn take_run(&mut self, plan: &mut Plan, most: u64) -> Result<Run, Error> {
        let (what, end) = (self.what, plan.geometry.blocks_count);
        let first = plan.geometry.first_data_block.into();
        let free = plan
            .space
            .next_free(self.next.max(first), end)
            .or_else(|| plan.space.next_free(first, end))
            .ok_or(Error::NoSpace { what, len: most })?;
        let run = Run {
            start: free.start,
            len: free.len.min(most),
        };
        plan.take(run);
        self.next = run.end();
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => self.runs.push(run),
        }
        Ok(run)
    }

    /// An indirect block of `depth` 1 to 3 that maps the next `count` blocks.
    fn subtree(
        &mut self,
        plan: &mut Plan,
        depth: u32,
        count: u64,
        per_block: u64,
    ) -> Result<u64, Error> {
        let block = plan.take_block(self.next, self.what)?;
        self.next = block + 1;
        self.meta += 1;
        let mut bytes = vec![0; plan.block_len()];
        let mut slots = bytes.chunks_exact_mut(4);
        let mut left = count;
        while left > 0 {
            let children = if depth == 1 {
                let run = self.take_run(plan, left)?;
                left -= run.len;
                run
            } else {
                let here = left.min(per_block.pow(depth - 1));
                left -= here;
                let start = self.subtree(plan, depth - 1, here, per_block)?;
                Run { start, len: 1 }
            };
            for (number, slot) in (children.start..children.end()).zip(&mut slots) {
                slot.copy_from_slice(U32::new(number as u32).as_bytes());
            }
        }
        plan.put(block, bytes);
        Ok(block)
    }
}

//! Extent trees over blocks taken in order.

use std::collections::VecDeque;

use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, Extent, max_entries};
use uext4_ondisk::inode::I_BLOCK_LEN;
use uext4_ondisk::pack::extent_tree::{ExtentTree, Node, ROOT_ENTRIES};
use uext4_ondisk::{Ino, Lblk, Pblk};

use super::FileMap;
use crate::Error;
use crate::plan::{GENERATION, Plan};
use crate::space::Run;

/// A file that grows at its end.
#[derive(Debug)]
struct Builder {
    ino: Ino,
    extents: Vec<Extent>,
    /// A block for each leaf; none while all extents fit the root.
    leaves: VecDeque<u64>,
}

/// Takes the next `len` free blocks from `goal` on, however scattered, and maps them. A block of
/// the tree is taken when the extent that needs it is there, right before the file if that is
/// free.
pub(crate) fn extent_file(
    plan: &mut Plan,
    ino: Ino,
    goal: u64,
    len: u64,
    what: &'static str,
) -> Result<FileMap, Error> {
    let mut builder = Builder {
        ino,
        extents: Vec::new(),
        leaves: VecDeque::new(),
    };
    let mut from = goal;
    let mut done = 0;
    while done < len {
        let most = (len - done).min(EXT_INIT_MAX_LEN.into());
        let run = plan.take_run(from, most, what)?;
        builder.push(plan, done, run)?;
        from = run.end();
        done += run.len;
    }
    builder.finish(plan)
}

/// Maps blocks taken already, given in logical order. A new extent begins at logical block `apart`
/// in any case.
pub(crate) fn extents_of(
    plan: &mut Plan,
    ino: Ino,
    blocks: &[u64],
    apart: usize,
) -> Result<FileMap, Error> {
    let mut extents: Vec<Extent> = Vec::new();
    for (lblk, &block) in blocks.iter().enumerate() {
        let follows = |last: &Extent| last.pblk.0 + u64::from(last.len) == block;
        match extents.last_mut() {
            Some(last) if lblk != apart && follows(last) => last.len += 1,
            _ => extents.push(Extent {
                lblk: Lblk(lblk as u32),
                len: 1,
                pblk: Pblk(block),
                unwritten: false,
            }),
        }
    }
    let leaves = VecDeque::new();
    let builder = Builder {
        ino,
        extents,
        leaves,
    };
    builder.finish(plan)
}

fn run_of(extent: &Extent) -> Run {
    Run {
        start: extent.pblk.0,
        len: extent.len.into(),
    }
}

impl Builder {
    fn push(&mut self, plan: &mut Plan, lblk: u64, run: Run) -> Result<(), Error> {
        self.extents.push(Extent {
            lblk: Lblk(lblk as u32),
            len: run.len as u16,
            pblk: Pblk(run.start),
            unwritten: false,
        });
        let leaves = match self.extents.len() {
            0..=ROOT_ENTRIES => 0,
            len => len.div_ceil(max_entries(plan.block_len()).into()),
        };
        if self.leaves.len() < leaves {
            let block = take_node(plan, &self.extents)?;
            self.leaves.push_back(block);
        }
        Ok(())
    }

    fn finish(mut self, plan: &mut Plan) -> Result<FileMap, Error> {
        let seed = plan.geometry.csum_seed;
        let seed = seed.map(|seed| seed.inode(self.ino, GENERATION));
        let tree = ExtentTree::new(plan.geometry.block_size, seed);
        let mut place = |node: &Node<'_>| -> Result<Pblk, Error> {
            let block = match self.leaves.pop_front() {
                Some(leaf) => leaf,
                None => take_node(plan, &self.extents)?,
            };
            let mut bytes = vec![0; plan.block_len()];
            node.write(&mut bytes);
            plan.put(block, bytes);
            Ok(Pblk(block))
        };
        let mut i_block = [0; I_BLOCK_LEN];
        // Where there are too many, the root keeps the bytes of the first ones behind its index, as
        // it does when a tree grows.
        if let Some((first, [_, ..])) = self.extents.split_at_checked(ROOT_ENTRIES) {
            tree.pack(&mut i_block, first, &mut place)?;
        }
        let meta_blocks = tree.pack(&mut i_block, &self.extents, place)?;
        Ok(FileMap {
            i_block,
            runs: self.extents.iter().map(run_of).collect(),
            meta_blocks,
        })
    }
}

/// Takes a block for a node, right before the file if that is free.
fn take_node(plan: &mut Plan, extents: &[Extent]) -> Result<u64, Error> {
    let near = extents.first().map_or(0, |extent| extent.pblk.0);
    plan.take_block(near.saturating_sub(1), "extent tree")
}

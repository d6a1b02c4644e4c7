//! Extent trees over blocks taken in order.

use uext4_ondisk::extent::{
    EXT_INIT_MAX_LEN, Extent, max_entries, max_entries_with_tail, put_index, put_leaf, update_tail,
};
use uext4_ondisk::inode::I_BLOCK_LEN;
use uext4_ondisk::{Ino, Lblk, Pblk};

use super::FileMap;
use crate::Error;
use crate::plan::{GENERATION, Plan};
use crate::space::Run;

/// Room of the root, in entries.
const ROOT_ROOM: u16 = max_entries(I_BLOCK_LEN);

/// A tree that grows at its end.
#[derive(Debug)]
struct Builder {
    ino: Ino,
    extents: Vec<Extent>,
    /// First logical block and place of each leaf; none while all fits the root.
    leaves: Vec<(Lblk, Pblk)>,
}

/// Takes the next `len` free blocks from `goal` on, however scattered, and maps them. A block of the
/// tree is taken when the extent that needs it is there, right before the file if that is free.
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
        leaves: Vec::new(),
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

/// Maps blocks taken already, given in logical order; they come to at most four extents. A new one
/// begins at logical block `apart` in any case.
pub(crate) fn extent_root(blocks: &[u64], apart: usize) -> FileMap {
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
    extents.truncate(ROOT_ROOM.into());
    let mut i_block = [0; I_BLOCK_LEN];
    put_leaf(&mut i_block, ROOT_ROOM, &extents);
    FileMap {
        i_block,
        runs: extents.iter().map(run_of).collect(),
        meta_blocks: 0,
    }
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
        if self.extents.len() <= ROOT_ROOM.into() {
            return Ok(());
        }
        let room = usize::from(leaf_room(plan));
        if self.leaves.len() * room < self.extents.len() {
            let near = self.extents.first().map_or(0, |extent| extent.pblk.0);
            let block = plan.take_block(near.saturating_sub(1), "extent tree")?;
            // OK to index: the extent just pushed lies past the full leaves.
            let first = self.extents[self.leaves.len() * room].lblk;
            self.leaves.push((first, Pblk(block)));
        }
        Ok(())
    }

    fn finish(self, plan: &mut Plan) -> Result<FileMap, Error> {
        let mut i_block = [0; I_BLOCK_LEN];
        let in_root = self.extents.len().min(ROOT_ROOM.into());
        // Where there are too many, the root keeps the bytes of the first ones behind its index, as
        // it does when a tree grows.
        put_leaf(&mut i_block, ROOT_ROOM, &self.extents[..in_root]);
        let room = leaf_room(plan);
        if self.leaves.len() > room.into() {
            return Err(Error::NoSpace {
                what: "extent tree",
                len: self.leaves.len() as u64,
            });
        }
        let mut meta_blocks = self.leaves.len() as u64;
        if self.leaves.len() > ROOT_ROOM.into() {
            // One level more: the leaves do not fit the root.
            let near = self.extents.first().map_or(0, |extent| extent.pblk.0);
            let block = plan.take_block(near.saturating_sub(1), "extent tree")?;
            let mut node = vec![0; plan.block_len()];
            put_index(&mut node, room, 1, &self.leaves);
            if let Some(seed) = plan.geometry.csum_seed {
                update_tail(&mut node, seed.inode(self.ino, GENERATION));
            }
            plan.put(block, node);
            put_index(&mut i_block, ROOT_ROOM, 2, &[(Lblk(0), Pblk(block))]);
            meta_blocks += 1;
        } else if !self.leaves.is_empty() {
            put_index(&mut i_block, ROOT_ROOM, 1, &self.leaves);
        }
        for (extents, &(_, block)) in self.extents.chunks(room.into()).zip(&self.leaves) {
            let mut node = vec![0; plan.block_len()];
            put_leaf(&mut node, room, extents);
            if let Some(seed) = plan.geometry.csum_seed {
                update_tail(&mut node, seed.inode(self.ino, GENERATION));
            }
            plan.put(block.0, node);
        }
        Ok(FileMap {
            i_block,
            runs: self.extents.iter().map(run_of).collect(),
            meta_blocks,
        })
    }
}

/// Room of a leaf block, in entries.
fn leaf_room(plan: &Plan) -> u16 {
    match plan.geometry.csum_seed {
        Some(_) => max_entries_with_tail(plan.block_len()),
        None => max_entries(plan.block_len()),
    }
}

//! The blocks of a directory that is written anew: those it has, without holes.
//!
//! Each logical block keeps its physical one, so that with `bigalloc` the blocks of a cluster stay
//! where they must be; holes below the new end are filled, what lies behind it is freed.

use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;
use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, Extent, max_entries};
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags, NDIR_BLOCKS};
use uext4_ondisk::{Lblk, Pblk};

use super::Old;
use crate::error::Result;
use crate::state::State;

/// Blocks for a directory, and what it does not need any more.
#[derive(Debug, Default)]
pub struct Space {
    /// The blocks, without a hole.
    pub extents: Vec<Extent>,
    /// Physical blocks that it had and does not need.
    rest: Vec<(Pblk, u64)>,
}

/// Finds room for `blocks` blocks. Nothing is taken if there is not enough.
///
/// # Errors
/// [`crate::Error::NoSpace`].
pub fn take(state: &State<'_>, old: &Old, blocks: u32) -> Result<Space> {
    let mut space = Space::default();
    let mut next = 0;
    let mut taken = Vec::new();
    let result = old.runs.iter().try_for_each(|run| {
        fill(state, &mut space, &mut taken, next..run.lblk.0.min(blocks))?;
        let kept = run.len.min(blocks.saturating_sub(run.lblk.0));
        for i in 0..kept {
            space.push(
                run.lblk.0.saturating_add(i),
                run.pblk.0.saturating_add(i.into()),
            );
        }
        if kept < run.len {
            let from = Pblk(run.pblk.0.saturating_add(kept.into()));
            space.rest.push((from, (run.len - kept).into()));
        }
        next = run.lblk.0.saturating_add(run.len);
        Ok(())
    });
    let result = result.and_then(|()| fill(state, &mut space, &mut taken, next..blocks));
    let result = result.and_then(|()| has_room_for_map(state, old, &space));
    if let Err(error) = result {
        for block in taken {
            state.used.remove(state.used.of_blocks(block, 1));
        }
        return Err(error);
    }
    Ok(space)
}

/// Fails if there are not as many free blocks as the new map may need besides those of the old
/// one. Nothing is taken; but this runs in one thread, so that they are there afterwards.
fn has_room_for_map(state: &State<'_>, old: &Old, space: &Space) -> Result<()> {
    let is_free = |&&node: &&Pblk| !state.is_shared(node);
    let had = old.map.nodes.iter().filter(is_free).count();
    let mut taken = Vec::new();
    let mut result = Ok(());
    for _ in had..nodes_max(state, old, space) {
        match state.allocate(Pblk(0), 1, "a block map") {
            Ok(block) => taken.push(block),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    for block in taken {
        state.used.remove(state.used.of_blocks(block, 1));
    }
    result
}

/// Most blocks that the map of these extents takes.
fn nodes_max(state: &State<'_>, old: &Old, space: &Space) -> usize {
    let len = state.geometry().block_size.len();
    if old.flags.contains(InodeFlags::EXTENTS) {
        let (mut nodes, mut entries) = (0, space.extents.len());
        while entries > usize::from(max_entries(I_BLOCK_LEN)) {
            entries = entries.div_ceil(usize::from(max_entries(len)).max(2));
            nodes += entries;
        }
        return nodes;
    }
    let blocks: u64 = space.extents.iter().map(|e| u64::from(e.len)).sum();
    let beyond = usize::try_from(blocks).unwrap_or(usize::MAX);
    let mut beyond = beyond.saturating_sub(NDIR_BLOCKS);
    // A single table; then tables of tables, the highest of which may be one more.
    let mut nodes = 0;
    while beyond > 0 {
        nodes += beyond.div_ceil(len / 4);
        beyond = beyond.saturating_sub(len / 4).div_ceil(len / 4);
    }
    nodes
}

/// Takes blocks for a range of logical blocks.
fn fill(
    state: &State<'_>,
    space: &mut Space,
    taken: &mut Vec<Pblk>,
    range: std::ops::Range<u32>,
) -> Result<()> {
    let in_cluster = (1_u32 << state.geometry().cluster_bits) - 1;
    for lblk in range {
        let last = space
            .extents
            .last()
            .map(|extent| Pblk(extent.pblk.0 + u64::from(extent.len)));
        let pblk = match last {
            // The cluster of the block before has this one, too.
            Some(last) if lblk & in_cluster != 0 => last,
            _ => {
                let goal = last.unwrap_or(Pblk(state.geometry().first_data_block.into()));
                let block = state.allocate(goal, 1, "a directory")?;
                taken.push(block);
                Pblk(block.0.saturating_add((lblk & in_cluster).into()))
            }
        };
        space.push(lblk, pblk.0);
    }
    Ok(())
}

impl Space {
    fn push(&mut self, lblk: u32, pblk: u64) {
        if let Some(last) = self.extents.last_mut()
            && last.pblk.0 + u64::from(last.len) == pblk
            && last.len < EXT_INIT_MAX_LEN
        {
            last.len += 1;
            return;
        }
        self.extents.push(Extent {
            lblk: Lblk(lblk),
            len: 1,
            pblk: Pblk(pblk),
            unwritten: false,
        });
    }

    /// Gives back the clusters that the directory does not need any more.
    pub fn free_rest(&self, state: &State<'_>) {
        let mut kept: HashSet<u64, FxBuildHasher> = HashSet::default();
        if state.geometry().cluster_bits > 0 {
            for extent in &self.extents {
                kept.extend(state.used.of_blocks(extent.pblk, extent.len.into()));
            }
        }
        for &(block, len) in &self.rest {
            for cluster in state.used.of_blocks(block, len) {
                if !kept.contains(&cluster) {
                    state.free(cluster..cluster.saturating_add(1));
                }
            }
        }
    }
}

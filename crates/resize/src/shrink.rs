//! `shrink`: fewer blocks.

use std::sync::Arc;

use uext4_blockdev::{BlockDevice, Clock};
use uext4_mkfs::without_short_group;
use uext4_ondisk::Geometry;
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::superblock::SuperBlock;

use crate::batch::Batch;
use crate::claimed::{claimed, must_not_be_in_use};
use crate::grow::Resized;
use crate::metadata::{Metadata, least_blocks, with_metadata};
use crate::state::State;
use crate::{Error, Examination, Result, fewer, log, move_blocks, renumber};

/// The size that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallerSize {
    /// At most so many bytes; a last group that is too short is left out.
    Bytes(u64),
    /// As few blocks as what there is needs.
    Least,
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Groups whose inodes have been looked at.
    pub groups: u32,
    /// Of so many.
    pub of: u32,
}

/// Makes the file system on `device` smaller; the device keeps its length. The caller has claimed
/// the device; the file system is not mounted. Its journal is replayed first. `met` learns what
/// has been done, and stops it by an error: what was moved until then stays moved.
///
/// # Errors
/// [`Error`]. After any error the file system has its old size and is clean, unless the device
/// failed.
pub fn shrink(
    device: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    size: SmallerSize,
    examination: Examination<'_>,
    met: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Resized> {
    must_not_be_in_use(&**device, &**clock)?;
    examination.run(device)?;
    let state = State::open(device, clock)?;
    claimed(&**device, &**clock, || {
        let state = log::end_cut_move(state, clock)?;
        shrink_state(state, device, clock, size, met)
    })
}

/// Makes a file system smaller that this host has.
fn shrink_state(
    state: State,
    device: &Arc<dyn BlockDevice>,
    clock: &Arc<dyn Clock>,
    size: SmallerSize,
    met: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Resized> {
    let old = state.geometry.clone();
    let resized = |after| Resized {
        before: old.blocks_count,
        after,
        block_size: old.block_size.bytes(),
    };
    let least = least_blocks(&state)?;
    let wanted = match size {
        SmallerSize::Bytes(bytes) => bytes >> old.block_size.log2(),
        SmallerSize::Least => least,
    };
    if wanted >= old.blocks_count {
        return Ok(resized(old.blocks_count));
    }
    let mut blocks = match size {
        SmallerSize::Bytes(_) => without_short_group(&old, wanted),
        SmallerSize::Least => least,
    };
    let all = Metadata::of(&state, &old, old.groups_count.get())?;
    // Groups that it reaches may have their tables past it.
    let least = least.max(with_metadata(&old, &all, blocks));
    if blocks < least {
        return Err(Error::TooSmall {
            wanted,
            least,
            block_size: old.block_size.bytes(),
        });
    }
    let mut more = 1;
    let mut state = state;
    loop {
        match shrink_to(state, clock, blocks, met) {
            // Extent trees became larger.
            Err(Error::Full) if size == SmallerSize::Least => {}
            done => return done.map(|()| resized(blocks)),
        }
        let larger = least.saturating_add(more << old.cluster_bits);
        blocks = with_metadata(&old, &all, larger.min(old.blocks_count));
        if blocks >= old.blocks_count {
            return Ok(resized(old.blocks_count));
        }
        more *= 2;
        state = State::open(device, clock)?;
    }
}

/// Moves what goes, and then takes out what nothing uses any more.
fn shrink_to(
    state: State,
    clock: &Arc<dyn Clock>,
    blocks: u64,
    met: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<()> {
    let of = state.geometry.groups_count.get();
    let new = Geometry::new(&smaller(&state, blocks))?;
    let device = Arc::clone(state.device());
    let mut batch = Batch::new(state, clock, &new)?;
    renumber::must_be_possible(&batch)?;
    move_blocks::move_all(&mut batch, &mut |group| {
        met(Progress {
            groups: group + 1,
            of,
        })
    })?;
    renumber::renumber_all(&mut batch)?;
    drop(batch);
    let state = State::open(&device, clock)?;
    fewer::fewer_groups(&state, clock, smaller(&state, blocks))
}

/// The superblock with so many blocks, but for what is counted.
fn smaller(state: &State, blocks: u64) -> SuperBlock {
    let old = &state.geometry;
    let per_group = u64::from(old.blocks_per_group.get());
    let groups = (blocks - u64::from(old.first_data_block)).div_ceil(per_group) as u32;
    let mut superblock = state.with_blocks(blocks, groups);
    let tables = groups.div_ceil(old.descs_per_block());
    let spare = old.gdt_blocks().saturating_sub(tables);
    let features = old.features;
    if features.compat.contains(Compat::RESIZE_INODE) {
        let most = old.block_size.bytes() / 4;
        let now = u32::from(old.reserved_gdt_blocks).saturating_add(spare);
        superblock.s_reserved_gdt_blocks = (now.min(most) as u16).into();
    }
    if features.incompat.contains(Incompat::META_BG) {
        let first = old.first_meta_bg.min(tables);
        superblock.s_first_meta_bg = first.into();
    }
    if features.compat.contains(Compat::SPARSE_SUPER2) {
        for field in &mut superblock.s_backup_bgs {
            if field.get() >= groups {
                *field = 0.into();
            }
        }
    }
    superblock
}

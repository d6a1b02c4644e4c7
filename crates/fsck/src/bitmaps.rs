//! The last pass: bitmaps, and the counts of groups and superblock.
//!
//! # What a bitmap must be
//!
//! By now it is known which clusters have an owner and which inodes are in use. From that each
//! bitmap is built as it must be, with all bits past the group's end set, and compared as a whole:
//! on a consistent file system a group costs one comparison of memory. Only where they differ are
//! the bits looked at.
//!
//! A group whose bitmap was never written (`BG_BLOCK_UNINIT`, `BG_INODE_UNINIT`) is not read. The
//! kernel makes its bitmap from the descriptor when it first needs it, so nothing may be in use
//! there but what the kernel would mark: the group's own copies, bitmaps and inode table.
//!
//! # Reading
//!
//! Threads take some dozens of groups at a time. With `flex_bg` the bitmaps of neighbouring groups
//! lie side by side; they are sorted by block and read at one stretch.
//!
//! # Counts
//!
//! The counts of a group come from what is in use, never from the stored bitmap. The superblock's
//! are their sums. The kernel leaves the superblock's alone between mounts, so they are often old
//! on a file system that was not unmounted; storing the right ones loses nothing.

mod expected;
mod group;
mod replayed;

use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Pblk};

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::memory::READ_MAX;
use crate::problem::SuperblockProblem;
use crate::report::{Pass, Progress};
use crate::state::State;
use crate::summary::Summary;
use crate::threads;

pub use replayed::{first_inodes, note_replayed};

/// Groups that a thread takes at a time.
const GROUPS_PER_STEP: u32 = 64;

/// What groups hold together.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    free_clusters: u64,
    free_inodes: u64,
    directories: u64,
}

/// One bitmap that was written, and so must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    block: Pblk,
    group: GroupNr,
    is_of_inodes: bool,
}

/// What a thread keeps from step to step: nothing is allocated for a group.
#[derive(Debug, Default)]
struct Worker {
    wanted: Vec<Wanted>,
    bytes: Vec<u8>,
    expected: Vec<u8>,
    totals: Totals,
}

/// Compares the bitmaps with what is in use, groups in parallel, and the counts with the bitmaps.
/// Adds what it counted to `summary`.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(state: &State<'_>, summary: &mut Summary) -> Result<()> {
    replayed::take_back(state)?;
    let groups = state.geometry().groups_count.get();
    let steps = u64::from(groups.div_ceil(GROUPS_PER_STEP));
    let shown_every = (steps / 256).max(1);
    let workers = threads::for_each(
        state.options.threads,
        steps,
        1,
        Worker::default,
        |worker, step| {
            if step % shown_every == 0 {
                state.findings.progress(Progress {
                    pass: Pass::Bitmaps,
                    done: step.saturating_mul(GROUPS_PER_STEP.into()),
                    total: groups.into(),
                })?;
            }
            let from = u32::try_from(step).unwrap_or(u32::MAX);
            let from = from.saturating_mul(GROUPS_PER_STEP);
            worker.step(
                state,
                from..from.saturating_add(GROUPS_PER_STEP).min(groups),
            )
        },
    )?;
    let mut totals = Totals::default();
    for worker in workers {
        totals.free_clusters += worker.totals.free_clusters;
        totals.free_inodes += worker.totals.free_inodes;
        totals.directories += worker.totals.directories;
    }
    let free_blocks = totals.free_clusters << state.geometry().cluster_bits;
    superblock_counts(state, free_blocks, totals.free_inodes)?;
    let geometry = state.geometry();
    let inodes = u64::from(geometry.inodes_count);
    summary.inodes += inodes.saturating_sub(totals.free_inodes);
    summary.directories += totals.directories;
    summary.blocks_used += geometry.blocks_count.saturating_sub(free_blocks);
    Ok(())
}

/// Compares the sums with the superblock's counts. Those are only right where it was unmounted:
/// the kernel keeps them in memory until then.
fn superblock_counts(state: &State<'_>, free_blocks: u64, free_inodes: u64) -> Result<()> {
    let superblock = state.volume.superblock();
    let stored = superblock.free_blocks_count();
    if stored != free_blocks {
        let problem = match stored > superblock.blocks_count() {
            true => SuperblockProblem::FreeBlocksTooMany,
            false => SuperblockProblem::FreeBlocks,
        };
        let finding = Finding::new(problem, Place::whole());
        let cause = state.report(finding.found(stored).right(free_blocks));
        state
            .volume
            .update_superblock(cause, |sb| sb.set_free_blocks_count(free_blocks))?;
    }
    let stored = superblock.s_free_inodes_count.get();
    let right = u32::try_from(free_inodes).unwrap_or(u32::MAX);
    if stored != right {
        let problem = match stored > superblock.s_inodes_count.get() {
            true => SuperblockProblem::FreeInodesTooMany,
            false => SuperblockProblem::FreeInodes,
        };
        let finding = Finding::new(problem, Place::whole());
        let cause = state.report(finding.found(stored).right(right));
        state
            .volume
            .update_superblock(cause, |sb| sb.s_free_inodes_count = right.into())?;
    }
    Ok(())
}

impl Worker {
    /// Examines some neighbouring groups.
    fn step(&mut self, state: &State<'_>, groups: std::ops::Range<u32>) -> Result<()> {
        self.wanted.clear();
        for nr in groups.map(GroupNr) {
            group::uninitialised(state, nr, &mut self.expected)?;
            self.want(state, nr);
            let counted = group::count(state, nr);
            group::counts(state, nr, counted)?;
            self.totals.free_clusters += u64::from(counted.free_clusters);
            self.totals.free_inodes += u64::from(counted.free_inodes);
            self.totals.directories += u64::from(counted.directories);
        }
        self.wanted.sort_unstable();
        let size = state.geometry().block_size.len();
        let wanted = std::mem::take(&mut self.wanted);
        let mut rest = &wanted[..];
        while let Some(first) = rest.first() {
            // A damaged descriptor may name one block twice: it is read twice then.
            let follows = |(i, wanted): (usize, &Wanted)| {
                wanted.block.0 == first.block.0.saturating_add(i as u64)
            };
            let len = rest.iter().enumerate().take_while(|&next| follows(next));
            let (run, others) = rest.split_at(len.count().min(READ_MAX / size).max(1));
            rest = others;
            self.bytes.resize(run.len() * size, 0);
            let offset = first.block.0 << state.geometry().block_size.log2();
            state.volume.overlay().read_at(offset, &mut self.bytes)?;
            for (wanted, bytes) in run.iter().zip(self.bytes.chunks_exact(size)) {
                group::bitmap(state, *wanted, bytes, &mut self.expected)?;
            }
        }
        self.wanted = wanted;
        Ok(())
    }

    /// Notes the bitmaps of a group that were written. One that does not lie in the file system
    /// is a finding of the descriptors' pass, and there is nothing to compare.
    fn want(&mut self, state: &State<'_>, group: GroupNr) {
        let desc = state.volume.group(group);
        let uninit = group::uninit(state, &desc);
        let bitmaps = [
            (desc.block_bitmap, false, uninit.blocks),
            (desc.inode_bitmap, true, uninit.inodes),
        ];
        for (block, is_of_inodes, is_uninit) in bitmaps {
            if !is_uninit && group::is_there(state, block) {
                self.wanted.push(Wanted {
                    block,
                    group,
                    is_of_inodes,
                });
            }
        }
    }
}

/// Bytes of a bitmap of this many bits that its checksum covers.
fn summed_bytes(bits: u32) -> usize {
    index(bits / 8)
}

#[cfg(test)]
mod tests;

//! Bitmaps and counts after a replay of fast commits, which say nothing of them, and after orphans
//! were deleted: what came into use is marked, what went is not marked any more. What was wrong
//! before stays so, for the pass to find.

use std::iter::repeat;

use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino};

use super::{expected, group};
use crate::clusters::ClusterSet;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::held::HeldInode;
use crate::inode_map::Kind;
use crate::problem::JournalProblem;
use crate::report::Cause;
use crate::state::State;

/// Writes the inode bitmap of a group without inodes in use, if it was never written.
///
/// # Errors
/// Of the device and of the overlay.
pub fn first_inodes(state: &State<'_>, group: GroupNr, cause: Cause) -> Result<()> {
    if !group::uninit(state, &state.volume.group(group)).inodes {
        return Ok(());
    }
    let mut bytes = Vec::new();
    expected::no_inodes(state, group, &mut bytes);
    group::write_first(state, group, true, &bytes, cause)
}

/// Marks the clusters in use that were not in use `before`, and the `new` inodes, each with how
/// many directories more there are by it. The superblock gets the sums, as a mount makes them.
///
/// # Errors
/// Of the device and of the overlay.
pub fn note_replayed(
    state: &State<'_>,
    before: &ClusterSet,
    new: &[(Ino, i32)],
    cause: Cause,
) -> Result<()> {
    for group in (0..state.geometry().groups_count.get()).map(GroupNr) {
        if state.used.has_group(group) || before.has_group(group) {
            blocks(state, before, group, cause)?;
        }
    }
    let group_of = |ino: Ino| state.geometry().inode_group(ino).map(|(group, _)| group);
    for same in new.chunk_by(|a, b| group_of(a.0) == group_of(b.0)) {
        let group = same.first().and_then(|&(ino, _)| group_of(ino));
        if let Some(group) = group {
            inodes(state, group, same, cause)?;
        }
    }
    sums(state, cause)
}

/// Takes the marks and counts back of what orphans held, unless it is another's, which
/// [`crate::orphans::others`] has reported.
///
/// # Errors
/// Of the device and of the overlay; [`crate::Error::Spill`].
pub fn take_back(state: &State<'_>) -> Result<()> {
    let held = state.held.lock();
    let Some(cause) = held.cause else {
        return Ok(());
    };
    let before = ClusterSet::new(state.geometry(), &state.scratch);
    before.add_removed_and(Some(&state.used));
    if let Some(clusters) = held.clusters() {
        clusters.check()?;
        before.add_removed_and(Some(clusters));
    }
    for group in (0..state.geometry().groups_count.get()).map(GroupNr) {
        if before.has_group(group) {
            let free = blocks(state, &before, group, cause)?;
            if free != 0 {
                let finding = Finding::new(JournalProblem::OrphanFree, Place::group(group));
                let blocks = u64::from(free) << state.geometry().cluster_bits;
                state.report(finding.found(blocks));
            }
        }
    }
    for inode in &held.inodes {
        if state.inodes.get(inode.ino).kind == Kind::Unused {
            gone(state, *inode, cause)?;
        }
    }
    sums(state, cause)
}

/// Takes back the mark of an inode.
fn gone(state: &State<'_>, inode: HeldInode, cause: Cause) -> Result<()> {
    let Some((group, bit)) = state.geometry().inode_group(inode.ino) else {
        return Ok(());
    };
    let desc = state.volume.group(group);
    if !group::is_there(state, desc.inode_bitmap) || group::uninit(state, &desc).inodes {
        return Ok(());
    }
    let mut bytes = vec![0; state.geometry().block_size.len()];
    let overlay = state.volume.overlay();
    overlay.read_block(desc.inode_bitmap, &mut bytes)?;
    let was_right = group::checksum(state, true, &bytes) == Some(desc.inode_bitmap_csum);
    let mask = 1 << (bit % 8);
    let Some(byte) = bytes
        .get_mut(index(bit / 8))
        .filter(|byte| **byte & mask != 0)
    else {
        return Ok(());
    };
    *byte &= !mask;
    overlay.replace(desc.inode_bitmap, cause, &bytes)?;
    let sum = group::checksum(state, true, &bytes).filter(|_| was_right);
    state.volume.update_group(group, cause, |desc| {
        desc.free_inodes = desc.free_inodes.saturating_add(1);
        desc.used_dirs = desc.used_dirs.saturating_sub(inode.is_directory.into());
        group::set_checksum(desc, true, sum);
    })
}

/// Stores the sums of the groups' counts in the superblock, as a mount does.
fn sums(state: &State<'_>, cause: Cause) -> Result<()> {
    let groups = state.volume.groups();
    let free_clusters: u64 = groups
        .iter()
        .map(|desc| u64::from(desc.free_clusters))
        .sum();
    let free_inodes: u64 = groups.iter().map(|desc| u64::from(desc.free_inodes)).sum();
    state.volume.update_superblock(cause, |superblock| {
        superblock.set_free_blocks_count(free_clusters << state.geometry().cluster_bits);
        let free_inodes = u32::try_from(free_inodes).unwrap_or(u32::MAX);
        superblock.s_free_inodes_count = free_inodes.into();
    })
}

/// Makes a group's marks follow from what was in use `before`. Returns how many clusters were free
/// already of those that are to be free.
fn blocks(state: &State<'_>, before: &ClusterSet, group: GroupNr, cause: Cause) -> Result<u32> {
    let differ = |(old, new): &(u64, u64)| old != new;
    let words = || {
        let words = index(state.geometry().clusters_per_group.get().div_ceil(64));
        let old = before.words(group).chain(repeat(0));
        let new = state.used.words(group).chain(repeat(0));
        old.zip(new).take(words)
    };
    let desc = state.volume.group(group);
    if !words().any(|pair| differ(&pair)) || !group::is_there(state, desc.block_bitmap) {
        return Ok(0);
    }
    let mut bytes = vec![0; state.geometry().block_size.len()];
    if group::uninit(state, &desc).blocks {
        expected::fresh_blocks(state, group, &desc, &mut bytes);
        group::write_first(state, group, false, &bytes, cause)?;
    } else {
        state
            .volume
            .overlay()
            .read_block(desc.block_bitmap, &mut bytes)?;
    }
    let desc = state.volume.group(group);
    let was_right = group::checksum(state, false, &bytes) == Some(desc.block_bitmap_csum);
    let (mut taken, mut freed, mut free) = (0_u32, 0_u32, 0_u32);
    for (place, (old, new)) in bytes.chunks_exact_mut(8).zip(words()) {
        let marked = place
            .first_chunk::<8>()
            .map_or(0, |b| u64::from_le_bytes(*b));
        let now = (marked | new & !old) & !(old & !new);
        taken += (now & !marked).count_ones();
        freed += (marked & !now).count_ones();
        free += (old & !new & !marked).count_ones();
        place.copy_from_slice(&now.to_le_bytes());
    }
    state
        .volume
        .overlay()
        .replace(desc.block_bitmap, cause, &bytes)?;
    let sum = group::checksum(state, false, &bytes).filter(|_| was_right);
    state.volume.update_group(group, cause, |desc| {
        let left = desc.free_clusters.saturating_add(freed);
        desc.free_clusters = left.saturating_sub(taken);
        group::set_checksum(desc, false, sum);
    })?;
    Ok(free)
}

fn inodes(state: &State<'_>, group: GroupNr, new: &[(Ino, i32)], cause: Cause) -> Result<()> {
    let desc = state.volume.group(group);
    if !group::is_there(state, desc.inode_bitmap) {
        return Ok(());
    }
    let mut bytes = vec![0; state.geometry().block_size.len()];
    let overlay = state.volume.overlay();
    overlay.read_block(desc.inode_bitmap, &mut bytes)?;
    let was_right = group::checksum(state, true, &bytes) == Some(desc.inode_bitmap_csum);
    let (mut taken, mut directories) = (0_u32, 0_i32);
    for &(ino, more) in new {
        let Some((_, bit)) = state.geometry().inode_group(ino) else {
            continue;
        };
        if let Some(byte) = bytes.get_mut(index(bit / 8)) {
            taken += u32::from(*byte >> (bit % 8) & 1 == 0);
            *byte |= 1 << (bit % 8);
        }
        directories += more;
    }
    overlay.replace(desc.inode_bitmap, cause, &bytes)?;
    let sum = group::checksum(state, true, &bytes).filter(|_| was_right);
    state.volume.update_group(group, cause, |desc| {
        desc.free_inodes = desc.free_inodes.saturating_sub(taken);
        desc.used_dirs = desc.used_dirs.saturating_add_signed(directories);
        group::set_checksum(desc, true, sum);
    })
}

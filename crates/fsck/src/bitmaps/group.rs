//! One group: its bitmaps and its counts.

use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, DescChecksum, GroupDesc, bitmap_checksum,
};
use uext4_ondisk::inode::FileType;
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Pblk};

use super::{Wanted, expected, summed_bytes};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::problem::GroupProblem;
use crate::report::Cause;
use crate::state::State;

/// Which bitmaps of a group were never written.
#[derive(Clone, Copy, Debug)]
pub struct Uninit {
    pub blocks: bool,
    pub inodes: bool,
}

/// What is in use in a group, and what is not.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub free_clusters: u32,
    pub free_inodes: u32,
    pub directories: u32,
    /// Inodes from the first one up to the last one in use.
    inodes_to_last: u32,
}

/// Which bitmaps of a group were never written. The flags say nothing where descriptors have no
/// checksum.
pub fn uninit(state: &State<'_>, desc: &GroupDesc) -> Uninit {
    let counts = state.geometry().desc_checksum != DescChecksum::None;
    Uninit {
        blocks: counts && desc.flags & BG_BLOCK_UNINIT != 0,
        inodes: counts && desc.flags & BG_INODE_UNINIT != 0,
    }
}

/// Counts what is in use.
pub fn count(state: &State<'_>, group: GroupNr) -> Counted {
    let geometry = state.geometry();
    let used: u32 = state.used.words(group).map(u64::count_ones).sum();
    let reserved = expected::reserved_inodes(state, group);
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let (mut inodes, mut directories, mut last) = (reserved, 0, reserved);
    for (ino, kind) in state.inodes.kinds_in_group(group) {
        let number = ino.0.saturating_sub(first);
        if kind == Kind::Unused {
            continue;
        }
        directories += u32::from(kind == Kind::File(FileType::Directory));
        inodes += u32::from(number > reserved);
        last = last.max(number);
    }
    Counted {
        free_clusters: expected::clusters_in_group(state, group).saturating_sub(used),
        free_inodes: geometry.inodes_per_group.get().saturating_sub(inodes),
        directories,
        inodes_to_last: last,
    }
}

/// Groups whose bitmaps were never written hold nothing that the kernel would not mark itself.
/// Otherwise the bitmap is written, and the flag goes.
pub fn uninitialised(state: &State<'_>, group: GroupNr, scratch: &mut Vec<u8>) -> Result<()> {
    let desc = state.volume.group(group);
    let uninit = uninit(state, &desc);
    if uninit.blocks && state.used.has_group(group) {
        expected::fresh_blocks(state, group, &desc, scratch);
        let fresh = std::mem::take(scratch);
        expected::blocks(state, group, scratch);
        if *scratch != fresh {
            initialise(state, group, false, scratch)?;
        }
    }
    let in_use = |kind| kind != Kind::Unused;
    if uninit.inodes
        && (expected::reserved_inodes(state, group) > 0
            || state
                .inodes
                .kinds_in_group(group)
                .any(|(_, kind)| in_use(kind)))
    {
        expected::inodes(state, group, scratch);
        initialise(state, group, true, scratch)?;
    }
    Ok(())
}

/// Whether a bitmap lies in the file system.
pub fn is_there(state: &State<'_>, block: Pblk) -> bool {
    block.0 != 0 && state.geometry().contains(block, 1)
}

/// Writes a bitmap for the first time, with a finding.
fn initialise(state: &State<'_>, group: GroupNr, is_of_inodes: bool, bytes: &[u8]) -> Result<()> {
    let problem = match is_of_inodes {
        false => GroupProblem::BlocksUninit,
        true => GroupProblem::InodesUninit,
    };
    let cause = state.report(Finding::new(problem, Place::group(group)));
    write_first(state, group, is_of_inodes, bytes, cause)
}

/// Writes a bitmap for the first time.
pub fn write_first(
    state: &State<'_>,
    group: GroupNr,
    is_of_inodes: bool,
    bytes: &[u8],
    cause: Cause,
) -> Result<()> {
    let desc = state.volume.group(group);
    let (block, flag) = match is_of_inodes {
        false => (desc.block_bitmap, BG_BLOCK_UNINIT),
        true => (desc.inode_bitmap, BG_INODE_UNINIT),
    };
    if is_there(state, block) {
        state.volume.overlay().replace(block, cause, bytes)?;
    }
    let sum = checksum(state, is_of_inodes, bytes);
    state.volume.update_group(group, cause, |desc| {
        desc.flags &= !flag;
        set_checksum(desc, is_of_inodes, sum);
    })
}

/// Compares a bitmap that was read, and its checksum.
pub fn bitmap(
    state: &State<'_>,
    wanted: Wanted,
    bytes: &[u8],
    expected: &mut Vec<u8>,
) -> Result<()> {
    let Wanted {
        block,
        group,
        is_of_inodes,
    } = wanted;
    match is_of_inodes {
        false => expected::blocks(state, group, expected),
        true => expected::inodes(state, group, expected),
    }
    let place = Place::group(group).block(block);
    let desc = state.volume.group(group);
    let stored = match is_of_inodes {
        false => desc.block_bitmap_csum,
        true => desc.inode_bitmap_csum,
    };
    let computed = checksum(state, is_of_inodes, bytes);
    if let Some(computed) = computed.filter(|&sum| sum != stored) {
        let problem = match is_of_inodes {
            false => GroupProblem::BlockBitmapChecksum,
            true => GroupProblem::InodeBitmapChecksum,
        };
        let finding = Finding::new(problem, place.clone());
        let cause = state.report(finding.found(stored).right(computed));
        let right = checksum(state, is_of_inodes, expected);
        state
            .volume
            .update_group(group, cause, |desc| set_checksum(desc, is_of_inodes, right))?;
    }
    if bytes != &expected[..] {
        differences(state, wanted, &place, bytes, expected)?;
    }
    Ok(())
}

/// Reports how a bitmap differs, and replaces it.
fn differences(
    state: &State<'_>,
    wanted: Wanted,
    place: &Place,
    bytes: &[u8],
    expected: &[u8],
) -> Result<()> {
    use GroupProblem as P;
    let is_of_inodes = wanted.is_of_inodes;
    let (bits, problems) = match is_of_inodes {
        false => (
            expected::clusters_in_group(state, wanted.group),
            [P::BlocksNotMarked, P::BlocksMarked, P::BlockBitmapPadding],
        ),
        true => (
            state.geometry().inodes_per_group.get(),
            [P::InodesNotMarked, P::InodesMarked, P::InodeBitmapPadding],
        ),
    };
    let sum = checksum(state, is_of_inodes, expected);
    let [not_marked, marked, padding] = problems;
    let put = |problem, differ: Differ| -> Result<()> {
        let Some(first) = differ.first else {
            return Ok(());
        };
        let finding = Finding::new(problem, place.clone().offset(first / 8));
        let cause = state.report(finding.found(differ.count));
        state.volume.overlay().update(wanted.block, cause, |now| {
            for ((now, old), new) in now.iter_mut().zip(bytes).zip(expected) {
                // One kind of difference at a time, so that each change has its cause.
                *now = match problem {
                    P::BlocksNotMarked | P::InodesNotMarked => *now | !old & new,
                    P::BlocksMarked | P::InodesMarked => *now & (!old | new),
                    _ => *new,
                };
            }
        })?;
        let set = |desc: &mut GroupDesc| set_checksum(desc, is_of_inodes, sum);
        state.volume.update_group(wanted.group, cause, set)
    };
    put(not_marked, Differ::new(bytes, expected, 0..bits))?;
    put(marked, Differ::new(expected, bytes, 0..bits))?;
    let all = u32::try_from(bytes.len()).unwrap_or(0).saturating_mul(8);
    put(padding, Differ::new(bytes, expected, bits..all))
}

/// Bits that one bitmap lacks.
struct Differ {
    count: u32,
    first: Option<u32>,
}

impl Differ {
    /// Those of `range` that `more` has and `less` has not.
    fn new(less: &[u8], more: &[u8], range: std::ops::Range<u32>) -> Self {
        let mut differ = Self {
            count: 0,
            first: None,
        };
        let whole = index(range.start / 8)..index(range.end.div_ceil(8));
        let bytes =
            (range.start / 8..).zip(less.iter().zip(more).take(whole.end).skip(whole.start));
        for (byte, (less, more)) in bytes {
            let lacks = !less & more;
            if lacks == 0 {
                continue;
            }
            for bit in (0..8).filter(|bit| lacks >> bit & 1 != 0) {
                let bit = byte.saturating_mul(8).saturating_add(bit);
                if range.contains(&bit) {
                    differ.count += 1;
                    differ.first.get_or_insert(bit);
                }
            }
        }
        differ
    }
}

/// Compares the descriptor's counts with what is in use.
pub fn counts(state: &State<'_>, group: GroupNr, counted: Counted) -> Result<()> {
    let desc = state.volume.group(group);
    let per_group = state.geometry().inodes_per_group.get();
    let report = |problem, found: u32, right: u32| {
        let finding = Finding::new(problem, Place::group(group));
        state.report(finding.found(found).right(right))
    };
    let right = counted.free_clusters;
    if desc.free_clusters != right {
        let cause = report(GroupProblem::FreeBlocks, desc.free_clusters, right);
        let set = |desc: &mut GroupDesc| desc.free_clusters = right;
        state.volume.update_group(group, cause, set)?;
    }
    let right = counted.free_inodes;
    if desc.free_inodes != right {
        let cause = report(GroupProblem::FreeInodes, desc.free_inodes, right);
        let set = |desc: &mut GroupDesc| desc.free_inodes = right;
        state.volume.update_group(group, cause, set)?;
    }
    let right = counted.directories;
    if desc.used_dirs != right {
        let cause = report(GroupProblem::UsedDirectories, desc.used_dirs, right);
        let set = |desc: &mut GroupDesc| desc.used_dirs = right;
        state.volume.update_group(group, cause, set)?;
    }
    // Without checksums the field says nothing. A smaller number only costs time.
    let right = per_group.saturating_sub(counted.inodes_to_last);
    if state.geometry().desc_checksum != DescChecksum::None && desc.itable_unused > right {
        let cause = report(GroupProblem::TableUnused, desc.itable_unused, right);
        let set = |desc: &mut GroupDesc| desc.itable_unused = right;
        state.volume.update_group(group, cause, set)?;
    }
    Ok(())
}

/// The checksum of a bitmap as the descriptor keeps it; `None` if it keeps none.
pub fn checksum(state: &State<'_>, is_of_inodes: bool, bytes: &[u8]) -> Option<u32> {
    let geometry = state.geometry();
    let bits = match is_of_inodes {
        false => geometry.clusters_per_group,
        true => geometry.inodes_per_group,
    };
    let summed = bytes.get(..summed_bytes(bits.get()))?;
    let seed = geometry.csum_seed?;
    Some(bitmap_checksum(seed, summed, geometry.desc_size.into()))
}

/// Stores such a checksum, if there is one.
pub fn set_checksum(desc: &mut GroupDesc, is_of_inodes: bool, sum: Option<u32>) {
    if let Some(sum) = sum {
        match is_of_inodes {
            false => desc.block_bitmap_csum = sum,
            true => desc.inode_bitmap_csum = sum,
        }
    }
}

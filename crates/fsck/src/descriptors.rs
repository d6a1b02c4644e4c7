//! The group descriptors, and the places of bitmaps and inode tables that they name.
//!
//! A place must lie in the file system, in its group unless `flex_bg` allows another, and no two
//! may overlap, nor the copies of superblock and descriptors. All places are sorted once and
//! walked once; only if one is wrong, `places` looks for a better one: in a backup of the
//! descriptors, where mke2fs would have put it, or in free space. A place that is possible but
//! not the one of the backup is judged by what it holds: see `proofs`.
//!
//! A descriptor whose checksum is wrong keeps its places if they can be; but nothing that would
//! save reading is trusted then, unless a backup says the same.

mod places;
mod proofs;
mod tables;
mod tail;
mod weight;

pub use places::place_of;
pub use proofs::holds_bitmap;
pub use tables::holds_table;

use std::collections::HashSet;

use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, BG_INODE_ZEROED, DescChecksum, GroupDesc, desc_checksum,
};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Pblk};

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::fixed_places::{MetadataOwner, for_each_metadata};
use crate::problem::GroupProblem;
use crate::report::Findings;
use crate::volume::Volume;
use weight::{Weight, weigh};

/// Blocks of metadata at one stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    len: u64,
    owner: MetadataOwner,
}

/// Checks all descriptors and mends them in the overlay.
///
/// # Errors
/// [`crate::Error::NoSpace`] if there is no room for a bitmap or table; of the device and of the
/// overlay.
pub fn run(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let bad_sums = bad_sums(volume)?;
    let groups = volume.groups();
    let mut wrong = wrong_places(volume, &groups)?;
    wrong.extend(proofs::misplaced(volume, &groups, &bad_sums)?);
    wrong.sort_unstable();
    wrong.dedup();
    if !wrong.is_empty() {
        places::mend(volume, findings, &wrong, &bad_sums)?;
    }
    checksums(volume, findings, &bad_sums, &wrong)?;
    flags(volume, findings)
}

/// A descriptor whose checksum does not match, with both sums.
#[derive(Clone, Copy, Debug)]
struct BadSum {
    group: GroupNr,
    found: u16,
    right: u16,
}

/// The descriptors whose checksums do not match, in order.
fn bad_sums(volume: &Volume) -> Result<Vec<BadSum>> {
    let geometry = volume.geometry();
    let mut bad = Vec::new();
    if geometry.desc_checksum == DescChecksum::None {
        return Ok(bad);
    }
    let size = usize::from(geometry.desc_size);
    let mut block = vec![0; geometry.block_size.len()];
    let groups = (0..geometry.groups_count.get()).map(GroupNr);
    for group in groups {
        let at = group.0 % geometry.descs_per_block();
        if at == 0 {
            let from = geometry.gdt_block(group.0 / geometry.descs_per_block());
            volume.overlay().read_block(from, &mut block)?;
        }
        let bytes = &block[index(at) * size..][..size];
        let right = desc_checksum(bytes, group, geometry.desc_checksum);
        let found = GroupDesc::parse(bytes).checksum;
        if found != right {
            bad.push(BadSum {
                group,
                found,
                right,
            });
        }
    }
    Ok(bad)
}

/// The bitmaps and tables whose places cannot be, or overlap others.
fn wrong_places(volume: &Volume, groups: &[GroupDesc]) -> Result<Vec<MetadataOwner>> {
    let geometry = volume.geometry();
    let mut wrong = Vec::new();
    let mut spans = Vec::with_capacity(groups.len().saturating_mul(4));
    for_each_metadata(geometry, groups, |owner, start, len| {
        let is_head = matches!(owner, MetadataOwner::Head(_));
        let fits = is_head || geometry.may_place(owner.group(), start, len);
        if fits {
            let start = start.0;
            spans.push(Span { start, len, owner });
        } else {
            wrong.push(owner);
        }
    });
    spans.sort_unstable_by_key(|span| (span.start, span.owner));
    let mut last: Option<Span> = None;
    for span in spans {
        match last {
            Some(before) if span.start < before.start.saturating_add(before.len) => {
                if gives_way(volume, groups, &before, &span)? {
                    wrong.push(before.owner);
                    last = Some(span);
                } else {
                    wrong.push(span.owner);
                }
            }
            _ => last = Some(span),
        }
    }
    wrong.sort_unstable();
    Ok(wrong)
}

/// Whether of two that overlap it is the first one that is in a wrong place: what lies there
/// decides, then which one is out of line.
fn gives_way(volume: &Volume, groups: &[GroupDesc], before: &Span, span: &Span) -> Result<bool> {
    let is_head = |span: &Span| matches!(span.owner, MetadataOwner::Head(_));
    if is_head(before) || is_head(span) {
        return Ok(!is_head(before));
    }
    let weight_of = |span: &Span| match span.owner {
        MetadataOwner::InodeTable(group) => weigh(volume, group, Pblk(span.start)),
        _ => Ok(Weight::default()),
    };
    let (first, second) = (weight_of(before)?, weight_of(span)?);
    // A bitmap is worked out anew, a table is not.
    if first.outweighs(second) || span.owner.is_bitmap() && first.is_proved() {
        return Ok(false);
    }
    if second.outweighs(first) || before.owner.is_bitmap() && second.is_proved() {
        return Ok(true);
    }
    let usual = |span: &Span| {
        places::usual(volume.geometry(), groups, span.owner) == Some(Pblk(span.start))
    };
    let is_lesser = || span.owner.is_bitmap() && !before.owner.is_bitmap() && !usual(span);
    Ok(!usual(before) && !is_lesser())
}

/// Sums anew what `places` has not written already; `wrong` is what it mended.
fn checksums(
    volume: &Volume,
    findings: &Findings<'_>,
    bad: &[BadSum],
    wrong: &[MetadataOwner],
) -> Result<()> {
    let mended: HashSet<GroupNr> = wrong.iter().map(|owner| owner.group()).collect();
    for sum in bad.iter().filter(|sum| !mended.contains(&sum.group)) {
        let now = volume.group(sum.group);
        let finding = Finding::new(GroupProblem::Checksum, Place::group(sum.group));
        let cause = findings.report(finding.found(sum.found).right(sum.right));
        let as_backup = places::backups(volume, sum.group)?
            .into_iter()
            .any(|backup| {
                GroupDesc {
                    checksum: now.checksum,
                    ..backup.desc
                } == now
            });
        let is_stale = may_be_stale(volume, &now);
        volume.update_group(sum.group, cause, |desc| {
            // One that is as its backup can be believed in all it says.
            if !as_backup {
                read_all_unless(is_stale, desc);
            }
        })?;
    }
    Ok(())
}

/// Whether inodes of an older file system may lie where the table was never zeroed.
fn may_be_stale(volume: &Volume, now: &GroupDesc) -> bool {
    let per_group = volume.geometry().inodes_per_group.get();
    let is_uninit = now.flags & BG_INODE_UNINIT != 0;
    let is_whole = match is_uninit {
        true => now.free_inodes == per_group,
        false => now.itable_unused <= now.free_inodes,
    };
    now.flags & BG_INODE_ZEROED == 0 && is_whole
}

/// Has a group's table read to its end, and its bitmaps: of a table that may be stale only what
/// was in use.
fn read_all_unless(is_stale: bool, desc: &mut GroupDesc) {
    desc.flags &= !BG_BLOCK_UNINIT;
    if !is_stale {
        desc.flags &= !BG_INODE_UNINIT;
        desc.itable_unused = 0;
    }
}

/// What descriptors say of things that were never initialised.
fn flags(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    let geometry = volume.geometry();
    let uninit = BG_BLOCK_UNINIT | BG_INODE_UNINIT;
    let last = geometry.groups_count.get().saturating_sub(1);
    let has_sums = geometry.desc_checksum != DescChecksum::None;
    for (group, desc) in (0..).map(GroupNr).zip(volume.groups()) {
        if !has_sums {
            if desc.flags & uninit != 0 || desc.itable_unused != 0 {
                let finding = Finding::new(GroupProblem::UninitWithoutFeature, Place::group(group));
                volume.update_group(group, findings.report(finding), |desc| {
                    desc.flags &= !uninit;
                    desc.itable_unused = 0;
                })?;
            }
            continue;
        }
        if desc.flags & BG_BLOCK_UNINIT != 0 && group.0 == last {
            let finding = Finding::new(GroupProblem::LastBlockUninit, Place::group(group));
            volume.update_group(group, findings.report(finding), |desc| {
                desc.flags &= !BG_BLOCK_UNINIT;
            })?;
        }
        let per_group = geometry.inodes_per_group.get();
        let is_used = desc.flags & BG_INODE_UNINIT != 0 && desc.free_inodes != per_group;
        if is_used || desc.itable_unused > desc.free_inodes.min(per_group) {
            let finding = Finding::new(GroupProblem::TableUnusedRange, Place::group(group));
            let finding = finding.found(desc.itable_unused).right(desc.free_inodes);
            volume.update_group(group, findings.report(finding), |desc| {
                desc.flags &= !BG_INODE_UNINIT;
                desc.itable_unused = 0;
            })?;
        } else if let Some(used) = tail::used_behind(volume, group)? {
            let unused = per_group.saturating_sub(used);
            let finding = Finding::new(GroupProblem::TableUnusedMarked, Place::group(group));
            let cause = findings.report(finding.found(desc.itable_unused).right(unused));
            volume.update_group(group, cause, |desc| desc.itable_unused = unused)?;
        }
    }
    Ok(())
}

//! Better places for bitmaps and inode tables whose places cannot be.

use std::collections::{BTreeMap, BTreeSet};

use uext4_ondisk::group_desc::{GroupDesc, desc_checksum};
use uext4_ondisk::num::index;
use uext4_ondisk::{Geometry, GroupNr, Pblk};

use super::tables::{SEARCHED_MAX, search};
use super::weight::{Weight, weigh};
use super::{BadSum, may_be_stale, read_all_unless};
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::fixed_places::{MetadataOwner, for_each_metadata};
use crate::problem::GroupProblem;
use crate::report::{Cause, Findings};
use crate::volume::Volume;

/// Most backups of one descriptor that are looked at.
const BACKUPS_MAX: usize = 4;

/// A backup of a descriptor.
pub(super) struct Backup {
    pub(super) desc: GroupDesc,
    block: Pblk,
}

/// The backups of a descriptor whose checksums match.
pub(super) fn backups(volume: &Volume, group: GroupNr) -> Result<Vec<Backup>> {
    let geometry = volume.geometry();
    let size = usize::from(geometry.desc_size);
    let at = index(group.0 % geometry.descs_per_block()) * size;
    let mut bytes = vec![0; geometry.block_size.len()];
    let mut found = Vec::new();
    let copies = geometry.gdt_backups(group.0 / geometry.descs_per_block());
    for block in copies.take(BACKUPS_MAX) {
        if !geometry.contains(block, 1) {
            continue;
        }
        volume.overlay().read_block(block, &mut bytes)?;
        let bytes = &bytes[at..at + size];
        let desc = GroupDesc::parse(bytes);
        if desc.checksum == desc_checksum(bytes, group, geometry.desc_checksum) {
            found.push(Backup { desc, block });
        }
    }
    Ok(found)
}

/// Where mke2fs puts a bitmap or table: behind the group's head, or in a row with those of the
/// other groups of its flex group. `None` where that cannot be known.
pub(super) fn usual(
    geometry: &Geometry,
    groups: &[GroupDesc],
    owner: MetadataOwner,
) -> Option<Pblk> {
    let table = u64::from(geometry.itable_blocks());
    let (group, step, place): (_, _, fn(&GroupDesc) -> Pblk) = match owner {
        MetadataOwner::Head(_) => return None,
        MetadataOwner::BlockBitmap(group) => (group, 1, |desc| desc.block_bitmap),
        MetadataOwner::InodeBitmap(group) => (group, 1, |desc| desc.inode_bitmap),
        MetadataOwner::InodeTable(group) => (group, table, |desc| desc.inode_table),
    };
    if geometry.log_groups_per_flex == 0 {
        let head = geometry.group_base_blocks(group).into();
        let head = geometry.group_start(group).0.checked_add(head)?;
        let skip = match owner {
            MetadataOwner::InodeBitmap(_) => 1,
            MetadataOwner::InodeTable(_) => 2,
            _ => 0,
        };
        return head.checked_add(skip).map(Pblk);
    }
    let at = |nr: u32| groups.get(index(nr)).map(place);
    let flex = |nr: u32| nr.checked_shr(geometry.log_groups_per_flex.into());
    // Both neighbours must agree, if there are two.
    let before = group
        .0
        .checked_sub(1)
        .filter(|&nr| flex(nr) == flex(group.0));
    let before = before
        .and_then(at)
        .and_then(|place| place.0.checked_add(step));
    let after = group
        .0
        .checked_add(1)
        .filter(|&nr| flex(nr) == flex(group.0));
    let after = after
        .and_then(at)
        .and_then(|place| place.0.checked_sub(step));
    match (before, after) {
        (Some(before), Some(after)) if before != after => None,
        (before, after) => before.or(after).map(Pblk),
    }
}

/// Blocks that right metadata has: the end of each piece by its start.
struct Taken {
    pieces: BTreeMap<u64, u64>,
    /// Structures that have no place yet: what is where they are said to be is something else.
    lost: BTreeSet<MetadataOwner>,
    /// Where the next search of the whole file system starts, so that many of them do not walk
    /// the same pieces again.
    resume: u64,
    /// As `resume`, in the search for what the bitmaps show as free: for bitmaps, and for tables.
    resume_free: [u64; 2],
    /// How many blocks may still be read in the search for lost tables.
    budget: u64,
}

impl Taken {
    fn overlaps(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        let before = self.pieces.range(..end).next_back();
        before.is_some_and(|(_, &end)| end > start)
    }

    fn add(&mut self, start: u64, len: u64) {
        self.pieces.insert(start, start.saturating_add(len));
    }

    /// The first `len` blocks from `from` on, and before `end`, that nothing has and that are not
    /// `in_use`.
    fn find(
        &self,
        from: u64,
        end: u64,
        len: u64,
        mut in_use: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        let mut start = from;
        while start.saturating_add(len) <= end {
            let blocked = self.pieces.range(..start.saturating_add(len)).next_back();
            match blocked {
                Some((_, &past)) if past > start => start = past,
                _ => match (start..start.saturating_add(len))
                    .rev()
                    .find(|&at| in_use(at))
                {
                    Some(at) => start = at.saturating_add(1),
                    None => return Some(start),
                },
            }
        }
        None
    }
}

/// Finds a place for each structure in `wrong`, which is sorted, and stores it.
pub(super) fn mend(
    volume: &Volume,
    findings: &Findings<'_>,
    wrong: &[MetadataOwner],
    bad_sums: &[BadSum],
) -> Result<()> {
    let first = u64::from(volume.geometry().first_data_block).saturating_add(1);
    let lost: BTreeSet<MetadataOwner> = wrong.iter().copied().collect();
    let mut taken = Taken {
        pieces: BTreeMap::new(),
        lost: lost.clone(),
        resume: first,
        resume_free: [first; 2],
        budget: SEARCHED_MAX,
    };
    if let Some(block) = crate::mmp::block(volume) {
        taken.add(block.0, 1);
    }
    for_each_metadata(volume.geometry(), &volume.groups(), |owner, start, len| {
        if !lost.contains(&owner) {
            taken.add(start.0, len);
        }
    });
    let groups: BTreeSet<GroupNr> = wrong.iter().map(|owner| owner.group()).collect();
    let mut left = Vec::new();
    for group in groups {
        let parts = parts(group).into_iter().filter(|part| lost.contains(part));
        let parts: Vec<MetadataOwner> = parts.collect();
        let suspect = bad_sums.iter().any(|sum| sum.group == group);
        if !from_backup(volume, findings, &mut taken, &parts, suspect)? {
            left.extend(parts);
        }
    }
    // Tables first: a new bitmap must not be put where one is found.
    left.sort_by_key(|owner| !matches!(owner, MetadataOwner::InodeTable(_)));
    for owner in left {
        relocate(volume, findings, &mut taken, owner)?;
    }
    Ok(())
}

pub(super) fn parts(group: GroupNr) -> [MetadataOwner; 3] {
    [
        MetadataOwner::BlockBitmap(group),
        MetadataOwner::InodeBitmap(group),
        MetadataOwner::InodeTable(group),
    ]
}

/// The field of a descriptor that names the place of a bitmap or table.
pub fn place_of(desc: &mut GroupDesc, owner: MetadataOwner) -> Option<&mut Pblk> {
    match owner {
        MetadataOwner::Head(_) => None,
        MetadataOwner::BlockBitmap(_) => Some(&mut desc.block_bitmap),
        MetadataOwner::InodeBitmap(_) => Some(&mut desc.inode_bitmap),
        MetadataOwner::InodeTable(_) => Some(&mut desc.inode_table),
    }
}

pub(super) fn len_of(geometry: &Geometry, owner: MetadataOwner) -> u64 {
    match owner {
        MetadataOwner::InodeTable(_) => geometry.itable_blocks().into(),
        _ => 1,
    }
}

/// Takes the places of all `parts`, which are of one group, from the first backup in which they
/// can be. Of a descriptor that is wrong as a whole the counts are taken, too.
fn from_backup(
    volume: &Volume,
    findings: &Findings<'_>,
    taken: &mut Taken,
    parts: &[MetadataOwner],
    suspect: bool,
) -> Result<bool> {
    let geometry = volume.geometry();
    let Some(group) = parts.first().map(|part| part.group()) else {
        return Ok(true);
    };
    let fits = |backup: &mut Backup| {
        let mut places = Vec::new();
        for &part in parts {
            let len = len_of(geometry, part);
            let start = *place_of(&mut backup.desc, part)?;
            let among = places
                .iter()
                .any(|&(at, other)| start.0 < at + other && at < start.0 + len);
            if !geometry.may_place(group, start, len) || taken.overlaps(start.0, len) || among {
                return None;
            }
            places.push((start.0, len));
        }
        Some(places)
    };
    let mut backups = backups(volume, group)?;
    let found = backups
        .iter_mut()
        .find_map(|backup| Some((fits(backup)?, backup.block, backup.desc)));
    let Some((places, block, mut backup)) = found else {
        return Ok(false);
    };
    let is_stale = may_be_stale(volume, &volume.group(group));
    let finding = Finding::new(GroupProblem::DescriptorBackup, Place::group(group));
    let cause = findings.report(finding.found(block.0));
    volume.update_group(group, cause, |desc| {
        for &part in parts {
            if let (Some(to), Some(from)) = (place_of(desc, part), place_of(&mut backup, part)) {
                *to = *from;
            }
        }
        if suspect || parts.len() == 3 {
            desc.free_clusters = backup.free_clusters;
            desc.free_inodes = backup.free_inodes;
            desc.used_dirs = backup.used_dirs;
        }
        read_all_unless(is_stale, desc);
    })?;
    for (start, len) in places {
        taken.add(start, len);
    }
    for part in parts {
        taken.lost.remove(part);
    }
    Ok(true)
}

/// Puts one structure where it usually is, if nothing else is there; else into free space.
fn relocate(
    volume: &Volume,
    findings: &Findings<'_>,
    taken: &mut Taken,
    owner: MetadataOwner,
) -> Result<()> {
    let geometry = volume.geometry();
    let group = owner.group();
    let len = len_of(geometry, owner);
    let mut now = volume.group(group);
    let found = place_of(&mut now, owner).map_or(0, |place| place.0);
    let (at, problem) = match (known_place(volume, taken, owner)?, owner) {
        (Some(at), MetadataOwner::InodeTable(_)) => (at, GroupProblem::InodeTablePlace),
        (None, MetadataOwner::InodeTable(_)) => (
            free(volume, taken, group, len)?,
            GroupProblem::InodeTableLost,
        ),
        (usual, owner) => {
            let at = match usual {
                Some(at) => at,
                None => free(volume, taken, group, len)?,
            };
            match owner {
                MetadataOwner::BlockBitmap(_) => (at, GroupProblem::BlockBitmapPlace),
                _ => (at, GroupProblem::InodeBitmapPlace),
            }
        }
    };
    let finding = Finding::new(problem, Place::group(group));
    let cause = findings.report(finding.found(found).right(at.0));
    if problem == GroupProblem::InodeTableLost
        && !move_table(volume, group, Pblk(found), at, cause)?
    {
        findings.empty_table(group);
    }
    taken.add(at.0, len);
    let is_stale = may_be_stale(volume, &volume.group(group));
    volume.update_group(group, cause, |desc| {
        if let Some(place) = place_of(desc, owner) {
            *place = at;
        }
        read_all_unless(is_stale, desc);
    })?;
    if owner == MetadataOwner::BlockBitmap(group) && marks_metadata(volume, group)? {
        // It was there before: what it says of other blocks is worth something.
        taken.lost.remove(&owner);
    }
    Ok(())
}

/// Where a structure usually is, if nothing else is there, or where an inode table was found.
fn known_place(volume: &Volume, taken: &mut Taken, owner: MetadataOwner) -> Result<Option<Pblk>> {
    let geometry = volume.geometry();
    let group = owner.group();
    let len = len_of(geometry, owner);
    let fits = |at: Pblk| geometry.may_place(group, at, len) && !taken.overlaps(at.0, len);
    let usual = usual(geometry, &volume.groups(), owner).filter(|&at| fits(at));
    if !matches!(owner, MetadataOwner::InodeTable(_)) {
        return Ok(usual);
    }
    let weight = usual.map_or(Ok(None), |at| weigh(volume, group, at).map(Some))?;
    // Of zeroes nothing is known, if inodes are to be there.
    let is_empty = volume.group(group).free_inodes >= geometry.inodes_per_group.get();
    if weight.is_some_and(|weight| weight.speaks_for() || is_empty && weight.holds()) {
        return Ok(usual);
    }
    let mut budget = taken.budget;
    let found = search(volume, group, &mut budget, fits)?;
    taken.budget = budget;
    let usual = usual.filter(|_| weight.is_some_and(Weight::holds));
    Ok(found.or(usual))
}

/// Makes an inode table at `to`: of zeroes, or of what lies at its old place. Where that is in the
/// way of something else, it is still worth more than zeroes. Returns whether it was moved.
fn move_table(volume: &Volume, group: GroupNr, old: Pblk, to: Pblk, cause: Cause) -> Result<bool> {
    let geometry = volume.geometry();
    let len = u64::from(geometry.itable_blocks());
    let is_worth_it = geometry.contains(old, len) && weigh(volume, group, old)?.speaks_for();
    let mut bytes = vec![0; geometry.block_size.len()];
    for skip in 0..len {
        if is_worth_it {
            let from = Pblk(old.0.saturating_add(skip));
            volume.overlay().read_block(from, &mut bytes)?;
        }
        let to = Pblk(to.0.saturating_add(skip));
        volume.overlay().replace(to, cause, &bytes)?;
    }
    Ok(is_worth_it)
}

/// Whether the block bitmap of a group marks itself and the group's inode table, as far as they
/// lie in the group.
fn marks_metadata(volume: &Volume, group: GroupNr) -> Result<bool> {
    let geometry = volume.geometry();
    let desc = volume.group(group);
    let none = BTreeSet::new();
    let mut bits = Bits::new(volume, &none);
    let last = u64::from(geometry.itable_blocks().saturating_sub(1));
    let table = desc.inode_table.0;
    let blocks = [desc.block_bitmap.0, table, table.saturating_add(last)];
    let is_here = |block: &u64| {
        let place = geometry.group_of(Pblk(*block));
        place.is_some_and(|(nr, _)| nr == group)
    };
    let marked = blocks.into_iter().filter(is_here).all(|at| bits.in_use(at));
    bits.error.map_or(Ok(marked), Err)
}

/// Blocks that no metadata has, and that the bitmaps show as free: in the group, with `flex_bg`
/// anywhere else, too. Only where they leave no room, they are disregarded: the pass over shared
/// blocks parts what meets there, but a table that is lost was written over it by then.
fn free(volume: &Volume, taken: &mut Taken, group: GroupNr, len: u64) -> Result<Pblk> {
    let geometry = volume.geometry();
    let start = geometry.group_start(group).0;
    let end = start.saturating_add(geometry.blocks_in_group(group).into());
    let mut bits = Bits::new(volume, &taken.lost);
    let first = start.max(u64::from(geometry.first_data_block).saturating_add(1));
    let features = geometry.features.incompat;
    let flex = features.contains(uext4_ondisk::features::Incompat::FLEX_BG);
    let mut found = taken.find(first, end, len, |block| bits.in_use(block));
    if found.is_none() && flex {
        let which = usize::from(len > 1);
        let all = geometry.blocks_count;
        found = taken.find(taken.resume_free[which], all, len, |block| {
            bits.in_use(block)
        });
        taken.resume_free[which] = found.unwrap_or(all);
    }
    if let Some(error) = bits.error.take() {
        return Err(error);
    }
    let found = found
        .or_else(|| taken.find(first, end, len, |_| false))
        .or_else(|| {
            let all = taken.find(taken.resume, geometry.blocks_count, len, |_| false);
            taken.resume = all.unwrap_or(geometry.blocks_count);
            all.filter(|_| flex)
        });
    found.map(Pblk).ok_or(Error::NoSpace {
        what: "a bitmap or an inode table",
    })
}

/// What the bitmaps say, one group's at a time.
struct Bits<'a> {
    volume: &'a Volume,
    lost: &'a BTreeSet<MetadataOwner>,
    group: Option<GroupNr>,
    /// Of `group`; empty if its bitmap is lost, so that all is in use.
    bytes: Vec<u8>,
    error: Option<Error>,
}

impl<'a> Bits<'a> {
    fn new(volume: &'a Volume, lost: &'a BTreeSet<MetadataOwner>) -> Self {
        Self {
            volume,
            lost,
            group: None,
            bytes: Vec::new(),
            error: None,
        }
    }

    fn in_use(&mut self, block: u64) -> bool {
        let geometry = self.volume.geometry();
        let skip = block.saturating_sub(geometry.first_data_block.into());
        let per_group = u64::from(geometry.blocks_per_group.get());
        let group = GroupNr(u32::try_from(skip / per_group).unwrap_or(u32::MAX));
        if self.group != Some(group) {
            self.group = Some(group);
            if let Err(error) = self.load(group) {
                self.error.get_or_insert(error);
            }
        }
        let bit = (skip % per_group) >> geometry.cluster_bits;
        let byte = usize::try_from(bit / 8).ok();
        let byte = byte.and_then(|at| self.bytes.get(at));
        byte.is_none_or(|byte| byte >> (bit % 8) & 1 != 0)
    }

    fn load(&mut self, group: GroupNr) -> Result<()> {
        self.bytes.clear();
        let geometry = self.volume.geometry();
        let bitmap = self.volume.group(group).block_bitmap;
        let is_lost = self.lost.contains(&MetadataOwner::BlockBitmap(group));
        if is_lost || !geometry.may_place(group, bitmap, 1) {
            return Ok(());
        }
        self.bytes.resize(geometry.block_size.len(), 0);
        self.volume.overlay().read_block(bitmap, &mut self.bytes)
    }
}

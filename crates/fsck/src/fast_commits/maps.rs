//! What files map in the end.

use std::collections::BTreeMap;
use std::ops::Range;

use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, EXT_UNWRITTEN_MAX_LEN, Extent};
use uext4_ondisk::fast_commit::End;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::mapping::{MapState, Mapping};
use uext4_ondisk::num::lo16;
use uext4_ondisk::{Ino, Lblk, Pblk};

use super::misfit;
use super::plan::{Fate, Plan};
use crate::error::Result;
use crate::mapping::{self, FileMap, Form, form};
use crate::state::State;

/// The map of an inode, and what of its changes can be made.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The map that it has, if it stays.
    pub old: FileMap,
    /// In the order of logical blocks, without overlap.
    pub changes: Vec<Mapping>,
}

/// Takes the blocks that an inode maps in the end. Blocks that are in use otherwise, or cannot be a
/// file's, are left out.
pub fn claim(state: &State<'_>, plan: &Plan<'_>, ino: Ino, fate: &Fate) -> Result<Claimed> {
    let mut claimed = Claimed::default();
    let old = fate.old.as_ref().filter(|_| fate.end == End::Stays);
    let Some(change) = plan.change(ino, fate) else {
        return Ok(claimed);
    };
    if change.ranges().next().is_none() {
        return Ok(claimed);
    }
    if !matches!(fate.kind, Some(FileType::Regular | FileType::Symlink)) {
        misfit(state, ino);
        return Ok(claimed);
    }
    if let Some(old) = old {
        claimed.old = mapping::read(state, ino, old)?;
    }
    let mut own = Own::new(state, &claimed.old.extents);
    for change in change.ranges() {
        if change.state == MapState::Hole || own.claim(state, &change) {
            claimed.changes.push(change);
        } else {
            misfit(state, ino);
        }
    }
    Ok(claimed)
}

/// The clusters of one file: runs, which do not overlap.
struct Own(BTreeMap<u64, u64>);

impl Own {
    fn new(state: &State<'_>, extents: &[Extent]) -> Self {
        let mut own = Self(BTreeMap::new());
        for extent in extents {
            let clusters = state.used.of_blocks(extent.pblk, extent.len.into());
            let end = own.0.entry(clusters.start).or_default();
            *end = clusters.end.max(*end);
        }
        own
    }

    /// Where a run ends that has this cluster.
    fn end(&self, cluster: u64) -> Option<u64> {
        let (_, &end) = self.0.range(..=cluster).next_back()?;
        Some(end).filter(|&end| end > cluster)
    }

    /// Takes the blocks of a mapping, if all of them are free or the file's already.
    fn claim(&mut self, state: &State<'_>, new: &Mapping) -> bool {
        let geometry = state.geometry();
        let len = u64::from(new.len);
        let is_inside = mapping::is_inside(geometry, new.pblk, len);
        if !is_inside || new.lblk.0.checked_add(new.len).is_none() {
            return false;
        }
        let clusters = state.used.of_blocks(new.pblk, len);
        let mut free: Vec<Range<u64>> = Vec::new();
        let mut at = clusters.start;
        while at < clusters.end {
            if let Some(end) = self.end(at) {
                at = end;
                continue;
            }
            if state.used.contains(at) {
                return false;
            }
            let next = self.0.range(at..).next().map_or(clusters.end, |own| *own.0);
            let end = next.min(clusters.end);
            let end = at.saturating_add(state.used.stretch(at, end).max(1));
            free.push(at..end);
            at = end;
        }
        for run in free {
            self.0.insert(run.start, run.end);
            state.used.add(run, |_| ());
        }
        true
    }
}

/// Gives an inode, whose bytes are stored already, its map in the end.
pub fn store(state: &State<'_>, plan: &Plan<'_>, ino: Ino, claimed: &Claimed) -> Result<()> {
    let bytes = state.volume.read_inode(ino)?;
    let Some(raw) = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok()) else {
        return Ok(());
    };
    if form(state.geometry(), ino, &raw) == Form::None {
        give_back(state, ino, claimed);
        return Ok(());
    }
    let mut extents = merge(&claimed.old.extents, &claimed.changes);
    if FileType::from_mode(raw.i_mode.get()) == Some(FileType::Regular) {
        cut(state, &raw, &mut extents);
    }
    keep_only(state, claimed, &extents);
    mapping::store(state, ino, &claimed.old, &extents, plan.cause())
}

/// Gives back what was claimed for a change that is left out after all.
pub fn give_back(state: &State<'_>, ino: Ino, claimed: &Claimed) {
    if !claimed.changes.is_empty() {
        misfit(state, ino);
        keep_only(state, claimed, &claimed.old.extents);
    }
}

/// Frees what a file had and claimed, but for what it maps now. With clusters of several blocks a
/// part of one may stay: all are freed, then taken again.
fn keep_only(state: &State<'_>, claimed: &Claimed, extents: &[Extent]) {
    for mapping in claimed.changes.iter().filter(is_mapped) {
        state.free(state.used.of_blocks(mapping.pblk, mapping.len.into()));
    }
    for extent in &claimed.old.extents {
        state.free(state.used.of_blocks(extent.pblk, extent.len.into()));
    }
    for extent in extents {
        let clusters = state.used.of_blocks(extent.pblk, extent.len.into());
        state.used.add(clusters, |_| ());
    }
}

fn is_mapped(change: &&Mapping) -> bool {
    change.state != MapState::Hole
}

/// Takes away what lies past the end of a file, if there are data: the file was cut, and only the
/// size was recorded.
fn cut(state: &State<'_>, raw: &RawInode, extents: &mut Vec<Extent>) {
    if !is_past_end(state, raw, extents) {
        return;
    }
    let end = end(state, raw);
    for extent in extents.iter_mut() {
        let left = end.saturating_sub(extent.lblk.0.into());
        extent.len = u16::try_from(left).unwrap_or(u16::MAX).min(extent.len);
    }
    extents.retain(|extent| extent.len > 0);
}

/// Whether a map has data past the end of the file that do not belong there: hashes of contents do.
pub fn is_past_end(state: &State<'_>, raw: &RawInode, extents: &[Extent]) -> bool {
    let end = end(state, raw);
    let is_verity = raw.i_flags.get() & InodeFlags::VERITY.bits() != 0;
    !is_verity
        && extents.iter().any(|extent| {
            let last = u64::from(extent.lblk.0).saturating_add(extent.len.into());
            !extent.unwritten && last > end
        })
}

/// The blocks of a file by its size, in whole clusters.
fn end(state: &State<'_>, raw: &RawInode) -> u64 {
    let geometry = state.geometry();
    let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
    let blocks = geometry.block_size.blocks_for(size);
    blocks.next_multiple_of(1 << geometry.cluster_bits)
}

/// Lays changes over a map. Both are in the order of logical blocks, without overlap.
fn merge(old: &[Extent], changes: &[Mapping]) -> Vec<Extent> {
    let mut parts = Vec::new();
    for extent in old {
        let whole = Mapping::from(*extent);
        let mut at = whole.lblk.0;
        let first = changes.partition_point(|change| change.end() <= at);
        for change in changes.get(first..).unwrap_or_default() {
            if change.lblk.0 >= whole.end() {
                break;
            }
            if change.lblk.0 > at {
                parts.push(whole.part(Lblk(at), change.lblk.0 - at));
            }
            at = change.end().max(at);
        }
        if at < whole.end() {
            parts.push(whole.part(Lblk(at), u32::MAX));
        }
    }
    parts.extend(changes.iter().filter(is_mapped).copied());
    parts.sort_unstable_by_key(|part| part.lblk);
    let mut extents: Vec<Extent> = Vec::new();
    for part in parts {
        push(&mut extents, part);
    }
    extents
}

/// Adds a mapping behind the others, as a part of the last extent if it can be.
fn push(extents: &mut Vec<Extent>, part: Mapping) {
    let unwritten = part.state == MapState::Unwritten;
    let max = match unwritten {
        true => EXT_UNWRITTEN_MAX_LEN,
        false => EXT_INIT_MAX_LEN,
    };
    let mut rest = Some(part);
    while let Some(part) = rest.filter(|part| part.len > 0) {
        let follows = |last: &&mut Extent| {
            let len = u64::from(last.len);
            u64::from(last.lblk.0).saturating_add(len) == u64::from(part.lblk.0)
                && Pblk(last.pblk.0.saturating_add(len)) == part.pblk
                && last.unwritten == unwritten
                && last.len < max
        };
        let taken = match extents.last_mut().filter(follows) {
            Some(last) => {
                let taken = part.len.min((max - last.len).into());
                last.len = last.len.saturating_add(lo16(taken));
                taken
            }
            None => {
                let taken = part.len.min(max.into());
                extents.push(Extent {
                    lblk: part.lblk,
                    len: lo16(taken),
                    pblk: part.pblk,
                    unwritten,
                });
                taken
            }
        };
        let next = Lblk(part.lblk.0.saturating_add(taken));
        rest = (taken < part.len).then(|| part.part(next, u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(lblk: u32, len: u16, pblk: u64) -> Extent {
        Extent {
            lblk: Lblk(lblk),
            len,
            pblk: Pblk(pblk),
            unwritten: false,
        }
    }

    fn written(lblk: u32, len: u32, pblk: u64) -> Mapping {
        Mapping {
            lblk: Lblk(lblk),
            len,
            pblk: Pblk(pblk),
            state: MapState::Written,
        }
    }

    #[test]
    fn changes_are_laid_over_a_map() {
        let old = [extent(0, 10, 100), extent(20, 5, 200)];
        let changes = [
            Mapping::hole(Lblk(2), 2),
            written(8, 4, 300),
            written(12, 1, 304),
            written(22, 1, 202),
        ];
        let expected = [
            extent(0, 2, 100),
            extent(4, 4, 104),
            extent(8, 5, 300),
            extent(20, 5, 200),
        ];
        assert_eq!(merge(&old, &changes), expected);
        assert_eq!(merge(&old, &[Mapping::hole(Lblk(0), u32::MAX)]), []);
        assert_eq!(merge(&[], &[written(1, 40_000, 9)]).len(), 2);
    }
}

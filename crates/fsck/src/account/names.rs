//! The names of directories of both trees.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rustc_hash::FxHashSet;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino};

use super::before::Before;
use super::pair::fields;
use super::{Lost, LostName, SHOWN_MAX, Walked};
use crate::descriptors::holds_bitmap;
use crate::directories::is_dot;
use crate::directories::reread::{self, Source};
use crate::directory_list::Run;
use crate::emptied::Emptied;
use crate::error::Result;
use crate::fixed_places::MetadataOwner;
use crate::mapping;
use crate::state::State;

/// Counts the names that are lost, and the files that went with them.
pub(super) fn count(
    before: &Before<'_>,
    after: &State<'_>,
    walked: &mut Walked,
    emptied: &Emptied,
    lost: &mut Lost,
) -> Result<()> {
    let mut of_tables: BTreeMap<GroupNr, u64> = BTreeMap::new();
    // Directories that do not claim the same blocks have no more.
    let mut blocks = after.geometry().blocks_count;
    for directory in std::mem::take(&mut walked.directories) {
        let mut left = FxHashSet::default();
        if blocks == 0 {
            break;
        }
        for_each(after, directory, &mut { u64::MAX }, |name, ino| {
            left.insert(key(name, ino));
            Ok(())
        })?;
        for_each(&before.state, directory, &mut blocks, |name, ino| {
            if left.contains(&key(name, ino)) || before.settled.contains(&ino) {
                return Ok(());
            }
            let group = after.geometry().inode_group(ino).map(|(group, _)| group);
            let table = group.filter(|group| emptied.tables.contains(group));
            let target = target(&before.state, ino)?;
            if table.is_none() && target == Target::Unused {
                return Ok(());
            }
            lost.names += 1;
            if let Target::Value(bytes) = target {
                lost.files += 1;
                lost.bytes += bytes;
            }
            if let Some(bytes) = walked.gone.remove(&ino) {
                lost.files += 1;
                lost.bytes += bytes;
            }
            match table {
                Some(group) => *of_tables.entry(group).or_default() += 1,
                None => lost.with_structures += u64::from(emptied.root && directory == Ino::ROOT),
            }
            if lost.shown.len() < SHOWN_MAX {
                lost.shown.push(LostName {
                    directory,
                    name: name.to_vec(),
                    ino,
                });
            }
            Ok(())
        })?;
    }
    for &group in &emptied.tables {
        let named = of_tables.get(&group).copied().unwrap_or(0);
        let in_use = match marked(&before.state, group)? {
            Some(marked) => marked,
            None => left_over(&before.state, group),
        };
        lost.with_structures += named.max(in_use);
    }
    Ok(())
}

/// How many inodes of a group the bitmap shows in use. `None` if it is not the one that was stored
/// with the descriptor.
fn marked(state: &State<'_>, group: GroupNr) -> Result<Option<u64>> {
    let geometry = state.geometry();
    let desc = state.volume.group(group);
    let (owner, place) = (MetadataOwner::InodeBitmap(group), desc.inode_bitmap);
    let is_there = place.0 != 0 && geometry.contains(place, 1);
    if !is_there || !holds_bitmap(&state.volume, owner, &desc, place)? {
        return Ok(None);
    }
    let mut bytes = vec![0; geometry.block_size.len()];
    state.volume.overlay().read_block(place, &mut bytes)?;
    let first = match group.0 {
        0 => geometry.first_ino.saturating_sub(1),
        _ => 0,
    };
    let is_set = |&bit: &u32| {
        let byte = bytes.get(index(bit / 8));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
    };
    let bits = first..geometry.inodes_per_group.get();
    Ok(Some(bits.filter(is_set).count() as u64))
}

/// How many inodes of a group may be in use, where neither its table nor its bitmap is left: as
/// many as the superblock counts beyond those of all other groups. At least one: what cannot be
/// counted is not taken for nothing.
fn left_over(state: &State<'_>, group: GroupNr) -> u64 {
    let geometry = state.geometry();
    let free = u64::from(state.volume.superblock().s_free_inodes_count.get());
    let in_use = u64::from(geometry.inodes_count).saturating_sub(free);
    let groups = state.volume.groups();
    let others = (0..).map(GroupNr).zip(&groups);
    let others = others.filter(|&(other, _)| other != group);
    let elsewhere: u64 = others
        .map(|(_, desc)| {
            geometry
                .inodes_per_group
                .get()
                .saturating_sub(desc.free_inodes)
        })
        .map(u64::from)
        .sum();
    let reserved = u64::from(geometry.first_ino.saturating_sub(1));
    let left = in_use.saturating_sub(elsewhere).saturating_sub(reserved);
    left.clamp(1, geometry.inodes_per_group.get().into())
}

/// A key for a name and what it leads to.
fn key(name: &[u8], ino: Ino) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, ino).hash(&mut hasher);
    hasher.finish()
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Nothing that is in use.
    Unused,
    /// An inode with a link, whatever it is: what is damaged may be a file all the same.
    Used,
    /// The value of an attribute, of so many bytes: by this name, and no other, it was a file.
    Value(u64),
}

fn target(state: &State<'_>, ino: Ino) -> Result<Target> {
    let bytes = state.volume.read_inode(ino)?;
    let raw = bytes.and_then(|bytes| fields(ino, &bytes));
    let in_use = raw.filter(|raw| raw.i_links_count.get() != 0);
    let Some(raw) = in_use.filter(|_| ino.0 >= state.geometry().first_ino) else {
        return Ok(Target::Unused);
    };
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let features = state.geometry().features.incompat;
    match features.contains(Incompat::EA_INODE) && flags.contains(InodeFlags::EA_INODE) {
        true => Ok(Target::Value(raw.i_size_lo.get().into())),
        false => Ok(Target::Used),
    }
}

/// Calls `each` with the names of a directory, as far as they can be read; with none if the inode
/// is none. Takes its blocks off `left`.
fn for_each(
    state: &State<'_>,
    ino: Ino,
    left: &mut u64,
    mut each: impl FnMut(&[u8], Ino) -> Result<()>,
) -> Result<()> {
    let bytes = state.volume.read_inode(ino)?;
    let Some(raw) = bytes.and_then(|bytes| fields(ino, &bytes)) else {
        return Ok(());
    };
    let is_directory = FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory);
    if !is_directory || raw.i_links_count.get() == 0 {
        return Ok(());
    }
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let mut runs = Vec::new();
    let source = match mapping::form(state.geometry(), ino, &raw) {
        mapping::Form::None if flags.contains(InodeFlags::INLINE_DATA) => Source::Inline,
        _ => {
            let map = mapping::read(state, ino, &raw)?;
            let run = |extent: &uext4_ondisk::extent::Extent| Run {
                lblk: extent.lblk,
                pblk: extent.pblk,
                len: extent.len.into(),
            };
            runs.extend(map.extents.iter().map(run));
            let blocks = map.extents.iter().map(|extent| u64::from(extent.len));
            *left = left.saturating_sub(blocks.sum());
            let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
            let blocks = state.geometry().block_size.blocks_for(size);
            Source::Blocks {
                runs: &runs,
                blocks,
            }
        }
    };
    reread::for_each(state, ino, source, |seen| match is_dot(seen.name) {
        true => Ok(()),
        false => each(seen.name, seen.ino),
    })
}

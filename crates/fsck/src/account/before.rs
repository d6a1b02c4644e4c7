//! The file system as it was found, with its journal replayed: what can be read of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};
use uext4_redo::FoundLog;

use crate::descriptors;
use crate::error::{Error, Result};
use crate::fixed_places::MetadataOwner;
use crate::options::Options;
use crate::overlay::Overlay;
use crate::redo::read_through;
use crate::report::{Cause, Findings};
use crate::state::State;
use crate::superblock;
use crate::volume::Volume;

/// The file system as it was found.
pub struct Before<'a> {
    pub state: State<'a>,
    /// Blocks that files may have and that read otherwise afterwards.
    pub changed: BTreeSet<u64>,
    /// Inodes and directories that fast commits change: what they say is no loss.
    pub settled: BTreeSet<Ino>,
}

/// The file system that the changes of an overlay lead to.
pub fn volume(overlay: Overlay, options: &Options) -> Result<Volume> {
    let superblock = primary(&overlay)?;
    let geometry = shape_of(&superblock)?;
    superblock::volume(overlay, geometry, superblock, options)
}

fn primary(overlay: &Overlay) -> Result<SuperBlock> {
    let mut bytes = [0; 1024];
    overlay.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    SuperBlock::parse(&bytes).map_err(|damage| Error::NotExt4 {
        why: damage.to_string(),
    })
}

fn shape_of(superblock: &SuperBlock) -> Result<Geometry> {
    Geometry::new(superblock).map_err(|damage| Error::NotExt4 {
        why: damage.to_string(),
    })
}

impl<'a> Before<'a> {
    /// Reads through the same journal or redo log again. The shape is that of `after`; the places
    /// of tables are those that were found, where they can be. `None` if it cannot be read.
    pub fn new(
        device: &Arc<dyn BlockDevice>,
        options: &'a Options,
        silent: &'a Findings<'a>,
        after: &State<'_>,
    ) -> Result<Option<Self>> {
        let size = after.geometry().block_size;
        let overlay = Overlay::new(Arc::clone(device), size, options.memory / 8);
        if let Some(FoundLog::Unfinished(repair)) = FoundLog::find(&**device)? {
            read_through(&repair, &overlay, Cause(0))?;
        }
        let superblock = after.volume.superblock();
        if superblock::block_size(device, options).is_err() {
            superblock::put(&overlay, Cause(0), &superblock)?;
        }
        let opened = match superblock::replayed(overlay, options, silent) {
            Ok((opened, _)) => opened,
            Err(error @ (Error::Device(_) | Error::Spill(_) | Error::Cancelled)) => {
                return Err(error);
            }
            Err(_) => return Ok(None),
        };
        let settled = opened.fast_commits.as_ref();
        let settled = settled.map(|commits| commits.inodes()).unwrap_or_default();
        let overlay = opened.volume.into_overlay();
        let found = superblock::volume(overlay, after.geometry().clone(), superblock, options)?;
        let groups = groups(&found, after);
        let geometry = found.geometry().clone();
        let volume = Volume::new(found.into_overlay(), geometry, superblock, groups);
        let state = State::new(options, silent, volume);
        crate::inodes::claim_metadata(&state);
        let changed = changed(&state, after)?;
        Ok(Some(Self {
            state,
            changed,
            settled,
        }))
    }
}

/// The descriptors as they were found; of tables whose places cannot be, with those of afterwards.
fn groups(found: &Volume, after: &State<'_>) -> Vec<GroupDesc> {
    let geometry = found.geometry();
    let len = geometry.itable_blocks().into();
    let mut groups = found.groups();
    for (group, desc) in (0..).map(GroupNr).zip(&mut groups) {
        let right = after.volume.group(group);
        let table = MetadataOwner::InodeTable(group);
        let is_possible = geometry.may_place(group, desc.inode_table, len);
        if let (Some(place), false) = (descriptors::place_of(desc, table), is_possible) {
            *place = right.inode_table;
        }
        // Of inodes that count as never used nothing would be read.
        desc.flags &= right.flags;
        desc.itable_unused = desc.itable_unused.min(right.itable_unused);
    }
    groups
}

/// The blocks that a file may have had and that read otherwise afterwards.
fn changed(before: &State<'_>, after: &State<'_>) -> Result<BTreeSet<u64>> {
    let mut changed = BTreeSet::new();
    let size = before.geometry().block_size.len();
    let (mut was, mut is) = (vec![0; size], vec![0; size]);
    let numbers = after.volume.overlay().changed_blocks();
    for block in numbers.into_iter().map(Pblk) {
        if before.is_metadata(block) && after.is_metadata(block) {
            continue;
        }
        before.volume.overlay().read_block(block, &mut was)?;
        after.volume.overlay().read_block(block, &mut is)?;
        if was != is {
            changed.insert(block.0);
        }
    }
    Ok(changed)
}

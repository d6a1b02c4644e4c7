//! The inodes of both trees, table by table.

use std::collections::BTreeSet;

use uext4_ondisk::extent::Extent;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::before::Before;
use super::pair::{Pair, fields};
use super::{Lost, Walked, attributes, contents};
use crate::error::{Error, Result};
use crate::mapping::{self, Buffers, Form, Spot, Visitor};
use crate::memory::READ_MAX;
use crate::problem::MappingProblem;
use crate::report::Findings;
use crate::state::State;

/// Compares the inodes of all groups.
pub(super) fn inodes(
    before: &Before<'_>,
    after: &State<'_>,
    findings: &Findings<'_>,
    lost: &mut Lost,
) -> Result<Walked> {
    let mut walk = Walk {
        before,
        after,
        lost,
        walked: Walked::default(),
        buffers: Buffers::default(),
        budget: contents::Budget::default(),
    };
    for group in (0..after.geometry().groups_count.get()).map(GroupNr) {
        if findings.observer().is_cancelled() {
            return Err(Error::Cancelled);
        }
        walk.group(group)?;
    }
    walk.walked.directories.sort_unstable();
    walk.walked.directories.dedup();
    Ok(walk.walked)
}

struct Walk<'w, 'a> {
    before: &'w Before<'a>,
    after: &'w State<'a>,
    lost: &'w mut Lost,
    walked: Walked,
    buffers: Buffers,
    budget: contents::Budget,
}

/// Sees whether a map leads to blocks that change.
struct Touched<'t> {
    changed: &'t BTreeSet<u64>,
    is_any: bool,
    nodes: &'t mut u64,
}

impl Touched<'_> {
    fn see(&mut self, start: Pblk, len: u64) {
        let blocks = start.0..start.0.saturating_add(len);
        self.is_any |= self.changed.range(blocks).next().is_some();
    }
}

impl Visitor for Touched<'_> {
    fn node(&mut self, block: Pblk) -> bool {
        *self.nodes = self.nodes.saturating_sub(1);
        self.see(block, 1);
        !self.is_any && *self.nodes > 0
    }

    fn extent(&mut self, extent: Extent) {
        self.see(extent.pblk, extent.len.into());
    }

    fn problem(&mut self, _problem: MappingProblem, _spot: Spot) {}
}

impl Walk<'_, '_> {
    fn group(&mut self, group: GroupNr) -> Result<()> {
        let geometry = self.after.geometry();
        let size = usize::from(geometry.inode_size);
        let per_group = geometry.inodes_per_group.get();
        let (was, is) = (&self.before.state.volume, &self.after.volume);
        let tables = [was.group(group).inode_table, is.group(group).inode_table];
        let len = geometry.itable_blocks().into();
        if tables
            .iter()
            .any(|&table| table.0 == 0 || !geometry.contains(table, len))
        {
            return Ok(());
        }
        let used = was.inodes_ever_used(group).max(is.inodes_ever_used(group));
        let per_piece = (READ_MAX / size).max(1);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let (mut at, used) = (0, index(used));
        while at < used {
            let count = (used - at).min(per_piece);
            old.resize(count * size, 0);
            new.resize(count * size, 0);
            let offset = |table: Pblk| {
                (table.0 << geometry.block_size.log2()).saturating_add((at * size) as u64)
            };
            was.overlay().read_at(offset(tables[0]), &mut old)?;
            is.overlay().read_at(offset(tables[1]), &mut new)?;
            // Maps lead to what else can differ.
            if old != new || !self.before.changed.is_empty() {
                let first = u64::from(group.0) * u64::from(per_group) + 1 + at as u64;
                let pairs = old.chunks_exact(size).zip(new.chunks_exact(size));
                for (ino, (old, new)) in (first..).zip(pairs) {
                    let ino = Ino(u32::try_from(ino).unwrap_or(u32::MAX));
                    self.inode(ino, old, new)?;
                }
            }
            at += count;
        }
        Ok(())
    }

    fn inode(&mut self, ino: Ino, old: &[u8], new: &[u8]) -> Result<()> {
        if !self.is_ordinary(ino) || old.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let Some(was) = self.in_use(ino, old) else {
            return Ok(());
        };
        let is = self.in_use(ino, new);
        let Some(is) = is.filter(|is| FileType::from_mode(is.i_mode.get()).is_some()) else {
            let bytes = contents::readable(&self.before.state, ino, &was, &mut self.budget)?;
            self.walked.gone.insert(ino, bytes);
            if is_directory(&was) {
                self.walked.directories.push(ino);
            }
            return Ok(());
        };
        let is_same = old == new;
        let pair = Pair {
            ino,
            was,
            was_bytes: old,
            is,
            is_bytes: new,
        };
        let differs = !is_same || self.has_changed_blocks(ino, &was)?;
        let has_changed_attributes = || -> Result<bool> {
            let block = Pblk(attributes::block_of(&was));
            let is_changed = !is_same || self.before.changed.contains(&block.0);
            // Of extra fields that cannot be nothing is known.
            let is_known = RawInode::parse(old, ino).is_ok();
            Ok(is_known
                && is_changed
                && attributes::are_lost(&self.before.state, self.after, &pair)?)
        };
        self.lost.attributes += u64::from(has_changed_attributes()?);
        if !differs {
            return Ok(());
        }
        if is_directory(&was) {
            self.walked.directories.push(ino);
            return Ok(());
        }
        self.lost.bytes += contents::lost(self.before, self.after, &pair, &mut self.budget)?;
        Ok(())
    }

    /// Whether an inode is one of those that have names.
    fn is_ordinary(&self, ino: Ino) -> bool {
        let superblock = self.after.volume.superblock();
        let named = [
            superblock.s_journal_inum.get(),
            superblock.s_usr_quota_inum.get(),
            superblock.s_grp_quota_inum.get(),
            superblock.s_prj_quota_inum.get(),
            superblock.s_orphan_file_inum.get(),
        ];
        let is_reserved = ino.0 < self.after.geometry().first_ino && ino != Ino::ROOT;
        !is_reserved && !named.contains(&ino.0) && !self.before.settled.contains(&ino)
    }

    /// The fields of an inode that has a link, whatever its type.
    fn in_use(&self, ino: Ino, bytes: &[u8]) -> Option<RawInode> {
        let raw = fields(ino, bytes)?;
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let features = self.after.geometry().features.incompat;
        let is_value =
            features.contains(Incompat::EA_INODE) && flags.contains(InodeFlags::EA_INODE);
        (raw.i_links_count.get() != 0 && !is_value).then_some(raw)
    }

    /// Whether any block that the map leads to, or that holds a part of it, changes.
    fn has_changed_blocks(&mut self, ino: Ino, raw: &RawInode) -> Result<bool> {
        let changed = &self.before.changed;
        let state = &self.before.state;
        if changed.is_empty()
            || self.budget.nodes == 0
            || mapping::form(state.geometry(), ino, raw) == Form::None
        {
            return Ok(false);
        }
        let mut touched = Touched {
            changed,
            is_any: false,
            nodes: &mut self.budget.nodes,
        };
        mapping::walk(state, ino, raw, &mut self.buffers, &mut touched)?;
        Ok(touched.is_any)
    }
}

fn is_directory(raw: &RawInode) -> bool {
    FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory)
}

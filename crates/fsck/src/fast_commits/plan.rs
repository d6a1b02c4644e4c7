//! What fast commits make of each inode, found before anything changes.

use std::collections::BTreeMap;

use uext4_ondisk::Ino;
use uext4_ondisk::fast_commit::{ChangedInode, ChangedNames};
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode};

use super::{misfit, misfit_name};
use crate::directories::inline::InlineRecords;
use crate::directories::reread::{self, Source, Spot};
use crate::error::Result;
use crate::inode_map::Kind;
use crate::journal::FastCommits;
use crate::rebuild::Old;
use crate::report::Cause;
use crate::state::State;

/// What becomes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It is not in use, before or after; or nothing that is said of it fits.
    #[default]
    Nothing,
    /// It is made; one that had its number is not in use any more.
    New,
    /// It was there and stays.
    Stays,
    /// It has no name any more.
    Dies,
}

/// Names of an inode among those that change.
#[derive(Clone, Copy, Debug, Default)]
struct Names {
    count: u32,
    /// The directory of one of them.
    dir: Ino,
}

impl Names {
    fn add(&mut self, dir: Ino) {
        self.count = self.count.saturating_add(1);
        self.dir = dir;
    }
}

/// The plan for one inode.
#[derive(Debug, Default)]
pub struct Fate {
    /// The inode, if the number is in use.
    pub old: Option<RawInode>,
    pub end: End,
    /// Its type in the end.
    pub kind: Option<FileType>,
    before: Names,
    after: Names,
    /// Directories in it that come, less those that go.
    subdirs: i64,
    /// It was made by these commits.
    is_created: bool,
    /// What was recorded of it is left out.
    is_misfit: bool,
}

impl Fate {
    /// Whether the number comes into use.
    pub fn is_new_number(&self) -> bool {
        self.end == End::New && self.old.is_none()
    }

    fn is_dir(&self) -> bool {
        self.kind == Some(FileType::Directory)
    }

    /// Its link count in the end.
    pub fn links(&self) -> u16 {
        let old = self.old.map_or(0, |old| old.i_links_count.get());
        let links = match self.end {
            End::Nothing | End::Dies => 0,
            End::New if self.is_dir() => self.subdirs.saturating_add(2),
            End::New => self.after.count.into(),
            // The kernel stores one link of a directory that has had too many.
            End::Stays if self.is_dir() && old == 1 => 1,
            End::Stays if self.is_dir() => self.subdirs.saturating_add(old.into()).max(2),
            End::Stays => self.file_links(),
        };
        u16::try_from(links.max(0)).unwrap_or(u16::MAX)
    }

    /// The links of a file that was there.
    fn file_links(&self) -> i64 {
        let old = self.old.map_or(0, |old| old.i_links_count.get());
        let after = i64::from(self.after.count);
        match self.is_created {
            // All names of what these commits made are in them.
            true => after,
            false => after
                .saturating_add(old.into())
                .saturating_sub(self.before.count.into()),
        }
    }
}

/// A directory whose names change.
#[derive(Debug)]
pub struct NamesChange<'a> {
    /// Name → its inode in the end.
    pub changed: &'a ChangedNames,
    /// Those of them that are there: what they name, and where.
    pub present: BTreeMap<Vec<u8>, (Ino, Spot)>,
    /// What `..` names.
    pub parent: Option<Ino>,
}

/// All inodes and names that fast commits speak of.
pub struct Plan<'a> {
    fast_commits: &'a FastCommits,
    fates: BTreeMap<Ino, Fate>,
    names: BTreeMap<Ino, NamesChange<'a>>,
}

impl<'a> Plan<'a> {
    /// Looks up everything.
    pub fn new(state: &State<'_>, fast_commits: &'a FastCommits) -> Result<Self> {
        let mut plan = Self {
            fast_commits,
            fates: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        for ino in fast_commits.changes.all_inodes().into_keys() {
            if !plan.meet(state, ino)? {
                misfit(state, ino);
            }
        }
        for (dir, changed) in fast_commits.changes.all_names() {
            plan.look_up(state, dir, changed)?;
        }
        let inodes: Vec<Ino> = plan.fates.keys().copied().collect();
        for ino in inodes {
            plan.judge(state, ino);
        }
        plan.count_subdirs();
        Ok(plan)
    }

    /// The finding that the changes follow from.
    pub fn cause(&self) -> Cause {
        self.fast_commits.cause
    }

    /// All inodes, by number.
    pub fn fates(&self) -> impl Iterator<Item = (Ino, &Fate)> {
        self.fates.iter().map(|(ino, fate)| (*ino, fate))
    }

    /// The directories with changed names.
    pub fn names(&self) -> impl Iterator<Item = (Ino, &NamesChange<'a>)> {
        self.names.iter().map(|(ino, names)| (*ino, names))
    }

    /// What was recorded of an inode that is there in the end.
    pub fn change(&self, ino: Ino, fate: &Fate) -> Option<&'a ChangedInode> {
        let change = self.fast_commits.changes.changed(ino);
        let is_there = matches!(fate.end, End::New | End::Stays) && !fate.is_misfit;
        change.filter(|_| is_there)
    }

    /// The directory that a new directory is in.
    pub fn parent(&self, ino: Ino) -> Ino {
        let change = self.fast_commits.changes.changed(ino);
        let first = change.and_then(|change| change.parent);
        let fate = self.fates.get(&ino);
        let last = fate.filter(|fate| fate.after.count > 0);
        last.map(|fate| fate.after.dir)
            .or(first)
            .unwrap_or(Ino::ROOT)
    }

    /// Reads an inode, once. False if fast commits cannot speak of it.
    fn meet(&mut self, state: &State<'_>, ino: Ino) -> Result<bool> {
        if self.fates.contains_key(&ino) {
            return Ok(true);
        }
        let geometry = state.geometry();
        let is_own = ino.0 < geometry.first_ino && ino != Ino::ROOT;
        if is_own || ino.0 > geometry.inodes_count {
            return Ok(false);
        }
        let known = state.inodes.get(ino);
        let old = match known.kind {
            Kind::Reserved => return Ok(false),
            _ if known.is_ea_inode => return Ok(false),
            Kind::Unused => None,
            Kind::File(_) => {
                let bytes = state.volume.read_inode(ino)?;
                let raw = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
                raw.map(|raw| self.fast_commits.with_own_links(ino, raw))
            }
        };
        if old.is_none() && state.volume.inode_place(ino).is_none() {
            return Ok(false);
        }
        let change = self.fast_commits.changes.changed(ino);
        let fate = Fate {
            old,
            is_created: change.is_some_and(|change| change.parent.is_some()),
            ..Fate::default()
        };
        self.fates.insert(ino, fate);
        Ok(true)
    }

    /// Finds the changed names that a directory has, and counts names.
    fn look_up(&mut self, state: &State<'_>, dir: Ino, changed: &'a ChangedNames) -> Result<()> {
        if !self.meet(state, dir)? {
            misfit(state, dir);
            return Ok(());
        }
        let mut names = NamesChange {
            changed,
            present: BTreeMap::new(),
            parent: None,
        };
        let kind = state.inodes.get(dir).kind;
        let old = match kind == Kind::File(FileType::Directory) {
            true => Old::read(state, dir)?,
            false => None,
        };
        if let Some(old) = &old {
            if let Source::Inline = old.source() {
                names.parent = InlineRecords::read(state, dir)?.map(|inline| inline.parent);
            }
            reread::for_each(state, dir, old.source(), |seen| {
                if seen.name == b".." {
                    names.parent = Some(seen.ino);
                } else if changed.contains_key(seen.name) && seen.name != b"." {
                    let there = (seen.ino, seen.spot);
                    names.present.entry(seen.name.to_vec()).or_insert(there);
                }
                Ok(())
            })?;
        }
        for &(ino, _) in names.present.values() {
            if self.meet(state, ino)?
                && let Some(fate) = self.fates.get_mut(&ino)
            {
                fate.before.add(dir);
            }
        }
        for (name, now) in changed {
            let Some(ino) = *now else {
                continue;
            };
            if !is_name(name) || !self.meet(state, ino)? {
                misfit_name(state, dir, name);
            } else if let Some(fate) = self.fates.get_mut(&ino) {
                fate.after.add(dir);
            }
        }
        self.names.insert(dir, names);
        Ok(())
    }

    /// Determines what becomes of an inode.
    fn judge(&mut self, state: &State<'_>, ino: Ino) {
        let change = self.fast_commits.changes.changed(ino);
        let raw = change.and_then(|change| change.raw.as_deref());
        let raw = raw.and_then(|raw| RawInode::parse(raw.get(..GOOD_OLD_INODE_SIZE)?, ino).ok());
        let Some(fate) = self.fates.get_mut(&ino) else {
            return;
        };
        let kind = raw.and_then(|raw| FileType::from_mode(raw.i_mode.get()));
        let new_kind = kind.filter(|_| !raw.is_some_and(|raw| has(&raw, STRANGE)));
        let has_names = fate.after.count > 0;
        (fate.end, fate.kind) = match fate.old {
            None if !has_names => (End::Nothing, None),
            None => match new_kind {
                Some(kind) => (End::New, Some(kind)),
                None => (End::Nothing, None),
            },
            Some(old) => {
                let old_kind = FileType::from_mode(old.i_mode.get());
                let is_another = raw.is_some_and(|raw| raw.i_generation != old.i_generation);
                let dir = Some(FileType::Directory);
                let can_replace = fate.is_created && new_kind != dir && old_kind != dir;
                fate.kind = old_kind;
                let left = match fate.is_dir() {
                    true => fate.before.count == 0 || has_names,
                    false => fate.file_links() > 0,
                };
                match (is_another, new_kind) {
                    (true, Some(kind)) if can_replace && has_names => (End::New, Some(kind)),
                    _ if ino == Ino::ROOT => (End::Stays, old_kind),
                    (true, _) if can_replace && !has_names => (End::Dies, old_kind),
                    _ if left => (End::Stays, old_kind),
                    _ => (End::Dies, old_kind),
                }
            }
        };
        let is_same = fate.kind == kind && (fate.end == End::New || is_of(fate, raw));
        let is_there = matches!(fate.end, End::New | End::Stays);
        fate.is_misfit = is_there && raw.is_some() && !is_same;
        if fate.is_misfit {
            misfit(state, ino);
        }
    }

    /// Counts the directories that come into directories and go from them.
    fn count_subdirs(&mut self) {
        let mut moves: Vec<(Ino, i64)> = Vec::new();
        for fate in self.fates.values().filter(|fate| fate.is_dir()) {
            if fate.before.count > 0 {
                moves.push((fate.before.dir, -1));
            }
            if fate.after.count > 0 {
                moves.push((fate.after.dir, 1));
            }
        }
        for (dir, count) in moves {
            if let Some(fate) = self.fates.get_mut(&dir) {
                fate.subdirs = fate.subdirs.saturating_add(count);
            }
        }
    }
}

/// Flags of inodes that no fast commit makes.
const STRANGE: InodeFlags = InodeFlags::EA_INODE
    .union(InodeFlags::VERITY)
    .union(InodeFlags::ENCRYPT);

fn has(raw: &RawInode, flags: InodeFlags) -> bool {
    InodeFlags::from_bits_retain(raw.i_flags.get()).intersects(flags)
}

/// Whether what was recorded is of the inode that is there.
fn is_of(fate: &Fate, raw: Option<RawInode>) -> bool {
    let old = fate.old.map(|old| old.i_generation);
    raw.map(|raw| raw.i_generation) == old
}

/// Whether a directory can hold a name.
pub fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

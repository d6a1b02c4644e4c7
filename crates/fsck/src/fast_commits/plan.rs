//! What fast commits make of each inode, found before anything changes.

use std::collections::BTreeMap;

use uext4_ondisk::Ino;
use uext4_ondisk::fast_commit::{ChangedInode, ChangedNames, End, Names};
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode};

use super::{misfit, misfit_name};
use crate::directories::inline::InlineRecords;
use crate::directories::is_dot;
use crate::directories::reread::{self, Source, Spot};
use crate::error::Result;
use crate::inode_map::Kind;
use crate::journal::FastCommits;
use crate::rebuild::Old;
use crate::report::Cause;
use crate::state::State;

/// The plan for one inode.
#[derive(Debug, Default)]
pub struct Fate {
    /// The inode, if the number is in use.
    pub old: Option<RawInode>,
    pub end: End,
    /// Its type in the end.
    pub kind: Option<FileType>,
    /// What was recorded of it, its first fields.
    pub recorded: Option<RawInode>,
    /// The names that it has.
    counted: u16,
    before: Names,
    after: Names,
    /// Directories in it that come, less those that go.
    subdirs: i64,
    /// It was made by these commits.
    is_created: bool,
    /// The one that was made takes the number from one that has no name left.
    replaces: bool,
    /// It was given a name in what is no directory.
    is_stray: bool,
}

impl Fate {
    /// How many directories more there are.
    pub fn more_directories(&self) -> i32 {
        i32::from(self.is_dir()) - i32::from(self.was_dir())
    }

    fn is_dir(&self) -> bool {
        self.kind == Some(FileType::Directory)
    }

    fn was_dir(&self) -> bool {
        self.old.and_then(kind_of) == Some(FileType::Directory)
    }

    /// The type that was recorded, if fast commits can make such an inode.
    fn new_kind(&self) -> Option<FileType> {
        let raw = self.recorded.filter(|raw| !has(raw, STRANGE));
        raw.and_then(kind_of)
    }

    /// Whether what was recorded, if anything, is of the inode that is there.
    fn is_same(&self) -> bool {
        let (Some(old), Some(raw)) = (self.old, self.recorded) else {
            return true;
        };
        raw.i_generation == old.i_generation && kind_of(raw) == kind_of(old)
    }

    /// Whether the number may have been used again.
    fn is_another(&self) -> bool {
        let old = self.old.map(|old| old.i_generation);
        let new = self.recorded.map(|raw| raw.i_generation);
        self.is_created && old.is_some() && old != new && self.new_kind().is_some()
    }

    /// Whether names can be of it.
    fn can_be_named(&self) -> bool {
        match self.old {
            None => self.new_kind().is_some(),
            Some(_) => self.replaces || self.is_same(),
        }
    }

    /// Whether it is a directory that fast commits change. Names in a directory of encrypted names
    /// are not recorded.
    fn takes_names(&self) -> bool {
        match self.old {
            Some(old) if !self.replaces => self.was_dir() && !has(&old, InodeFlags::ENCRYPT),
            _ => self.new_kind() == Some(FileType::Directory),
        }
    }

    /// Its link count in the end.
    pub fn links(&self) -> u16 {
        let old = self.old.map_or(0, |old| old.i_links_count.get());
        let links = match self.end {
            End::Nothing | End::Dies => 0,
            End::New if self.is_dir() => self.subdirs.saturating_add(2),
            End::New => self.after.count.max(1).into(),
            // The kernel stores one link of a directory that has had too many.
            End::Stays if self.is_dir() && old == 1 => 1,
            End::Stays if self.is_dir() => self.subdirs.saturating_add(old.into()).max(2),
            End::Stays if self.before.count == 0 && self.after.count == 0 => old.into(),
            End::Stays => self.file_links(),
        };
        u16::try_from(links.max(0)).unwrap_or(u16::MAX)
    }

    /// The names of a file that was there.
    fn file_links(&self) -> i64 {
        i64::from(self.after.count)
            .saturating_add(self.counted.into())
            .saturating_sub(self.before.count.into())
    }
}

/// A directory whose names change.
#[derive(Debug)]
pub struct NamesChange<'a> {
    /// Name → its inode in the end. Not what is left out.
    pub changed: BTreeMap<&'a [u8], Option<Ino>>,
    /// Names that were recorded and are there: what they name, and where.
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
        plan.find_replaced(state)?;
        for (dir, mut names) in std::mem::take(&mut plan.names) {
            plan.settle(state, dir, &mut names);
            plan.names.insert(dir, names);
        }
        for (&ino, fate) in &mut plan.fates {
            fate.judge(state, ino);
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
        let is_there = match fate.end {
            End::New => true,
            End::Stays => fate.is_same(),
            End::Nothing | End::Dies => false,
        };
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
        let recorded = change.and_then(|change| change.raw.as_deref());
        let recorded = recorded.and_then(|raw| raw.get(..GOOD_OLD_INODE_SIZE));
        let fate = Fate {
            old,
            recorded: recorded.and_then(|raw| RawInode::parse(raw, ino).ok()),
            counted: known.counted,
            is_created: change.is_some_and(|change| change.parent.is_some()),
            ..Fate::default()
        };
        self.fates.insert(ino, fate);
        Ok(true)
    }

    /// Finds the changed names that a directory has, and reads what they name.
    fn look_up(&mut self, state: &State<'_>, dir: Ino, changed: &'a ChangedNames) -> Result<()> {
        if !self.meet(state, dir)? {
            misfit(state, dir);
            for &ino in changed.values().flatten() {
                if self.meet(state, ino)? {
                    self.stray(ino);
                }
            }
            return Ok(());
        }
        let mut names = NamesChange {
            changed: BTreeMap::new(),
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
            self.meet(state, ino)?;
        }
        for (name, now) in changed {
            let is_known = match *now {
                Some(ino) => is_name(name) && self.meet(state, ino)?,
                None => true,
            };
            match is_known {
                true => _ = names.changed.insert(name, *now),
                false => _ = misfit_name(state, dir, name),
            }
        }
        self.names.insert(dir, names);
        Ok(())
    }

    /// Finds the numbers that are used again: the inode that was there has no name left. A number
    /// may be used again in a directory whose number is, so this goes on for some rounds.
    fn find_replaced(&mut self, state: &State<'_>) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let open = |fate: &Fate| fate.is_another() && !fate.replaces;
            let mut open: BTreeMap<Ino, Sure> = self
                .fates
                .iter()
                .filter(|(_, fate)| open(fate))
                .map(|(&ino, _)| (ino, Sure::default()))
                .collect();
            self.count_sure(&mut open);
            let mut has_more = false;
            for (ino, sure) in open {
                let counted = self.fates.get(&ino).map_or(0, |fate| fate.counted);
                if sure.come == 0 || sure.go < counted.into() || self.keeps_names(state, ino)? {
                    continue;
                }
                if let Some(fate) = self.fates.get_mut(&ino) {
                    fate.replaces = true;
                    has_more = true;
                }
            }
            if !has_more {
                break;
            }
        }
        Ok(())
    }

    /// Counts the names of some inodes that come and go, whatever becomes of the other inodes.
    fn count_sure(&self, open: &mut BTreeMap<Ino, Sure>) {
        for (dir, names) in &self.names {
            let Some(fate) = self.fates.get(dir) else {
                continue;
            };
            let is_settled = fate.takes_names() && (fate.replaces || !fate.is_another());
            for (name, now) in &names.changed {
                if let Some(sure) = now.and_then(|now| open.get_mut(&now)) {
                    sure.come += u32::from(is_settled);
                }
                let Some((old, _)) = names.present.get(*name) else {
                    continue;
                };
                let can_be = |now| self.fates.get(&now).is_some_and(Fate::can_be_named);
                let goes = now.is_none_or(|now| now == *old || can_be(now));
                if let Some(sure) = open.get_mut(old) {
                    sure.go += u32::from(goes && (fate.takes_names() || fate.replaces));
                }
            }
        }
    }

    /// Whether a directory has names of which nothing was recorded.
    fn keeps_names(&self, state: &State<'_>, ino: Ino) -> Result<bool> {
        if !self.fates.get(&ino).is_some_and(Fate::was_dir) {
            return Ok(false);
        }
        let Some(old) = Old::read(state, ino)? else {
            return Ok(true);
        };
        let changed = self.fast_commits.changes.names(ino);
        let mut keeps = false;
        reread::for_each(state, ino, old.source(), |seen| {
            let is_own = is_dot(seen.name);
            keeps |= !is_own && !changed.is_some_and(|names| names.contains_key(seen.name));
            Ok(())
        })?;
        Ok(keeps)
    }

    /// Notes that an inode was given a name in what is no directory.
    fn stray(&mut self, ino: Ino) {
        if let Some(fate) = self.fates.get_mut(&ino) {
            fate.is_stray = true;
        }
    }

    /// Leaves out the names in a directory that cannot change, and counts the others.
    fn settle(&mut self, state: &State<'_>, dir: Ino, names: &mut NamesChange<'_>) {
        let fate = self.fates.get(&dir);
        let takes = fate.is_some_and(Fate::takes_names);
        let is_replaced = fate.is_some_and(|fate| fate.replaces);
        let can_be = |ino| self.fates.get(&ino).is_some_and(Fate::can_be_named);
        let mut strays = Vec::new();
        names.changed.retain(|name, now| {
            let is_fit = takes && now.is_none_or(can_be);
            if !is_fit && now.is_some() {
                misfit_name(state, dir, name);
                strays.extend(now.filter(|_| !takes));
            }
            is_fit
        });
        for ino in strays {
            self.stray(ino);
        }
        for (name, (ino, _)) in &names.present {
            let goes = is_replaced || names.changed.contains_key(name.as_slice());
            if let Some(fate) = self.fates.get_mut(ino).filter(|_| goes) {
                fate.before.add(dir);
            }
        }
        for ino in names.changed.values().flatten() {
            if let Some(fate) = self.fates.get_mut(ino) {
                fate.after.add(dir);
            }
        }
        if is_replaced {
            // They go with the blocks that they are in.
            names.present.clear();
        }
    }

    /// Counts the directories that come into directories and go from them.
    fn count_subdirs(&mut self) {
        let mut moves: Vec<(Ino, i64)> = Vec::new();
        for fate in self.fates.values() {
            if fate.before.count > 0 && fate.was_dir() {
                moves.push((fate.before.dir, -1));
            }
            if fate.after.count > 0 && fate.is_dir() {
                moves.push((fate.after.dir, 1));
            }
        }
        for (dir, count) in moves {
            // A new directory never had those that go.
            let fate = self.fates.get_mut(&dir);
            if let Some(fate) = fate.filter(|fate| count > 0 || fate.end != End::New) {
                fate.subdirs = fate.subdirs.saturating_add(count);
            }
        }
    }
}

impl Fate {
    /// Determines what becomes of the inode.
    fn judge(&mut self, state: &State<'_>, ino: Ino) {
        let has_names = self.after.count > 0;
        // What was synced is kept, if its directory is not: later it gets a name in lost+found.
        let is_stray = self.is_stray && self.new_kind() != Some(FileType::Directory);
        let can_be_new = match self.old {
            None => has_names || is_stray,
            Some(_) => has_names && self.replaces,
        };
        (self.end, self.kind) = match (self.old, self.new_kind()) {
            (_, Some(kind)) if can_be_new => (End::New, Some(kind)),
            (None, _) => (End::Nothing, None),
            (Some(old), _) => {
                // One that has no name, and never had one in these commits, is not lost by them.
                let is_left = match self.was_dir() {
                    true => self.before.count == 0 || has_names,
                    false if self.before.count == 0 => has_names || old.i_links_count.get() > 0,
                    false => self.file_links() > 0,
                };
                let end = match is_left || ino == Ino::ROOT {
                    true => End::Stays,
                    false => End::Dies,
                };
                (end, kind_of(old))
            }
        };
        if self.end == End::Stays && !self.is_same() {
            misfit(state, ino);
        }
    }
}

/// Most rounds in which numbers that are used again are looked for.
const ROUNDS_MAX: u32 = 8;

/// Names that come and go in any case.
#[derive(Clone, Copy, Debug, Default)]
struct Sure {
    come: u32,
    go: u32,
}

/// Flags of inodes that no fast commit makes.
const STRANGE: InodeFlags = InodeFlags::EA_INODE
    .union(InodeFlags::VERITY)
    .union(InodeFlags::ENCRYPT);

fn has(raw: &RawInode, flags: InodeFlags) -> bool {
    InodeFlags::from_bits_retain(raw.i_flags.get()).intersects(flags)
}

fn kind_of(raw: RawInode) -> Option<FileType> {
    FileType::from_mode(raw.i_mode.get())
}

/// Whether a directory can hold a name.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !is_dot(name) && !name.contains(&b'/') && !name.contains(&0)
}

//! Determines the result of fast commits for each inode, and checks it before anything is
//! changed.

use std::collections::{BTreeMap, BTreeSet};

use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, RawInode};
use uext4_ondisk::num::len64;
use uext4_ondisk::{Damage, Ino};

use crate::alloc::groups::is_inode_used;
use crate::base::error::{Error, Result};
use crate::dir::namei::{check_name, is_hidden, lookup};
use crate::inode::{Inode, LINKS_MAX, iget};
use crate::journal::sbi::Sbi;
use crate::replay::misfit;
use uext4_ondisk::fast_commit::{ChangedInode, ChangedNames, End, FastCommit, Names};

/// The plan for one inode.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// The inode on the device, if the number is in use there.
    pub(super) old: Option<Inode>,
    pub(super) end: End,
    /// Its final type.
    pub(super) kind: Option<FileType>,
    /// Its final link count: the number of names; for directories, names and subdirectories.
    pub(super) links: u16,
    before: Names,
    after: Names,
    /// Number of subdirectories added, minus those removed.
    subdirs: i64,
}

impl Fate {
    /// The directory that finally contains its name, if that is among the changed ones.
    pub(super) fn parent(&self) -> Ino {
        self.after.dir
    }

    fn was_dir(&self) -> bool {
        let old = self.old.as_ref();
        old.is_some_and(|old| old.file_type == FileType::Directory)
    }

    fn is_dir(&self) -> bool {
        self.kind == Some(FileType::Directory)
    }
}

/// All inodes that occur in fast commits.
pub(super) struct Plan<'a> {
    sbi: &'a Sbi,
    all: &'a FastCommit,
    fates: BTreeMap<Ino, Fate>,
}

impl<'a> Plan<'a> {
    /// Looks up and checks everything.
    pub(super) fn new(sbi: &'a Sbi, all: &'a FastCommit) -> Result<Self> {
        let mut plan = Self {
            sbi,
            all,
            fates: BTreeMap::new(),
        };
        for ino in all.all_inodes().into_keys() {
            plan.meet(ino)?;
        }
        for (dir, names) in all.all_names() {
            plan.count_names(dir, names)?;
        }
        let mut judged = Vec::with_capacity(plan.fates.len());
        for (ino, fate) in &plan.fates {
            judged.push(plan.judge(*ino, fate)?);
        }
        for (fate, (end, kind)) in plan.fates.values_mut().zip(judged) {
            (fate.end, fate.kind) = (end, kind);
        }
        plan.check_ranges()?;
        plan.check_parents()?;
        plan.count_subdirs()?;
        plan.check_reach()?;
        plan.count_links()?;
        Ok(plan)
    }

    /// All inodes, by number.
    pub(super) fn fates(&self) -> impl Iterator<Item = (Ino, &Fate)> {
        self.fates.iter().map(|(ino, fate)| (*ino, fate))
    }

    /// The plan for one inode.
    pub(super) fn fate(&self, ino: Ino) -> Option<&Fate> {
        self.fates.get(&ino)
    }

    /// The recorded change of an inode that finally exists.
    pub(super) fn change(&self, ino: Ino, fate: &Fate) -> Option<&'a ChangedInode> {
        let change = self.all.changed(ino);
        change.filter(|_| matches!(fate.end, End::New | End::Stays))
    }

    /// The directories with changed names, and these names.
    pub(super) fn names(&self) -> BTreeMap<Ino, &'a ChangedNames> {
        self.all.all_names()
    }

    /// Reads an inode, once.
    fn meet(&mut self, ino: Ino) -> Result<&mut Fate> {
        let geometry = self.sbi.geometry();
        let own = ino.0 < geometry.first_ino && ino != Ino::ROOT || is_hidden(self.sbi, ino);
        if own || ino.0 > geometry.inodes_count {
            return Err(Error::Corrupt(Damage::InodeNumber {
                what: "fast commit",
                ino,
                inodes_count: geometry.inodes_count,
            }));
        }
        if !self.fates.contains_key(&ino) {
            let old = match is_inode_used(self.sbi, ino)? {
                true => Some(iget(self.sbi, ino)?),
                false => None,
            };
            let fate = Fate {
                old,
                ..Fate::default()
            };
            self.fates.insert(ino, fate);
        }
        Ok(self.fates.entry(ino).or_default())
    }

    fn count_names(&mut self, dir: Ino, names: &ChangedNames) -> Result<()> {
        let fate = self.meet(dir)?;
        let old = fate.old.clone().filter(|_| fate.was_dir());
        for (name, now) in names {
            check_name(name).map_err(|_| {
                Error::Corrupt(Damage::Field {
                    structure: "fast commit",
                    field: "name of bytes",
                    value: len64(name.len()),
                    why: "no directory can hold it",
                })
            })?;
            if let Some(old) = &old {
                match lookup(self.sbi, old, name) {
                    Ok(ino) => self.meet(ino)?.before.add(dir),
                    Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            if let Some(ino) = *now {
                self.meet(ino)?.after.add(dir);
            }
        }
        Ok(())
    }

    /// Determines the final state of an inode, and its final type.
    fn judge(&self, ino: Ino, fate: &Fate) -> Result<(End, Option<FileType>)> {
        let change = self.all.changed(ino);
        let created = change.is_some_and(|change| change.parent.is_some());
        let raw = change.and_then(|change| change.raw.as_deref());
        let raw = raw.map(|raw| head(raw, ino)).transpose()?;
        let kind = raw.as_ref().map(|raw| kind_of(raw, ino)).transpose()?;
        let Some(old) = &fate.old else {
            return match kind {
                _ if fate.after.count == 0 => Ok((End::Nothing, None)),
                Some(_) => Ok((End::New, kind)),
                None => Err(not_in_use(ino)),
            };
        };
        if ino == Ino::ROOT && (fate.before.count > 0 || fate.after.count > 0) {
            let names = fate.after.count.into();
            return Err(misfit(ino, "names", names, "the root directory has none"));
        }
        let is_another = raw.is_some_and(|raw| raw.i_generation.get() != old.generation);
        if is_another {
            return self.judge_another(ino, fate, kind, created);
        }
        if kind.is_some_and(|kind| kind != old.file_type) {
            let mode = old.mode.into();
            return Err(misfit(
                ino,
                "i_mode",
                mode,
                "a fast commit changes its type",
            ));
        }
        // Another replay was interrupted.
        if created && !fate.was_dir() && u32::from(old.links) != fate.before.count {
            return Err(unsupported("a replay of fast commits that was cut short"));
        }
        let names = if fate.was_dir() { 1 } else { old.links.into() };
        let left = u32::saturating_add(names, fate.after.count).checked_sub(fate.before.count);
        let end = match left {
            None => return Err(counted(ino, old)),
            Some(0) => End::Dies,
            Some(_) => End::Stays,
        };
        Ok((end, Some(old.file_type)))
    }

    /// Like [`Plan::judge`], if the number was reused for another inode meanwhile.
    fn judge_another(
        &self,
        ino: Ino,
        fate: &Fate,
        kind: Option<FileType>,
        created: bool,
    ) -> Result<(End, Option<FileType>)> {
        if !created || fate.was_dir() || kind == Some(FileType::Directory) {
            return Err(unsupported("fast commits that use a number again"));
        }
        let old = fate.old.as_ref();
        if let Some(old) = old.filter(|old| u32::from(old.links) != fate.before.count) {
            return Err(counted(ino, old));
        }
        match fate.after.count {
            0 => Ok((End::Dies, old.map(|old| old.file_type))),
            _ => Ok((End::New, kind)),
        }
    }

    /// Checks that names are added only to directories that finally exist, and removed only from
    /// inodes that were directories.
    fn check_parents(&self) -> Result<()> {
        for (dir, names) in self.all.all_names() {
            let Some(fate) = self.fate(dir) else {
                continue;
            };
            let takes = fate.is_dir() && matches!(fate.end, End::New | End::Stays);
            let is_known = takes || fate.end == End::Nothing || fate.was_dir();
            if !is_known || !takes && names.values().any(Option::is_some) {
                let count = len64(names.len());
                let why = "a fast commit adds names to an inode that is not a directory";
                return Err(misfit(dir, "names", count, why));
            }
        }
        Ok(())
    }

    /// Checks that each directory has one name and is not moved, and adds it to its parent's
    /// count.
    fn count_subdirs(&mut self) -> Result<()> {
        let mut moves: Vec<(Ino, i64)> = Vec::new();
        for (&ino, fate) in &self.fates {
            if !fate.is_dir() {
                continue;
            }
            let (before, after) = (fate.before, fate.after);
            let many = before.count > 1 || after.count > 1;
            if many || before.count < after.count && fate.end == End::Stays {
                let names = after.count.into();
                return Err(misfit(ino, "names", names, "a directory has but one"));
            }
            if before.count > 0 {
                moves.push((before.dir, -1));
            }
            if after.count > 0 {
                moves.push((after.dir, 1));
                self.check_place(ino, fate)?;
            }
        }
        for (dir, count) in moves {
            if let Some(fate) = self.fates.get_mut(&dir) {
                fate.subdirs = fate.subdirs.saturating_add(count);
            }
        }
        Ok(())
    }

    /// Fails if ".." of a directory would not refer to the directory that contains its name.
    fn check_place(&self, ino: Ino, fate: &Fate) -> Result<()> {
        let dotdot = match &fate.old {
            Some(old) => Some(lookup(self.sbi, old, b"..")?),
            None => self.all.changed(ino).and_then(|change| change.parent),
        };
        if dotdot == Some(fate.after.dir) {
            return Ok(());
        }
        Err(unsupported("fast commits that move directories"))
    }

    /// Fails if an inode without a map of data would get blocks. Blocks of a directory are not
    /// recorded: its names are, one by one.
    fn check_ranges(&self) -> Result<()> {
        let has_data = |fate: &Fate| {
            let kinds = [FileType::Regular, FileType::Symlink];
            fate.kind.is_none_or(|kind| kinds.contains(&kind))
        };
        for (ino, fate) in self.fates().filter(|(_, fate)| !has_data(fate)) {
            let change = self.change(ino, fate);
            if change.is_some_and(|change| change.ranges().next().is_some()) {
                return Err(unsupported(
                    "fast commits that map blocks of what is no file",
                ));
            }
        }
        Ok(())
    }

    /// New directories must not contain only each other in a cycle. Linear: none is visited
    /// twice.
    fn check_reach(&self) -> Result<()> {
        let new_dir = |ino: &Ino| {
            let fate = self.fate(*ino);
            fate.filter(|fate| fate.is_dir() && fate.end == End::New)
        };
        let mut sound = BTreeSet::new();
        for start in self.fates.keys() {
            let (mut at, mut way) = (*start, BTreeSet::new());
            while !sound.contains(&at)
                && let Some(fate) = new_dir(&at)
            {
                if !way.insert(at) {
                    let why = "a fast commit puts it into itself";
                    return Err(misfit(at, "names", 1, why));
                }
                at = fate.after.dir;
            }
            sound.append(&mut way);
        }
        Ok(())
    }

    /// Computes the link count of each inode.
    fn count_links(&mut self) -> Result<()> {
        for (&ino, fate) in &mut self.fates {
            let before = match (&fate.old, fate.end) {
                (Some(old), End::Stays) => i64::from(old.links),
                _ => 0,
            };
            let names = i64::from(fate.after.count).saturating_sub(fate.before.count.into());
            let links = match fate.end {
                End::Nothing | End::Dies => 0,
                End::New if fate.is_dir() => fate.subdirs.saturating_add(2),
                End::New => fate.after.count.into(),
                // The count has overflowed.
                End::Stays if fate.is_dir() && before == 1 => 1,
                End::Stays if fate.is_dir() => fate.subdirs.saturating_add(before),
                End::Stays => names.saturating_add(before),
            };
            if links < 0 || fate.is_dir() && fate.end == End::Stays && links == 0 {
                let why = "fewer than directories that go";
                return Err(misfit(ino, "i_links_count", before.unsigned_abs(), why));
            }
            let counted = u16::try_from(links)
                .ok()
                .filter(|links| *links <= LINKS_MAX);
            fate.links = match counted {
                Some(links) => links,
                None if fate.is_dir() => 1,
                None => return Err(Error::TooManyLinks),
            };
        }
        Ok(())
    }
}

/// The first fields of a recorded inode.
fn head(raw: &[u8], ino: Ino) -> Result<RawInode> {
    let head = raw.get(..GOOD_OLD_INODE_SIZE).unwrap_or_default();
    Ok(RawInode::parse(head, ino)?)
}

fn kind_of(raw: &RawInode, ino: Ino) -> Result<FileType> {
    let mode = raw.i_mode.get();
    let kind = FileType::from_mode(mode);
    kind.ok_or_else(|| misfit(ino, "i_mode", mode.into(), "no known file type"))
}

fn not_in_use(ino: Ino) -> Error {
    let why = "a fast commit names it";
    Error::Corrupt(Damage::UnusedInode { ino, why })
}

fn counted(ino: Ino, old: &Inode) -> Error {
    let why = "not as many as the names that fast commits take";
    misfit(ino, "i_links_count", old.links.into(), why)
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        what: format!("writing after {what}: run e2fsck first"),
    }
}

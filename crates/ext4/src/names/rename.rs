//! Names that move.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::inode::{DeviceNumber, FileType};
use uext4_ondisk::{Damage, Ino};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::lock_order::{Alone, Held, Rank};
use crate::bulk::NewInode;
use crate::dir;
use crate::dir::change::{add, delete, replace};
use crate::dir::namei::{check_name, lookup};
use crate::file::auto_da_alloc;
use crate::file::inode_ref::InodeRef;
use crate::inode::attr;
use crate::inode::icache::Cell;
use crate::inode::store::store;
use crate::inode::{Inode, LINKS_MAX};
use crate::journal::handle::Handle;
use crate::journal::rw::Purpose;
use crate::journal::sbi::Sbi;
use crate::journal::space::ensure_blocks;
use crate::names::create::{self, Creation};
use crate::names::unlink::{self, Doomed, check_deletable, drop_directory, drop_link, find};

/// What `renameat2` takes in addition to the names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// What has the new name loses it.
    #[default]
    Replace,
    /// The new name must not be there.
    NoReplace,
    /// Both names are there and change places.
    Exchange,
    /// As [`RenameMode::Replace`], and a whiteout (a character device 0:0), made so, takes the old
    /// name.
    Whiteout(Creation),
}

/// Blocks that a move may take: of a directory and its htree, a whiteout.
const BLOCKS_MAX: u64 = 32;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    dir: &'a InodeRef,
    name: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry `name` of `dir`, whether it is there or not.
    pub(crate) fn new(dir: &'a InodeRef, name: &'a [u8]) -> Self {
        Self { dir, name }
    }
}

/// An inode that gets a new name, and its name before.
#[derive(Clone, Copy)]
struct Moved<'a> {
    name: &'a [u8],
    inode: &'a InodeRef,
}

/// A new name, and the inode that it leads to before the move, if there is one.
#[derive(Clone, Copy)]
struct Target<'a> {
    name: &'a [u8],
    inode: Option<&'a InodeRef>,
}

/// The directories of a move, their names standing still.
struct Directories<'a> {
    from: &'a InodeRef,
    to: &'a InodeRef,
}

/// How often a rename lets go of its directories to write the data of its source. After that it
/// writes them with the directories locked, so that it ends however fast others write.
const WRITES_UNLOCKED: u32 = 2;

/// Moves a name, in one step that is seen whole or not at all. A file that replaces another one has
/// its data written before (`auto_da_alloc`).
pub(crate) fn rename(from: Entry<'_>, to: Entry<'_>, mode: RenameMode) -> Result<()> {
    for _ in 0..WRITES_UNLOCKED {
        match attempt(from, to, mode, false)? {
            Some(source) => auto_da_alloc::write(&source),
            None => return Ok(()),
        }
    }
    attempt(from, to, mode, true).map(drop)
}

/// Moves a name as [`rename`], for callers that must not wait for data to be written: false, and
/// nothing has changed, if a file whose data wait to be written would replace another one.
pub(crate) fn try_rename(from: Entry<'_>, to: Entry<'_>, mode: RenameMode) -> Result<bool> {
    Ok(attempt(from, to, mode, false)?.is_none())
}

/// One attempt; returns the file whose data have to be written before, unless it may write them.
fn attempt(
    old: Entry<'_>,
    new: Entry<'_>,
    mode: RenameMode,
    may_write: bool,
) -> Result<Option<InodeRef>> {
    let (from, to) = (old.dir, new.dir);
    let sbi = from.sbi();
    let across = from.ino() != to.ino();
    let _shape = across.then(|| {
        sbi.rw()
            .map(|rw| (Held::new(Rank::Rename), rw.rename.lock()))
    });
    check_name(old.name)?;
    // What is moved and replaced, once it had to be waited for.
    let mut contended: Vec<InodeRef> = Vec::new();
    loop {
        let dirs = Directories { from, to };
        let names = lock_names([from, to].into_iter().chain(&contended));
        let source = find(from, old.name)?;
        check_name(new.name)?;
        let target = match find(to, new.name) {
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        match (&target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(Error::Exists),
            (None, RenameMode::Exchange) => return Err(Error::NotFound),
            (Some(target), _) if target.ino() == source.ino() => return Ok(None),
            _ => {}
        }
        check_shape(sbi, &dirs, &source, target.as_ref(), mode)?;
        let mut contents = contents(&dirs, &source, target.as_ref(), mode);
        contents.retain(|inode| contended.iter().all(|held| held.ino() != inode.ino()));
        let locks: Option<Vec<_>> = contents.iter().map(|inode| inode.rw.try_write()).collect();
        let Some(_contents) = locks else {
            // All of them at once, in the order of their numbers, and then look again.
            let all: Vec<InodeRef> = contents.into_iter().cloned().collect();
            drop(names);
            contended = all;
            continue;
        };
        let source = Moved {
            name: old.name,
            inode: &source,
        };
        let target = Target {
            name: new.name,
            inode: target.as_ref(),
        };
        return rename_locked(&dirs, source, target, mode, may_write);
    }
}

/// Locks names in the order of their numbers, each once.
fn lock_names<'a>(inodes: impl Iterator<Item = &'a InodeRef>) -> Vec<Alone<'a, ()>> {
    let mut inodes: Vec<&InodeRef> = inodes.collect();
    inodes.sort_unstable_by_key(|inode| inode.ino());
    inodes.dedup_by_key(|inode| inode.ino());
    inodes.into_iter().map(|inode| inode.rw.write()).collect()
}

/// The move, with all names locked that it changes.
fn rename_locked(
    dirs: &Directories<'_>,
    source: Moved<'_>,
    target: Target<'_>,
    mode: RenameMode,
    may_write: bool,
) -> Result<Option<InodeRef>> {
    let (from, to, sbi) = (dirs.from, dirs.to, dirs.from.sbi());
    check_kinds(dirs, source.inode, target.inode, mode)?;
    // Both files of an exchange take a name that another one had.
    let other = target.inode.filter(|_| mode == RenameMode::Exchange);
    let replacing = target.inode.map(|_| source.inode).into_iter().chain(other);
    for file in replacing.filter(|file| auto_da_alloc::is_unwritten(sbi, file)) {
        match may_write {
            true => auto_da_alloc::write(file),
            false => return Ok(Some(file.clone())),
        }
    }
    // Before the handle of the move: a handle of its own. No thread sees it without its name.
    let whiteout = match mode {
        RenameMode::Whiteout(by) => Some(make_whiteout(from, &by)?),
        _ => None,
    };
    let _blocks = ensure_blocks(sbi, Purpose::Names, BLOCKS_MAX)?;
    let doomed = match (target.inode, mode) {
        (Some(target), RenameMode::Replace | RenameMode::Whiteout(_)) => Some(Doomed::new(target)),
        _ => None,
    };
    let credits = credits(sbi, from, to);
    let handle = sbi.start(credits.min(sbi.writable()?.journal.credits_max()))?;
    let result = match (target.inode, mode) {
        (Some(inode), RenameMode::Exchange) => {
            let name = target.name;
            exchange(&handle, dirs, source, Moved { name, inode })
        }
        _ => move_name(&handle, dirs, source, target, doomed, whiteout.as_ref()),
    };
    for changed in [from, to, source.inode] {
        changed.changed_in(handle.tid(), true);
    }
    result.map(|()| None)
}

/// Gives an inode a name that another has, which loses it, in one step that is seen whole or not at
/// all.
///
/// Fails as [`create::link`], and as replacing does: [`Error::NotFound`] where nothing has the
/// name, [`Error::IsDirectory`], [`Error::NotPermitted`].
pub(crate) fn link_over(inode: &InodeRef, parent: &InodeRef, name: &[u8]) -> Result<()> {
    check_name(name)?;
    let sbi = parent.sbi();
    // As for a move over it: what is read after a crash is all old or all new.
    if auto_da_alloc::is_unwritten(sbi, inode) {
        auto_da_alloc::write(inode);
    }
    let _names = parent.rw.write();
    let old = find(parent, name)?;
    if old.inode.read().file_type == FileType::Directory {
        return Err(Error::IsDirectory);
    }
    if old.ino() == inode.ino() {
        return Ok(());
    }
    check_deletable(parent, &old)?;
    let dir = parent.inode.read().clone();
    create::check_linkable(inode, &inode.inode.read())?;
    // What takes the place of another of its project brings nothing new into the directory.
    let is_same = old.inode.read().projid == inode.inode.read().projid;
    if !is_same && !attr::takes_in(&dir, &inode.inode.read()) {
        return Err(Error::OtherProject);
    }
    let _blocks = ensure_blocks(sbi, Purpose::Names, BLOCKS_MAX)?;
    let doomed = Doomed::new(&old);
    let credits = credits(sbi, parent, parent);
    let handle = sbi.start(credits.min(sbi.writable()?.journal.credits_max()))?;
    let linked = || -> Result<()> {
        let dir = &mut *parent.inode.write();
        let before = dir.clone();
        let target = &mut *inode.inode.write();
        replace(&handle, dir, name, target.ino, target.file_type)?;
        touch(&handle, parent, dir, &before)?;
        create::count_link(&handle, inode, target)
    };
    let result = linked().and_then(|()| drop_link(&handle, &old, doomed));
    parent.changed_in(handle.tid(), true);
    handle.failed(result)
}

/// Blocks that a move may change.
fn credits(sbi: &Sbi, from: &Cell, to: &Cell) -> u32 {
    let taken = 2 * unlink::credits(sbi, &from.inode.read());
    let to = to.inode.read();
    taken + dir::change::credits_add(sbi, &to) + 2 * dir::change::credits_replace(sbi, &to) + 8
}

/// Whether `ancestor` lies on the way from `dir` to the root. Only while directories do not move.
fn is_ancestor(sbi: &Sbi, ancestor: Ino, dir: &Cell) -> Result<bool> {
    let mut at = dir.inode.read().clone();
    let mut seen = HashSet::new();
    loop {
        let parent = lookup(sbi, &at, b"..")?;
        if parent == ancestor {
            return Ok(true);
        }
        if parent == at.ino {
            return Ok(false);
        }
        if !seen.insert(parent) {
            return Err(Error::Corrupt(Damage::Directory {
                ino: parent,
                why: "it is its own ancestor",
            }));
        }
        at = crate::inode::iget(sbi, parent)?;
    }
}

/// Fails with [`Error::Invalid`] if a directory would come to lie in itself.
fn check_shape(
    sbi: &Sbi,
    dirs: &Directories<'_>,
    source: &InodeRef,
    target: Option<&InodeRef>,
    mode: RenameMode,
) -> Result<()> {
    let is_dir = |inode: &InodeRef| inode.inode.read().file_type == FileType::Directory;
    let inside = |outer: &InodeRef, dir: &InodeRef| -> Result<bool> {
        Ok(is_dir(outer)
            && dirs.from.ino() != dirs.to.ino()
            && (outer.ino() == dir.ino() || is_ancestor(sbi, outer.ino(), dir)?))
    };
    if inside(source, dirs.to)? {
        return Err(Error::Invalid(Invalid::IntoItself));
    }
    match target {
        Some(target) if inside(target, dirs.from)? => match mode {
            RenameMode::Exchange => Err(Error::Invalid(Invalid::IntoItself)),
            // It holds the directory that the source is in.
            _ => Err(Error::NotEmpty),
        },
        _ => Ok(()),
    }
}

/// What is moved and what is replaced, where they are directories whose names must be locked. What
/// stays in its directory keeps its parent and its names, and need not be.
fn contents<'a>(
    dirs: &Directories<'_>,
    source: &'a InodeRef,
    target: Option<&'a InodeRef>,
    mode: RenameMode,
) -> Vec<&'a InodeRef> {
    let across = dirs.from.ino() != dirs.to.ino();
    let source = Some(source).filter(|_| across);
    let target = target.filter(|_| across || mode != RenameMode::Exchange);
    let mut inodes: Vec<&InodeRef> = [source, target].into_iter().flatten().collect();
    inodes.retain(|inode| {
        let locked = [dirs.from.ino(), dirs.to.ino()].contains(&inode.ino());
        !locked && inode.inode.read().file_type == FileType::Directory
    });
    inodes
}

/// As [`attr::takes_in`]; both may be the same inode, so that they are not locked together.
fn takes_in(dir: &Cell, inode: &Cell) -> bool {
    let dir = dir.inode.read().clone();
    attr::takes_in(&dir, &inode.inode.read())
}

/// Whether flags and kinds allow it.
fn check_kinds(
    dirs: &Directories<'_>,
    source: &InodeRef,
    target: Option<&InodeRef>,
    mode: RenameMode,
) -> Result<()> {
    check_deletable(dirs.from, source)?;
    let across = dirs.from.ino() != dirs.to.ino();
    if across && !takes_in(dirs.to, source) {
        return Err(Error::OtherProject);
    }
    let Some(target) = target else {
        let kind = source.inode.read().file_type;
        return match across {
            true => create::check_subdirs(dirs.to.sbi(), &dirs.to.inode.read(), kind),
            false => Ok(()),
        };
    };
    check_deletable(dirs.to, target)?;
    if mode == RenameMode::Exchange {
        return match across && !takes_in(dirs.from, target) {
            true => Err(Error::OtherProject),
            false => Ok(()),
        };
    }
    let old = source.inode.read().file_type == FileType::Directory;
    let new = target.inode.read().clone();
    match (old, new.file_type == FileType::Directory) {
        (true, false) => Err(Error::NotDirectory),
        (false, true) => Err(Error::IsDirectory),
        (true, true) if !dir::change::is_empty(dirs.from.sbi(), &new)? => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}

fn make_whiteout(dir: &InodeRef, by: &Creation) -> Result<InodeRef> {
    let kind = NewInode::CharDevice(DeviceNumber { major: 0, minor: 0 });
    let how = Creation {
        mode: 0,
        umask: 0,
        ..*by
    };
    create::create_unnamed(dir, kind, &how)
}

/// Counts a subdirectory in or out of its parent.
fn count_subdir(dir: &mut Inode, more: bool) {
    // One link means: more than can be counted.
    dir.links = match (dir.links, more) {
        (1, _) | (LINKS_MAX.., true) => 1,
        (links, true) => links + 1,
        (links, false) => links.saturating_sub(1).max(2),
    };
}

fn move_name(
    handle: &Handle<'_>,
    dirs: &Directories<'_>,
    source: Moved<'_>,
    target: Target<'_>,
    doomed: Option<Doomed<'_>>,
    whiteout: Option<&InodeRef>,
) -> Result<()> {
    let sbi = handle.sbi();
    let across = dirs.from.ino() != dirs.to.ino();
    let (ino, file_type) = {
        let inode = source.inode.inode.read();
        (inode.ino, inode.file_type)
    };
    let replaced = target.inode.zip(doomed);
    let is_dir = file_type == FileType::Directory;
    {
        let to = &mut *dirs.to.inode.write();
        if to.links == 0 {
            return Err(Error::NotFound);
        }
        let before = to.clone();
        if replaced.is_some() {
            handle.failed(replace(handle, to, target.name, ino, file_type))?;
        } else if let Err(error) = add(handle, to, target.name, ino, file_type) {
            return match error {
                Error::DirectoryFull { .. } | Error::QuotaExceeded { .. } => Err(error),
                error => handle.failed(Err(error)),
            };
        }
        if is_dir && replaced.is_some() {
            count_subdir(to, false);
        }
        if is_dir && across {
            count_subdir(to, true);
        }
        handle.failed(touch(handle, dirs.to, to, &before))?;
    }
    let rest = || -> Result<()> {
        let from = &mut *dirs.from.inode.write();
        let before = from.clone();
        if let Some(whiteout) = whiteout {
            let inode = &mut *whiteout.inode.write();
            inode.links = 1;
            whiteout.may_get_name.store(false, Relaxed);
            replace(handle, from, source.name, inode.ino, inode.file_type)?;
            store(handle, sbi, inode)?;
            handle.remove_orphan(inode.ino, inode.generation)?;
        } else {
            delete(handle, from, source.name)?;
        }
        if is_dir && across {
            count_subdir(from, false);
        }
        touch(handle, dirs.from, from, &before)
    };
    handle.failed(rest())?;
    handle.failed(arrived(
        handle,
        source.inode,
        across.then_some(dirs.to.ino()),
    ))?;
    match replaced {
        Some((target, doomed)) if is_dir => handle.failed(drop_directory(handle, target, doomed)),
        Some((target, doomed)) => handle.failed(drop_link(handle, target, doomed)),
        None => Ok(()),
    }
}

/// A directory that was as `before` has changed.
fn touch(handle: &Handle<'_>, cell: &Cell, dir: &mut Inode, before: &Inode) -> Result<()> {
    let now = handle.now();
    (dir.mtime, dir.ctime) = (now, now);
    handle.store_times(cell, dir, before)
}

/// What was moved notes the time, and its new parent if it is a directory that has one.
fn arrived(handle: &Handle<'_>, moved: &InodeRef, parent: Option<Ino>) -> Result<()> {
    let inode = &mut *moved.inode.write();
    inode.ctime = handle.now();
    if let Some(parent) = parent.filter(|_| inode.file_type == FileType::Directory) {
        replace(handle, inode, b"..", parent, FileType::Directory)?;
    }
    store(handle, handle.sbi(), inode)
}

fn exchange(
    handle: &Handle<'_>,
    dirs: &Directories<'_>,
    source: Moved<'_>,
    target: Moved<'_>,
) -> Result<()> {
    let across = dirs.from.ino() != dirs.to.ino();
    let kind = |inode: &InodeRef| inode.inode.read().file_type;
    let (source_kind, target_kind) = (kind(source.inode), kind(target.inode));
    let swap = || -> Result<()> {
        for (cell, name, gets, kind, loses) in [
            (
                dirs.to,
                target.name,
                source.inode.ino(),
                source_kind,
                target_kind,
            ),
            (
                dirs.from,
                source.name,
                target.inode.ino(),
                target_kind,
                source_kind,
            ),
        ] {
            let dir = &mut *cell.inode.write();
            let before = dir.clone();
            replace(handle, dir, name, gets, kind)?;
            if across && kind != loses {
                let directory = FileType::Directory;
                if kind == directory || loses == directory {
                    count_subdir(dir, kind == directory);
                }
            }
            touch(handle, cell, dir, &before)?;
        }
        arrived(handle, source.inode, across.then_some(dirs.to.ino()))?;
        arrived(handle, target.inode, across.then_some(dirs.from.ino()))
    };
    target.inode.changed_in(handle.tid(), true);
    handle.failed(swap())
}

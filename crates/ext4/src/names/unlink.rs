//! Names that go, and what goes with the last of them.

use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Damage, Ino, Lblk};

use crate::base::error::{Error, Result};
use crate::base::lock_order::Alone;
use crate::dir;
use crate::dir::namei::{check_name, lookup_held};
use crate::file::evict::{delete, maps_any};
use crate::file::inode_ref::InodeRef;
use crate::file::pages::forget_delayed;
use crate::inode::Inode;
use crate::inode::attr;
use crate::inode::icache::Cell;
use crate::inode::store::store;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::map;
use crate::map::change::Progress;
use crate::orphan::change::Orphans;
use crate::xattr;

/// Credits for unmapping the few blocks of a small file in the handle that takes its name.
const SMALL_CREDITS: u32 = 12;

/// Takes a name that is not a directory's.
pub(crate) fn unlink(parent: &InodeRef, name: &[u8]) -> Result<()> {
    check_name(name)?;
    let sbi = parent.sbi();
    let _names = parent.rw.write();
    let child = find(parent, name)?;
    if child.inode.read().file_type == FileType::Directory {
        return Err(Error::IsDirectory);
    }
    check_deletable(parent, &child)?;
    let doomed = Doomed::new(&child);
    let credits = credits(sbi, &parent.inode.read());
    let handle = sbi.start(credits)?;
    let dir = &mut *parent.inode.write();
    let before = dir.clone();
    handle.failed(dir::change::delete(&handle, dir, name))?;
    let gone = name_gone(&handle, parent, dir, &before, false);
    let result = gone.and_then(|()| drop_link(&handle, &child, doomed));
    parent.changed_in(handle.tid(), true);
    handle.failed(result)
}

/// Takes the name of an empty directory, and the directory.
pub(crate) fn rmdir(parent: &InodeRef, name: &[u8]) -> Result<()> {
    check_name(name)?;
    loop {
        let names = parent.rw.write();
        let child = find(parent, name)?;
        if child.inode.read().file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if child.ino() == parent.ino() {
            return Err(holds_itself(parent.ino()));
        }
        let (_names, waited) = lock_below(parent, names, &child);
        // Others may have replaced it meanwhile.
        if !waited || find(parent, name)?.ino() == child.ino() {
            return rmdir_locked(parent, name, &child);
        }
    }
}

/// The error for a directory that an entry of its own leads to: it can be locked only once.
pub(crate) fn holds_itself(ino: Ino) -> Error {
    Error::Corrupt(Damage::Directory {
        ino,
        why: "it holds an entry that leads to itself",
    })
}

/// Locks the names of a directory in `parent`, whose own are locked, in the order of their
/// numbers: an image may say of each of two directories that it is in the other. Returns whether
/// `parent` was unlocked meanwhile.
fn lock_below<'a>(
    parent: &'a InodeRef,
    names: Alone<'a, ()>,
    child: &'a InodeRef,
) -> ([Alone<'a, ()>; 2], bool) {
    if child.ino() > parent.ino() {
        return ([names, child.rw.write()], false);
    }
    if let Some(below) = child.rw.try_write() {
        return ([names, below], false);
    }
    drop(names);
    let below = child.rw.write();
    ([parent.rw.write(), below], true)
}

/// Takes the name of a directory, both locked.
fn rmdir_locked(parent: &InodeRef, name: &[u8], child: &InodeRef) -> Result<()> {
    let sbi = parent.sbi();
    check_deletable(parent, child)?;
    if !dir::change::is_empty(sbi, &child.inode.read())? {
        return Err(Error::NotEmpty);
    }
    let doomed = Doomed::new(child);
    let credits = credits(sbi, &parent.inode.read());
    let handle = sbi.start(credits)?;
    let dir = &mut *parent.inode.write();
    let before = dir.clone();
    handle.failed(dir::change::delete(&handle, dir, name))?;
    let gone = name_gone(&handle, parent, dir, &before, true);
    let result = gone.and_then(|()| drop_directory(&handle, child, doomed));
    parent.changed_in(handle.tid(), true);
    handle.failed(result)
}

/// The inode of a name in a directory whose names stand still.
pub(crate) fn find(parent: &InodeRef, name: &[u8]) -> Result<InodeRef> {
    let sbi = parent.sbi();
    let ino = lookup_held(sbi, &parent.inode.read(), name)?;
    InodeRef::get(sbi, ino)
}

/// Fails with [`Error::NotPermitted`] if flags keep a name from being taken.
pub(crate) fn check_deletable(dir: &Cell, child: &Cell) -> Result<()> {
    let forbid = attr::IMMUTABILITY;
    // One after the other: they may be the same inode.
    let flags = dir.inode.read().flags;
    let flags = flags | child.inode.read().flags;
    if flags.intersects(forbid) {
        return Err(attr::fixed());
    }
    Ok(())
}

/// Blocks that taking a name may change.
pub(crate) fn credits(sbi: &Sbi, dir: &Inode) -> u32 {
    dir::change::credits_delete(sbi, dir)
        + 2 * Orphans::CREDITS
        + 6
        + SMALL_CREDITS
        + xattr::change::credits_delete(sbi)
}

/// A directory has one name less; it was as `before`.
fn name_gone(
    handle: &Handle<'_>,
    cell: &Cell,
    dir: &mut Inode,
    before: &Inode,
    is_dir: bool,
) -> Result<()> {
    let now = handle.now();
    (dir.mtime, dir.ctime) = (now, now);
    // One link means: more than can be counted.
    if is_dir && dir.links > 2 {
        dir.links -= 1;
    }
    handle.store_times(cell, dir, before)
}

/// An inode that is about to lose its last name, has no user but a caller that takes it, and maps
/// so little that it can be deleted in the handle that takes the name. No thread is given it any
/// more, and its pages are gone: that must happen before the handle, for they may be under
/// writeback, which needs handles.
pub(crate) struct Doomed<'a>(Option<&'a InodeRef>);

impl<'a> Doomed<'a> {
    /// Dooms an inode if it may be.
    pub(crate) fn new(child: &'a InodeRef) -> Self {
        let sbi = child.sbi();
        let small = {
            let inode = child.inode.read();
            let last = match inode.file_type {
                FileType::Directory => true,
                _ => inode.links == 1,
            };
            let bytes = 4 << sbi.geometry().block_size.log2();
            last && (!maps_any(sbi, &inode) || inode.blocks << 9 <= bytes)
        };
        let killed = small && sbi.rw().is_some_and(|rw| rw.inodes.kill(child));
        if killed {
            child.drop_pages();
            forget_delayed(sbi, child, Lblk(0), u32::MAX);
        }
        Self(killed.then_some(child))
    }
}

impl Drop for Doomed<'_> {
    fn drop(&mut self) {
        if let Some((child, rw)) = self.0.zip(self.0.and_then(|child| child.sbi().rw())) {
            rw.inodes.revive(child);
        }
    }
}

/// An inode that is no directory has one name less. With the last one it is deleted at once if it
/// is doomed, else it becomes an orphan.
pub(crate) fn drop_link(handle: &Handle<'_>, child: &InodeRef, doomed: Doomed<'_>) -> Result<()> {
    let inode = &mut *child.inode.write();
    inode.links = inode.links.saturating_sub(1);
    inode.ctime = handle.now();
    child.changed_in(handle.tid(), false);
    if inode.links > 0 {
        return store(handle, handle.sbi(), inode);
    }
    end(handle, inode, doomed)
}

/// A directory, empty and locked, has lost its name.
pub(crate) fn drop_directory(
    handle: &Handle<'_>,
    child: &InodeRef,
    doomed: Doomed<'_>,
) -> Result<()> {
    let inode = &mut *child.inode.write();
    inode.links = 0;
    inode.ctime = handle.now();
    child.changed_in(handle.tid(), true);
    end(handle, inode, doomed)
}

fn end(handle: &Handle<'_>, inode: &mut Inode, mut doomed: Doomed<'_>) -> Result<()> {
    let sbi = handle.sbi();
    let unmapped = doomed.0.is_some()
        && (!maps_any(sbi, inode)
            || map::change::remove(handle, inode, Lblk(0), u32::MAX)? == Progress::Done);
    if unmapped {
        doomed.0 = None;
        return delete(handle, inode);
    }
    store(handle, sbi, inode)?;
    handle.add_orphan(inode.ino, inode.generation)
}

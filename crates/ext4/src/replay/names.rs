//! Adds and removes directory entries.

use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Damage, Ino};

use crate::base::error::{Error, Result};
use crate::dir;
use crate::dir::namei::lookup;
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::replay::plan::Plan;
use crate::replay::{Inodes, check_room};
use uext4_ondisk::fast_commit::{ChangedNames, End};

/// Adds and removes the changed entries of all directories.
pub(super) fn apply(handle: &Handle<'_>, plan: &Plan<'_>, inodes: &mut Inodes) -> Result<()> {
    for (dir, names) in plan.names() {
        let is_new = plan.fate(dir).is_some_and(|fate| fate.end == End::New);
        // An inode that does not exist before or after has no entries.
        let Some(inode) = inodes.get_mut(&dir) else {
            continue;
        };
        if !is_new {
            take(handle, inode, names)?;
        }
        give(handle, plan, inode, names)?;
    }
    Ok(())
}

fn take(handle: &Handle<'_>, dir: &mut Inode, names: &ChangedNames) -> Result<()> {
    for name in names.iter().filter(|(_, now)| now.is_none()) {
        match dir::change::delete(handle, dir, name.0) {
            Ok(_) | Err(Error::NotFound) => check_room(handle)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn give(handle: &Handle<'_>, plan: &Plan<'_>, dir: &mut Inode, names: &ChangedNames) -> Result<()> {
    for (name, ino) in names.iter().filter_map(|(name, now)| Some((name, (*now)?))) {
        let kind = kind_of(plan, ino)?;
        match lookup(handle.sbi(), dir, name) {
            Ok(found) if found == ino => {}
            Ok(_) => _ = dir::change::replace(handle, dir, name, ino, kind)?,
            Err(Error::NotFound) => dir::change::add(handle, dir, name, ino, kind)?,
            Err(error) => return Err(error),
        }
        check_room(handle)?;
    }
    Ok(())
}

/// The file type for an entry.
fn kind_of(plan: &Plan<'_>, ino: Ino) -> Result<FileType> {
    let kind = plan.fate(ino).and_then(|fate| fate.kind);
    // Impossible: the plan rejects names of inodes that do not exist.
    kind.ok_or(Error::Corrupt(Damage::Field {
        structure: "fast commit",
        field: "inode",
        value: ino.0.into(),
        why: "it is not there",
    }))
}

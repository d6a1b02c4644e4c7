//! Entries of a large directory, looked at by several threads before the walk comes to them.
//!
//! Only what needs no decision is done ahead: `stat` and the list of extended attributes. An
//! error is reported when the walk comes to the entry, and not at all if that is left out.

use std::ffi::{CString, OsStr};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use super::Place;

/// Fewest entries that are worth a thread.
const SHARE_MIN: usize = 256;
/// Most entries of a turn: what bounds the memory.
const TURN_MAX: usize = 4096;

/// What is known of an entry.
pub(super) struct Look {
    pub(super) stat: io::Result<Stat>,
    /// The names of its extended attributes, each with a zero byte after it.
    pub(super) xattrs: Result<Vec<u8>, Errno>,
}

/// Looks at an entry without following it.
pub(super) fn stat(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Stat> {
    Ok(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn look(dir: BorrowedFd<'_>, path: &Path, name: &CString) -> Look {
    let name = OsStr::from_bytes(name.as_bytes());
    let path = path.join(name);
    Look {
        stat: stat(dir, name),
        xattrs: Place::new(&path, dir, Some(name.as_bytes())).list(),
    }
}

/// Looks at the last of these names of a directory; returns as many, in the same order. None if
/// there are too few, or there is one thread.
pub(super) fn look_ahead(
    threads: NonZeroUsize,
    dir: &OwnedFd,
    path: &Path,
    names: &[CString],
) -> Vec<Look> {
    if threads == NonZeroUsize::MIN || names.len() < 2 * SHARE_MIN {
        return Vec::new();
    }
    let names = &names[names.len().saturating_sub(TURN_MAX)..];
    let share = names.len().div_ceil(threads.get()).max(SHARE_MIN);
    let dir = dir.as_fd();
    let work = |names: &[CString]| -> Vec<Look> {
        names.iter().map(|name| look(dir, path, name)).collect()
    };
    thread::scope(|scope| {
        let (first, rest) = names.split_at(share);
        let start = |names| {
            let builder = thread::Builder::new();
            (names, builder.spawn_scoped(scope, move || work(names)))
        };
        let others: Vec<_> = rest.chunks(share).map(start).collect();
        let mut looks = work(first);
        for (names, other) in others {
            // Without a thread, or if one broke down, it is done here.
            let found = other.ok().and_then(|other| other.join().ok());
            looks.extend(found.unwrap_or_else(|| work(names)));
        }
        looks
    })
}

//! The paths of a command line, and the inodes that they name.

use std::borrow::Cow;

use uext4::{FollowLast, Image, Inode};
use uext4_ondisk::Ino;
use uext4_remote::{Node, Tree};

use crate::failure::Failure;
use crate::show::escaped;

/// The inode of a path in the image, or of `<N>`: inode number N, as in debugfs.
///
/// # Errors
/// Exit 1 if there is no such path, 4 if damage is in the way.
pub fn resolve(fs: &Image, path: &[u8], last: FollowLast) -> Result<Inode, Failure> {
    let found = match number(path) {
        Some(ino) => match fs.inode(ino) {
            // The number is the user's, so nothing in the image is wrong.
            Err(error) if error.is_unused_inode() => Err(uext4::Error::NotFound),
            found => found,
        },
        None => fs.resolve(meant(fs, path), last),
    };
    found.map_err(|error| Failure::engine(escaped(path), &error))
}

/// The same in a file system opened for writing.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_rw(fs: &Tree, path: &[u8], last: FollowLast) -> Result<Node, Failure> {
    find_rw(fs, path, last).map_err(|error| Failure::engine(escaped(path), &error))
}

/// The same with the engine's own error.
///
/// # Errors
/// As [`Volume::open_path`]; [`uext4::Error::NotPermitted`] for what is never reached by name.
pub fn find_rw(fs: &Tree, path: &[u8], last: FollowLast) -> uext4::Result<Node> {
    match number(path) {
        Some(ino) => fs.open_inode(ino),
        None => fs.open_path(&meant(fs, path), last),
    }
}

/// A file system in which a path may be there.
pub trait HasPaths {
    /// Whether it is. A symbolic link at its end is not followed.
    fn has(&self, path: &[u8]) -> bool;
}

impl HasPaths for Image {
    fn has(&self, path: &[u8]) -> bool {
        self.resolve(path, FollowLast::No).is_ok()
    }
}

impl HasPaths for Tree {
    fn has(&self, path: &[u8]) -> bool {
        self.open_path(path, FollowLast::No).is_ok()
    }
}

/// The path that is meant: `hex:…`, for a whole path or a name in it, stands for the bytes of its
/// digits, as in JSON, where there is such a path; else it is a name like others.
pub fn meant<'a>(fs: &impl HasPaths, path: &'a [u8]) -> Cow<'a, [u8]> {
    let decoded = decoded(path, |_| true).filter(|path| fs.has(path));
    decoded.map_or(Cow::Borrowed(path), Cow::Owned)
}

/// The path that is meant where its last name may be new. Of `hex:…` that stands for no name that
/// is there, only what JSON would write so is decoded: bytes that are no UTF-8, or begin with
/// `hex:`.
pub fn meant_new<'a>(fs: &impl HasPaths, path: &'a [u8]) -> Cow<'a, [u8]> {
    let meant_now = meant(fs, path);
    if !path.windows(4).any(|four| four == b"hex:") {
        return meant_now;
    }
    if matches!(meant_now, Cow::Owned(_)) || fs.has(path) {
        return meant_now;
    }
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let slash = path[..end].iter().rposition(|&b| b == b'/');
    let (dir, name) = path.split_at(slash.map_or(0, |at| at + 1));
    let needs_hex = |name: &[u8]| std::str::from_utf8(name).is_err() || name.starts_with(b"hex:");
    match decoded(name, needs_hex) {
        None if !matches!(meant(fs, dir), Cow::Owned(_)) => Cow::Borrowed(path),
        name_now => {
            let mut new = meant(fs, dir).into_owned();
            new.extend(name_now.unwrap_or_else(|| name.to_vec()));
            Cow::Owned(new)
        }
    }
}

/// A path with the names decoded that are `hex:` and digits, where the bytes are wanted; `None` if
/// none is.
fn decoded(path: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let mut is_decoded = false;
    let names = path.split(|&b| b == b'/').map(|name| {
        let digits = name
            .strip_prefix(b"hex:")
            .filter(|digits| !digits.is_empty());
        match digits.and_then(|digits| hex::decode(digits).ok()) {
            Some(bytes) if is_wanted(&bytes) => {
                is_decoded = true;
                bytes
            }
            _ => name.to_vec(),
        }
    });
    let names = names.collect::<Vec<_>>().join(&b'/');
    is_decoded.then_some(names)
}

/// The number in `<N>`.
pub fn number(path: &[u8]) -> Option<Ino> {
    let digits = path.strip_prefix(b"<")?.strip_suffix(b">")?;
    std::str::from_utf8(digits).ok()?.parse().ok().map(Ino)
}

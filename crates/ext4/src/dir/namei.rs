//! From names and paths to inodes.

use uext4_ondisk::Ino;
use uext4_ondisk::dir_entry::EXT4_NAME_LEN;
use uext4_ondisk::inode::{FileType, InodeFlags};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::dir::crypto::NameForm;
use crate::dir::htree;
use crate::dir::symlink::read_link;
use crate::dir::{check_is_dir, find_linear, is_dx};
use crate::inode::{Inode, iget};
use crate::journal::sbi::Sbi;

/// Symbolic links followed on one path, as in the kernel.
const SYMLINKS_MAX: u32 = 40;
/// Bytes of a path, symbolic links filled in: more than any honest one comes to.
const PATH_MAX: usize = 1 << 18;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowLast {
    /// What it points to is meant.
    Yes,
    /// The link itself is meant, unless the path ends in a slash.
    No,
}

/// Looks a name up in a directory.
pub(crate) fn lookup(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<Ino> {
    check_is_dir(dir)?;
    if name.len() > EXT4_NAME_LEN {
        return Err(Error::NameTooLong);
    }
    let changed = sbi
        .fast_commit()
        .and_then(|all| all.names(dir.ino)?.get(name));
    if let Some(now) = changed {
        return now.ok_or(Error::NotFound);
    }
    find(sbi, dir, name)?.ok_or(Error::NotFound)
}

/// Looks a name up in a directory whose names the caller holds, shared or alone.
pub(crate) fn lookup_held(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<Ino> {
    let plain = dir.file_type == FileType::Directory
        && !dir
            .flags
            .intersects(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD);
    let Some(rw) = sbi.rw().filter(|_| plain && !is_dot(name)) else {
        return lookup(sbi, dir, name);
    };
    if let Some(ino) = rw.names.get(dir.ino, name) {
        return Ok(ino);
    }
    let ino = lookup(sbi, dir, name)?;
    rw.names.put(dir.ino, name, ino);
    Ok(ino)
}

fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

fn find(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
    if dir.has(InodeFlags::ENCRYPT) {
        let form = NameForm::of(sbi, dir);
        return find_linear(sbi, dir, |entry| {
            entry.name == name || form.show(sbi, entry.name, entry.hash) == name
        });
    }
    // The hashes of case-insensitive directories are not those of the names as stored.
    if is_dx(sbi, dir) && !is_dot(name) && !dir.has(InodeFlags::CASEFOLD) {
        match htree::lookup(sbi, dir, name) {
            Err(Error::Unsupported { .. }) => {}
            found => return found,
        }
    }
    find_linear(sbi, dir, |entry| entry.name == name)
}

/// What a walk along a path needs to know of the inodes on the way.
pub(crate) trait Steps {
    /// An inode on the way.
    type Node;
    /// Where absolute paths begin.
    fn root(&self) -> Result<Self::Node>;
    /// The inode of a name in a directory.
    fn child(&self, dir: &Self::Node, name: &[u8]) -> Result<Self::Node>;
    /// What kind it is of.
    fn file_type(&self, node: &Self::Node) -> FileType;
    /// The target of a symbolic link.
    fn target(&self, link: &Self::Node) -> Result<Vec<u8>>;
}

/// Inodes read one by one, of any file system.
struct Read<'a>(&'a Sbi);

impl Steps for Read<'_> {
    type Node = Inode;

    fn root(&self) -> Result<Inode> {
        iget(self.0, Ino::ROOT)
    }

    fn child(&self, dir: &Inode, name: &[u8]) -> Result<Inode> {
        iget(self.0, lookup(self.0, dir, name)?)
    }

    fn file_type(&self, node: &Inode) -> FileType {
        node.file_type
    }

    fn target(&self, link: &Inode) -> Result<Vec<u8>> {
        read_link(self.0, link)
    }
}

/// Resolves a path from the root directory; see [`walk`].
pub(crate) fn resolve(sbi: &Sbi, path: &[u8], last: FollowLast) -> Result<Inode> {
    walk(&Read(sbi), path, last)
}

/// Goes along a path from the root directory; symbolic links on the way are followed, absolute ones
/// from the root of this file system. Empty parts and "." are skipped; the empty path is the root.
/// What a path that ends in a slash leads to must be a directory.
pub(crate) fn walk<S: Steps>(steps: &S, path: &[u8], last: FollowLast) -> Result<S::Node> {
    let must_be_dir = |node: &S::Node| match steps.file_type(node) {
        FileType::Directory => Ok(()),
        _ => Err(Error::NotDirectory),
    };
    let mut current = steps.root()?;
    let mut rest = path.to_vec();
    let mut at = 0;
    let mut followed = 0;
    while let Some((name, next)) = next_part(&rest, at) {
        if name == b"." {
            must_be_dir(&current)?;
            at = next;
            continue;
        }
        let child = steps.child(&current, name)?;
        let at_end = next == rest.len();
        let follow = !at_end || last == FollowLast::Yes;
        if steps.file_type(&child) != FileType::Symlink || !follow {
            current = child;
            at = next;
            continue;
        }
        followed += 1;
        if followed > SYMLINKS_MAX {
            return Err(Error::TooManySymlinks);
        }
        let mut target = steps.target(&child)?;
        if target.starts_with(b"/") {
            current = steps.root()?;
        }
        target.extend_from_slice(rest.get(next..).unwrap_or_default());
        if target.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        (rest, at) = (target, 0);
    }
    if rest.len() > 1 && rest.ends_with(b"/") {
        must_be_dir(&current)?;
    }
    Ok(current)
}

/// A path's last name, and the path of the directory it is in; whether slashes follow the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    pub(crate) dir: &'a [u8],
    /// Empty if the path is that of the root.
    pub(crate) name: &'a [u8],
    pub(crate) slash: bool,
}

/// Takes the last name off a path.
pub(crate) fn split(path: &[u8]) -> Split<'_> {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|&b| b == b'/');
    let start = start.map_or(0, |at| at + 1);
    Split {
        dir: &path[..start],
        name: &path[start..end],
        slash: end < path.len(),
    }
}

/// The part of a path at or after `at`, and where it ends.
fn next_part(path: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = path.get(at..)?;
    let start = at + rest.iter().position(|&b| b != b'/')?;
    let tail = path.get(start..)?;
    let len = tail.iter().position(|&b| b == b'/').unwrap_or(tail.len());
    Some((path.get(start..start + len)?, start + len))
}

/// Whether a directory may hold a name.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > EXT4_NAME_LEN {
        return Err(Error::NameTooLong);
    }
    match name {
        b"" => Err(Invalid::Empty("the name").into()),
        b"." | b".." => Err(Invalid::Dots.into()),
        _ => check_bytes("the name", name, b"/\0"),
    }
}

/// Whether a text has none of the bytes `forbidden`.
pub(crate) fn check_bytes(what: &'static str, text: &[u8], forbidden: &[u8]) -> Result<()> {
    match text.iter().position(|byte| forbidden.contains(byte)) {
        // OK to index: it was found there.
        Some(at) => Err(Error::Invalid(Invalid::Byte {
            what,
            byte: text[at],
            at,
        })),
        None => Ok(()),
    }
}

/// Whether a symbolic link may have this target.
pub(crate) fn check_target(target: &[u8], block_len: usize) -> Result<()> {
    let what = "the target of the symbolic link";
    if target.is_empty() {
        return Err(Invalid::Empty(what).into());
    }
    check_bytes(what, target, b"\0")?;
    // The kernel wants room for a zero behind the target.
    match target.len() < block_len {
        true => Ok(()),
        false => Err(Error::NameTooLong),
    }
}

/// Whether an inode holds something of the file system's own. No name leads to any of them.
pub(crate) fn is_hidden(sbi: &Sbi, ino: Ino) -> bool {
    let superblock = sbi.superblock();
    let own = [
        superblock.s_journal_inum,
        superblock.s_usr_quota_inum,
        superblock.s_grp_quota_inum,
        superblock.s_prj_quota_inum,
        superblock.s_orphan_file_inum,
    ];
    let reserved = ino.0 < sbi.geometry().first_ino && ino != Ino::ROOT;
    reserved || own.iter().any(|own| own.get() == ino.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        let parts = |path: &[u8]| {
            let mut at = 0;
            let mut parts = Vec::new();
            while let Some((part, next)) = next_part(path, at) {
                parts.push(String::from_utf8(part.to_vec()).unwrap());
                at = next;
            }
            parts
        };
        assert_eq!(parts(b"/a//b/c/"), ["a", "b", "c"]);
        assert_eq!(parts(b"a"), ["a"]);
        assert!(parts(b"").is_empty() && parts(b"//").is_empty());
    }

    #[test]
    fn last_names_of_paths() {
        let check = |path: &str, dir: &str, name: &str, slash| {
            let (dir, name) = (dir.as_bytes(), name.as_bytes());
            assert_eq!(split(path.as_bytes()), Split { dir, name, slash });
        };
        check("/a/b", "/a/", "b", false);
        check("a", "", "a", false);
        check("a//b//", "a//", "b", true);
        check("/a", "/", "a", false);
        check("", "", "", false);
        check("//", "", "", true);
    }
}

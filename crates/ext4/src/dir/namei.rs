//! Lookup of names and paths.

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

/// Maximum number of symbolic links followed in one path, as in the kernel.
const SYMLINKS_MAX: u32 = 40;
/// Maximum length in bytes of a path with symbolic links substituted: more than any valid path
/// needs.
const PATH_MAX: usize = 1 << 18;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowLast {
    /// The target of the link is used.
    Yes,
    /// The link itself is used, unless the path ends in a slash.
    No,
}

/// Looks up a name in a directory.
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

/// Looks up a name in a directory whose `Names` lock the caller holds, shared or exclusively.
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
    // The hashes of case-insensitive directories are not computed from the names as stored.
    if is_dx(sbi, dir) && !is_dot(name) && !dir.has(InodeFlags::CASEFOLD) {
        match htree::lookup(sbi, dir, name) {
            Err(Error::Unsupported { .. }) => {}
            found => return found,
        }
    }
    find_linear(sbi, dir, |entry| entry.name == name)
}

/// The operations on inodes that a walk along a path needs.
pub(crate) trait Steps {
    /// An inode of the path.
    type Node;
    /// The root, where absolute paths begin.
    fn root(&self) -> Result<Self::Node>;
    /// Looks up a name in a directory.
    fn child(&self, dir: &Self::Node, name: &[u8]) -> Result<Self::Node>;
    /// The file type of the inode.
    fn file_type(&self, node: &Self::Node) -> FileType;
    /// The target of a symbolic link.
    fn target(&self, link: &Self::Node) -> Result<Vec<u8>>;
}

/// Inodes that are read one by one, for any file system.
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

/// The path from the root of one that begins at the directory `dir`, whose `..` is itself, as that
/// of the root. Symbolic links on the way are not looked at: an absolute one begins at the root.
#[must_use]
pub fn path_below(dir: &[u8], path: &[u8]) -> Vec<u8> {
    let mut whole = dir.to_vec();
    let mut depth = 0u32;
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b".." if depth == 0 => continue,
            b".." => depth -= 1,
            b"" => continue,
            b"." => {}
            _ => depth += 1,
        }
        whole.push(b'/');
        whole.extend_from_slice(name);
    }
    // What it leads to must be a directory.
    if depth > 0 && path.ends_with(b"/") {
        whole.push(b'/');
    }
    whole
}

/// Follows a path from the root directory. Symbolic links in the path are followed, absolute ones
/// from the root of this file system. Empty components and "." are skipped; the empty path is the
/// root. A path that ends in a slash must lead to a directory.
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

/// A path's last name and the path of its directory; whether slashes follow the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    pub(crate) dir: &'a [u8],
    /// Empty if the path is that of the root.
    pub(crate) name: &'a [u8],
    pub(crate) slash: bool,
}

/// Splits off the last name of a path.
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

/// The path component at or after `at`, and its end.
fn next_part(path: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = path.get(at..)?;
    let start = at + rest.iter().position(|&b| b != b'/')?;
    let tail = path.get(start..)?;
    let len = tail.iter().position(|&b| b == b'/').unwrap_or(tail.len());
    Some((path.get(start..start + len)?, start + len))
}

/// Checks that a directory may contain this name.
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

/// Checks that a text contains none of the bytes `forbidden`.
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

/// Checks that a symbolic link may have this target.
pub(crate) fn check_target(target: &[u8], block_len: usize) -> Result<()> {
    let what = "the target of the symbolic link";
    if target.is_empty() {
        return Err(Invalid::Empty(what).into());
    }
    check_bytes(what, target, b"\0")?;
    // The kernel requires space for a zero byte after the target.
    match target.len() < block_len {
        true => Ok(()),
        false => Err(Error::TargetTooLong {
            len: target.len(),
            block_len,
        }),
    }
}

/// Whether an inode is internal to the file system, such as the journal. No name refers to such
/// an inode.
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

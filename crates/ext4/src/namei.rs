//! From names and paths to inodes.

use uext4_ondisk::Ino;
use uext4_ondisk::dir_entry::EXT4_NAME_LEN;
use uext4_ondisk::inode::{FileType, InodeFlags};

use crate::crypto::NameForm;
use crate::dir::{check_is_dir, find_linear, is_dx};
use crate::error::{Error, Result};
use crate::htree;
use crate::inode::{Inode, iget};
use crate::sbi::Sbi;
use crate::symlink::read_link;

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
///
/// # Errors
/// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NameTooLong`], damage, device errors.
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

fn find(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
    if dir.has(InodeFlags::ENCRYPT) {
        let form = NameForm::of(sbi, dir);
        return find_linear(sbi, dir, |entry| {
            entry.name == name || form.show(sbi, entry.name, entry.hash) == name
        });
    }
    let dots = name == b"." || name == b"..";
    // The hashes of case-insensitive directories are not those of the names as stored.
    if is_dx(sbi, dir) && !dots && !dir.has(InodeFlags::CASEFOLD) {
        match htree::lookup(sbi, dir, name) {
            Err(Error::Unsupported { .. }) => {}
            found => return found,
        }
    }
    find_linear(sbi, dir, |entry| entry.name == name)
}

/// Resolves a path from the root directory; symbolic links on the way are followed, absolute ones
/// from the root of this file system. Empty parts and "." are skipped; the empty path is the root.
///
/// # Errors
/// Those of [`lookup`], [`Error::TooManySymlinks`].
pub(crate) fn resolve(sbi: &Sbi, path: &[u8], last: FollowLast) -> Result<Inode> {
    let mut current = iget(sbi, Ino::ROOT)?;
    let mut rest = path.to_vec();
    let mut at = 0;
    let mut followed = 0;
    while let Some((name, next)) = next_part(&rest, at) {
        if name == b"." {
            check_is_dir(&current)?;
            at = next;
            continue;
        }
        let child = iget(sbi, lookup(sbi, &current, name)?)?;
        let at_end = next == rest.len();
        let follow = !at_end || last == FollowLast::Yes;
        if child.file_type != FileType::Symlink || !follow {
            current = child;
            at = next;
            continue;
        }
        followed += 1;
        if followed > SYMLINKS_MAX {
            return Err(Error::TooManySymlinks);
        }
        let mut target = read_link(sbi, &child)?;
        if target.starts_with(b"/") {
            current = iget(sbi, Ino::ROOT)?;
        }
        target.extend_from_slice(rest.get(next..).unwrap_or_default());
        if target.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        (rest, at) = (target, 0);
    }
    if rest.len() > 1 && rest.ends_with(b"/") {
        check_is_dir(&current)?;
    }
    Ok(current)
}

/// The part of a path at or after `at`, and where it ends.
fn next_part(path: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = path.get(at..)?;
    let start = at + rest.iter().position(|&b| b != b'/')?;
    let tail = path.get(start..)?;
    let len = tail.iter().position(|&b| b == b'/').unwrap_or(tail.len());
    Some((path.get(start..start + len)?, start + len))
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
}

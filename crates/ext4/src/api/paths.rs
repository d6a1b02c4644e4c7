//! Operations by path, on top of inode handles: those of [`OpenInode`] on a name in a directory,
//! with the path of the name.
//!
//! Every path begins at the root, with or without a leading slash; paths are bytes, not text.
//! Symbolic links in the path are followed, at most 40, absolute ones from the root of this file
//! system; ".." of the root is the root. A slash at the end requires a directory.
//!
//! Between the lookup of the directory and its use, other threads may rename it: the name is then
//! created or removed in the directory that was found, as with the kernel's system calls. Every
//! call is atomic except [`Volume::create_dir_all`] and [`Volume::remove_all`], which make one
//! step per name.

use std::collections::HashSet;

use uext4_ondisk::inode::FileType;
use uext4_ondisk::{Damage, Ino};

use crate::api::open_inode::OpenInode;
use crate::api::volume::Volume;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::bulk::NewInode;
use crate::dir::namei::{FollowLast, Split, split};
use crate::names::create::Creation;
use crate::names::rename::RenameMode;

/// Number of names of a directory that are listed before they are removed.
const NAMES_MAX: usize = 4096;

/// Operations by path on a file system opened for writing.
impl Volume {
    /// The inode of a path; the empty path is the root.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NameTooLong`],
    /// [`Error::TooManySymlinks`], damage, device errors.
    pub fn open_path(&self, path: impl AsRef<[u8]>, last: FollowLast) -> Result<OpenInode> {
        self.in_use().resolve(path.as_ref(), last)
    }

    /// The directory that contains the last name of a path, or would contain it, and that name.
    /// Slashes after it are removed.
    ///
    /// # Errors
    /// As [`Volume::open_path`]; [`Error::Invalid`] for the root, which has no name.
    pub fn open_parent<'a>(&self, path: &'a [u8]) -> Result<(OpenInode, &'a [u8])> {
        let (dir, split) = self.parent(path)?;
        Ok((dir, split.name))
    }

    fn parent<'a>(&self, path: &'a [u8]) -> Result<(OpenInode, Split<'a>)> {
        let split = split(path);
        if split.name.is_empty() {
            return Err(Error::Invalid(Invalid::Root));
        }
        let dir = self.open_path(split.dir, FollowLast::Yes)?;
        if dir.0.inode.read().file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        Ok((dir, split))
    }

    /// Creates an inode of any kind.
    ///
    /// # Errors
    /// As [`Volume::open_path`] for the directory and [`OpenInode::create`] for the name;
    /// [`Error::Exists`] for the root, "." and ".."; [`Error::IsDirectory`] for a slash at the
    /// end if `kind` is not a directory.
    pub fn create(
        &self,
        path: impl AsRef<[u8]>,
        kind: NewInode<'_>,
        how: &Creation,
    ) -> Result<OpenInode> {
        let path = path.as_ref();
        if split(path).name.is_empty() {
            return Err(Error::Exists);
        }
        let (dir, last) = self.parent(path)?;
        if is_dots(last.name) {
            return Err(Error::Exists);
        }
        if last.slash && kind.file_type() != FileType::Directory {
            return Err(Error::IsDirectory);
        }
        dir.create(last.name, kind, how)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`Volume::create`].
    pub fn create_dir(&self, path: impl AsRef<[u8]>, how: &Creation) -> Result<OpenInode> {
        self.create(path, NewInode::Directory, how)
    }

    /// Creates a directory and all missing directories of its path; existing ones are left
    /// unchanged.
    ///
    /// # Errors
    /// As [`Volume::create`]; [`Error::Exists`] if the last name exists and is not a directory,
    /// [`Error::NotDirectory`] if another one is not.
    pub fn create_dir_all(&self, path: impl AsRef<[u8]>, how: &Creation) -> Result<OpenInode> {
        let path = path.as_ref();
        let mut end = 0;
        let mut dir = self.root()?;
        while let Some(start) = path[end..].iter().position(|&b| b != b'/') {
            let start = end + start;
            let len = path[start..].iter().position(|&b| b == b'/');
            end = len.map_or(path.len(), |len| start + len);
            let name = &path[start..end];
            // Links are resolved from the root, as their targets may be anywhere.
            dir = match self.open_path(&path[..end], FollowLast::Yes) {
                Err(Error::NotFound) => match dir.create(name, NewInode::Directory, how) {
                    // Another thread created it first, or it is a dangling link: the lookup shows
                    // which.
                    Err(Error::Exists) => self.open_path(&path[..end], FollowLast::Yes)?,
                    made => made?,
                },
                found => found?,
            };
            let is_dir = dir.0.inode.read().file_type == FileType::Directory;
            let is_last = path[end..].iter().all(|&b| b == b'/');
            match (is_dir, is_last) {
                (true, _) => {}
                (false, true) => return Err(Error::Exists),
                (false, false) => return Err(Error::NotDirectory),
            }
        }
        Ok(dir)
    }

    /// Creates a symbolic link to `target`, which need not exist.
    ///
    /// # Errors
    /// As [`Volume::create`]; [`Error::Invalid`] and [`Error::NameTooLong`] for the target.
    pub fn symlink(
        &self,
        target: &[u8],
        path: impl AsRef<[u8]>,
        how: &Creation,
    ) -> Result<OpenInode> {
        self.create(path, NewInode::Symlink(target), how)
    }

    /// Adds the name `new` for the inode with the path `old`. A symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Volume::open_path`] and [`OpenInode::link`]; [`Error::Exists`] for the root, "." and
    /// ".."; [`Error::NotFound`] for a slash at the end of `new`.
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let inode = self.open_path(old, FollowLast::No)?;
        if inode.0.inode.read().file_type == FileType::Directory {
            return Err(Error::IsDirectory);
        }
        let last = split(new);
        if last.name.is_empty() || is_dots(last.name) {
            return Err(Error::Exists);
        }
        let (dir, last) = self.parent(new)?;
        if last.slash {
            return Err(Error::NotFound);
        }
        inode.link(&dir, last.name)
    }

    /// Removes a name, of an empty directory or of any other inode. A symbolic link is not
    /// followed.
    ///
    /// # Errors
    /// As [`Volume::open_path`], [`OpenInode::unlink`] and [`OpenInode::rmdir`];
    /// [`Error::Invalid`] for the root, "." and ".."; [`Error::NotDirectory`] for a slash after a
    /// name that is not a directory.
    pub fn remove(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let (dir, last) = self.removable(path)?;
        if last.slash {
            return dir.rmdir(last.name);
        }
        match dir.unlink(last.name) {
            Err(Error::IsDirectory) => dir.rmdir(last.name),
            done => done,
        }
    }

    /// Removes a name, and for a directory first everything in it. Symbolic links are not
    /// followed. Names that were removed before an error stay removed.
    ///
    /// # Errors
    /// As [`Volume::remove`].
    pub fn remove_all(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let (dir, last) = self.removable(path)?;
        if !last.slash {
            match dir.unlink(last.name) {
                Err(Error::IsDirectory) => {}
                done => return done,
            }
        }
        let mut levels = vec![Level::enter(&dir, last.name.to_vec())?];
        // The directories above: one that contains one of them again would never become empty.
        let mut above = HashSet::from([dir.ino(), levels[0].dir.ino()]);
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.next()? {
                match level.dir.unlink(&name) {
                    Err(Error::IsDirectory) => {
                        let below = match Level::enter(&level.dir, name.clone()) {
                            Err(Error::NotFound) => {
                                level.missing = Some(name);
                                continue;
                            }
                            entered => entered?,
                        };
                        if !above.insert(below.dir.ino()) {
                            return Err(elsewhere(below.dir.ino()));
                        }
                        levels.push(below);
                    }
                    // Another thread removed it, or the directory's index does not find it.
                    Err(Error::NotFound) => level.missing = Some(name),
                    done => {
                        done?;
                        level.taken += 1;
                    }
                }
                continue;
            }
            let empty = levels.pop();
            if let Some(Level {
                dir: empty, name, ..
            }) = empty
            {
                above.remove(&empty.ino());
                drop(empty);
                let parent = levels.last().map_or(&dir, |level| &level.dir);
                parent.rmdir(&name)?;
            }
            if let Some(level) = levels.last_mut() {
                level.taken += 1;
            }
        }
        Ok(())
    }

    fn removable<'a>(&self, path: &'a [u8]) -> Result<(OpenInode, Split<'a>)> {
        let (dir, last) = self.parent(path)?;
        if is_dots(last.name) {
            return Err(Error::Invalid(Invalid::Dots));
        }
        Ok((dir, last))
    }

    /// Renames the path `old` to `new`, atomically. Symbolic links at the end are not followed.
    ///
    /// # Errors
    /// As [`Volume::open_path`] and [`OpenInode::rename`]; [`Error::Invalid`] for the root, "."
    /// and ".."; [`Error::NotDirectory`] for a slash at the end if the moved inode is not a
    /// directory.
    pub fn rename(
        &self,
        old: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        mode: RenameMode,
    ) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let (from, old) = self.removable(old)?;
        let (to, new) = self.removable(new)?;
        if old.slash || new.slash {
            let moved = from.lookup(old.name)?;
            if moved.0.inode.read().file_type != FileType::Directory {
                return Err(Error::NotDirectory);
            }
        }
        from.rename(old.name, &to, new.name, mode)
    }
}

/// A directory that is being emptied.
struct Level {
    dir: OpenInode,
    name: Vec<u8>,
    /// Some of its names, to be removed from the end.
    names: Vec<Vec<u8>>,
    /// Number of names removed since they were listed.
    taken: usize,
    /// A name that was listed and not found afterwards.
    missing: Option<Vec<u8>>,
}

impl Level {
    /// Opens a directory by name; its ".." must be the directory that contains it.
    fn enter(parent: &OpenInode, name: Vec<u8>) -> Result<Self> {
        let dir = parent.lookup(&name)?;
        let is_dir = dir.0.inode.read().file_type == FileType::Directory;
        if is_dir && dir.lookup(b"..")?.ino() != parent.ino() {
            // Another thread may have moved it since: the name then refers to another inode, or
            // to none.
            return match parent.lookup(&name)?.ino() == dir.ino() {
                true => Err(elsewhere(dir.ino())),
                false => Err(Error::NotFound),
            };
        }
        Ok(Self {
            dir,
            name,
            names: Vec::new(),
            taken: 0,
            missing: None,
        })
    }

    /// Returns a name that still has to be removed.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.names.is_empty() {
            self.list()?;
        }
        Ok(self.names.pop())
    }

    /// Lists names that still have to be removed.
    fn list(&mut self) -> Result<()> {
        let names = &mut self.names;
        // From the start: all names listed before have been removed.
        self.dir.list(0, &mut |listed| {
            if !is_dots(listed.name) {
                names.push(listed.name.to_vec());
            }
            names.len() < NAMES_MAX
        })?;
        let missing = self.missing.take().filter(|_| self.taken == 0);
        self.taken = 0;
        match missing.filter(|missing| self.names.contains(missing)) {
            None => Ok(()),
            Some(_) => Err(Error::Corrupt(Damage::Directory {
                ino: self.dir.ino(),
                why: "a name that it lists cannot be found in it: run e2fsck",
            })),
        }
    }
}

/// The error for a directory that has a name in a directory that is not its parent.
fn elsewhere(ino: Ino) -> Error {
    Error::Corrupt(Damage::Directory {
        ino,
        why: "it has a name in a directory that is not its parent, or lies in itself",
    })
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};

    use super::*;
    use crate::mount::open_options::OpenOptions;
    use crate::testing::{e2fsck, mke2fs};

    const HOW: Creation = Creation {
        mode: 0o755,
        umask: 0,
        uid: 1,
        gid: 2,
    };

    fn open(flags: &str) -> (Arc<MemoryDevice>, Volume) {
        let memory = mke2fs(flags, 16 << 10);
        let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&memory);
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let fs = Volume::open(device, clock, &OpenOptions::default()).unwrap();
        (memory, fs)
    }

    fn close((memory, fs): (Arc<MemoryDevice>, Volume)) {
        fs.close().unwrap();
        e2fsck(&memory);
    }

    #[test]
    fn names_are_made_moved_and_taken_by_path() {
        let opened = open("-t ext4");
        let fs = &opened.1;
        let deep = fs.create_dir_all(b"a//b/./c/", &HOW).unwrap().ino();
        assert_eq!(fs.create_dir_all(b"/a/b/c", &HOW).unwrap().ino(), deep);
        let file = fs.create(b"/a/b/c/file", NewInode::File, &HOW).unwrap();
        fs.symlink(b"b/c", b"/a/link", &HOW).unwrap();
        fs.link(b"/a/link/file", b"/second").unwrap();
        let found = fs.open_path(b"a/link/../../c/file", FollowLast::Yes);
        assert!(matches!(found, Err(Error::NotFound)));
        let found = fs.open_path(b"/a/link/../c/file", FollowLast::Yes).unwrap();
        assert_eq!((found.ino(), found.inode().links), (file.ino(), 2));
        fs.rename(b"/second", b"/a/link/moved", RenameMode::NoReplace)
            .unwrap();
        fs.rename(b"/a/b/", b"/b/", RenameMode::Replace).unwrap();
        assert!(fs.open_path(b"/b/c/moved", FollowLast::Yes).is_ok());
        fs.remove(b"/b/c/moved").unwrap();
        assert!(matches!(fs.remove(b"/b/c/"), Err(Error::NotEmpty)));
        drop((file, found));
        fs.remove_all(b"b").unwrap();
        fs.remove(b"/a/link").unwrap();
        fs.remove(b"/a/").unwrap();
        assert!(fs.open_path(b"/a", FollowLast::No).is_err());
        close(opened);
    }

    #[test]
    fn slashes_and_dots_at_the_end() {
        let opened = open("-t ext4");
        let fs = &opened.1;
        fs.create_dir(b"/dir/", &HOW).unwrap();
        fs.create(b"/file", NewInode::File, &HOW).unwrap();
        fs.symlink(b"dir", b"/link", &HOW).unwrap();
        fs.symlink(b"loop", b"/loop", &HOW).unwrap();
        let made = |path: &[u8], kind| fs.create(path, kind, &HOW).map(|_| ());
        assert!(matches!(
            made(b"/new/", NewInode::File),
            Err(Error::IsDirectory)
        ));
        for path in [&b"/"[..], b"", b"/dir/.", b"dir/..", b"/dir", b"/link"] {
            let result = made(path, NewInode::Directory);
            assert!(matches!(result, Err(Error::Exists)), "{path:?}: {result:?}");
        }
        assert!(matches!(
            made(b"/file/x", NewInode::File),
            Err(Error::NotDirectory)
        ));
        assert!(matches!(
            fs.create_dir_all(b"/file/x", &HOW),
            Err(Error::NotDirectory)
        ));
        assert!(matches!(
            fs.create_dir_all(b"/file", &HOW),
            Err(Error::Exists)
        ));
        assert!(matches!(fs.remove(b"/file/"), Err(Error::NotDirectory)));
        assert!(matches!(fs.remove(b"/link/"), Err(Error::NotDirectory)));
        assert!(matches!(fs.remove(b"/dir/."), Err(Error::Invalid { .. })));
        assert!(matches!(fs.remove_all(b"/"), Err(Error::Invalid { .. })));
        assert!(matches!(
            fs.link(b"/file", b"/again/"),
            Err(Error::NotFound)
        ));
        assert!(matches!(
            fs.link(b"/dir", b"/again"),
            Err(Error::IsDirectory)
        ));
        assert!(matches!(
            fs.rename(b"/file", b"/other/", RenameMode::Replace),
            Err(Error::NotDirectory)
        ));
        let loops = fs.open_path(b"/loop", FollowLast::Yes);
        assert!(matches!(loops, Err(Error::TooManySymlinks)));
        assert!(fs.open_path(b"/loop", FollowLast::No).is_ok());
        assert!(fs.open_path(b"/file/", FollowLast::No).is_err());
        assert!(fs.open_path(b"/link/", FollowLast::No).is_ok());
        close(opened);
    }

    #[test]
    fn large_and_deep_trees_go_whole() {
        let opened = open("-t ext4 -b 1024 -N 8000");
        let fs = &opened.1;
        let dir = fs.create_dir(b"/wide", &HOW).unwrap();
        for number in 0..NAMES_MAX + 500 {
            let name = format!("name {number}");
            dir.create(name.as_bytes(), NewInode::File, &HOW).unwrap();
        }
        drop(dir);
        fs.create_dir_all(b"/wide/deep".repeat(100), &HOW).unwrap();
        fs.symlink(b"/lost+found", b"/wide/link", &HOW).unwrap();
        let before = fs.open_path(b"/lost+found", FollowLast::No).unwrap().ino();
        fs.remove_all(b"/wide").unwrap();
        let after = fs.open_path(b"/lost+found", FollowLast::No).unwrap().ino();
        assert_eq!(before, after);
        close(opened);
    }
}

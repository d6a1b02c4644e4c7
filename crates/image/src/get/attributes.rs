//! What a copy restores besides names and contents.
//!
//! Owners, modes and attributes are set by functions of the C library, which `fakeroot` and
//! `pseudo` replace: those of `std` where rustix makes the system call itself.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use uext4::Inode;
use uext4::xattr::Xattr;
use uext4_ondisk::inode::{FileType, Timestamp};

/// Restores attributes, and counts what the destination refuses.
#[derive(Debug)]
pub struct Restorer {
    is_root: bool,
    /// What was refused so far.
    pub refused: Refused,
}

/// What the destination refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Owners that root could not set.
    pub owners: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Files that lost set-user-id or set-group-id, as they have another owner here.
    pub set_ids: u64,
}

impl Restorer {
    /// Ready; owners are restored by root only.
    pub fn new() -> Self {
        Self {
            is_root: rustix::process::geteuid().is_root(),
            refused: Refused::default(),
        }
    }

    /// Restores all of an open file or directory.
    ///
    /// The order matters: a new owner takes away set-id bits and capabilities; user xattrs want a
    /// file that may be written; everything changes times.
    pub fn opened(
        &mut self,
        fd: BorrowedFd<'_>,
        inode: &Inode,
        xattrs: &[Xattr],
    ) -> io::Result<()> {
        if self.is_root {
            let (uid, gid) = (known(inode.uid), known(inode.gid));
            self.owner(std::os::unix::fs::fchown(fd, uid, gid))?;
        }
        for xattr in xattrs {
            let name = &xattr.name[..];
            let result = rustix::fs::fsetxattr(fd, name, &xattr.value, XattrFlags::empty());
            self.xattr(result)?;
        }
        let mode = self.mode(inode, || rustix::fs::fstat(fd))?;
        let mode = Permissions::from_mode(mode.as_raw_mode());
        File::from(fd.try_clone_to_owned()?).set_permissions(mode)?;
        rustix::fs::futimens(fd, &times(inode))?;
        Ok(())
    }

    /// Restores all of something in `dir` that cannot be opened: a link, fifo, socket or device.
    pub fn special(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        inode: &Inode,
        xattrs: &[Xattr],
    ) -> io::Result<()> {
        if self.is_root {
            let (uid, gid) = (known(inode.uid), known(inode.gid));
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            let result = rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
            self.owner(result.map_err(Into::into))?;
        }
        // There is no lsetxattr relative to a directory; this path names it all the same.
        let dir_path = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let path = Path::new(&dir_path).join(OsStr::from_bytes(name));
        for xattr in xattrs {
            let key = &xattr.name[..];
            let flags = XattrFlags::empty();
            let result = rustix::fs::lsetxattr(&path, key, &xattr.value, flags);
            self.xattr(result)?;
        }
        if inode.file_type != FileType::Symlink {
            // We have just made it, and it is no symbolic link.
            let look = || rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
            let mode = self.mode(inode, look)?;
            fs::set_permissions(&path, Permissions::from_mode(mode.as_raw_mode()))?;
        }
        rustix::fs::utimensat(dir, name, &times(inode), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    /// The mode to restore: with set-user-id and set-group-id only if what was made, whose owner
    /// and group `look` shows, belongs to the user and the group it belongs to in the image. A
    /// program that is root's in the image would otherwise run with the rights of the user that
    /// copied it.
    fn mode(&mut self, inode: &Inode, look: impl Fn() -> Result<Stat, Errno>) -> io::Result<Mode> {
        let mode = Mode::from_raw_mode(u32::from(inode.mode & 0o7777));
        let set_id = Mode::SUID | Mode::SGID;
        if !mode.intersects(set_id) {
            return Ok(mode);
        }
        let made = look()?;
        if (made.st_uid, made.st_gid) == (inode.uid, inode.gid) {
            return Ok(mode);
        }
        self.refused.set_ids += 1;
        Ok(mode.difference(set_id))
    }

    /// Takes the result of restoring an owner. An ordinary user has no right to that.
    fn owner(&mut self, result: io::Result<()>) -> io::Result<()> {
        match result.as_ref().map_err(io::Error::kind) {
            // Inside a user namespace some ids do not exist.
            Err(io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {
                self.refused.owners += u64::from(self.is_root);
            }
            _ => result?,
        }
        Ok(())
    }

    fn xattr(&mut self, result: Result<(), Errno>) -> io::Result<()> {
        match result {
            Err(
                Errno::PERM
                | Errno::ACCESS
                | Errno::NOTSUP
                | Errno::INVAL
                | Errno::NODATA
                | Errno::NOENT
                | Errno::NOSPC
                | Errno::TOOBIG
                | Errno::RANGE,
            ) => self.refused.xattrs += 1,
            result => result?,
        }
        Ok(())
    }
}

/// All ones mean "as it is" to the system call, and are no valid id.
fn known(id: u32) -> Option<u32> {
    Some(id).filter(|&id| id != u32::MAX)
}

fn times(inode: &Inode) -> Timestamps {
    let timespec = |time: Timestamp| Timespec {
        tv_sec: time.sec,
        tv_nsec: time.nsec.into(),
    };
    Timestamps {
        last_access: timespec(inode.atime),
        last_modification: timespec(inode.mtime),
    }
}

/// Whether a file has the modification time that is restored; some file systems keep whole seconds.
pub fn has_times_of(stat: &Stat, inode: &Inode) -> bool {
    let nsec = stat.st_mtime_nsec;
    stat.st_mtime == inode.mtime.sec && (nsec == i64::from(inode.mtime.nsec) || nsec == 0)
}

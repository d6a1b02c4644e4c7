//! Owners, permission bits and devices where a library is preloaded, as `fakeroot` and `pseudo`
//! do: it notes those that it is asked for by calls of the C library, and shows them afterwards.
//! A device that only the library knows of is made by mknod(1), as there is no safe call for it
//! here.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::preload::is_preloaded;
use rustix::fs::{FileType, major, minor};
use uext4::Inode;

use super::{device, host_type};

/// What was made and gets its attributes.
#[derive(Debug)]
pub enum Made {
    /// A file or directory that is open.
    Open(File),
    /// Something that cannot be opened.
    Special(PathBuf),
}

impl Made {
    /// An open file; `None` where nothing is preloaded.
    pub fn opened(fd: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        match is_preloaded() {
            true => Ok(Some(Self::Open(File::from(fd.try_clone_to_owned()?)))),
            false => Ok(None),
        }
    }

    /// A name in a directory; `None` where nothing is preloaded.
    pub fn special(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Self> {
        is_preloaded().then(|| Self::Special(path_of(dir, name)))
    }

    /// Gives it the owner of `inode`. The library may have no such right either.
    pub fn chown(&self, inode: &Inode) -> io::Result<()> {
        let owner = (Some(inode.uid), Some(inode.gid));
        match self {
            Self::Open(file) => std::os::unix::fs::fchown(file, owner.0, owner.1),
            Self::Special(path) => std::os::unix::fs::lchown(path, owner.0, owner.1),
        }
    }

    /// Gives it permission bits; it is no symbolic link, which has none of its own.
    pub fn chmod(&self, mode: u32) -> io::Result<()> {
        let mode = Permissions::from_mode(mode);
        match self {
            Self::Open(file) => file.set_permissions(mode),
            Self::Special(path) => fs::set_permissions(path, mode),
        }
    }

    /// Its owner and group, as the library shows them.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        let found = match self {
            Self::Open(file) => file.metadata()?,
            Self::Special(path) => fs::symlink_metadata(path)?,
        };
        Ok((found.uid(), found.gid()))
    }
}

/// Makes the device of `inode`; false where nothing is preloaded, or mknod(1) did not do it.
pub fn make_device(dir: BorrowedFd<'_>, name: &[u8], inode: &Inode) -> bool {
    let kind = match host_type(inode) {
        FileType::CharacterDevice => "c",
        FileType::BlockDevice => "b",
        _ => return false,
    };
    let number = device(inode);
    let made = is_preloaded().then(|| {
        Command::new("mknod")
            .args(["-m", "600"])
            .arg(path_of(dir, name))
            .args([kind, &major(number).to_string(), &minor(number).to_string()])
            .output()
    });
    matches!(made, Some(Ok(output)) if output.status.success())
}

/// A path to a name in an open directory, also for the programs that this one starts.
fn path_of(dir: BorrowedFd<'_>, name: &[u8]) -> PathBuf {
    let dir = format!("/proc/{}/fd/{}", std::process::id(), dir.as_raw_fd());
    Path::new(&dir).join(OsStr::from_bytes(name))
}

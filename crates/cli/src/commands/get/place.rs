//! The directory of the destination where the copy is at work.
//!
//! One descriptor is open at a time however deep the tree is. Going down never follows a symbolic
//! link; going up takes `..` and makes sure that it is the directory we came from.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// An open directory below the destination.
#[derive(Debug)]
pub struct Place {
    here: OwnedFd,
    /// Device and inode of the directories above, outermost first.
    above: Vec<(u64, u64)>,
    /// The directory that holds the walk's top, and the top's name in it once entered.
    base: Option<OwnedFd>,
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.here.as_fd()
    }
}

impl Place {
    /// Opens the directory the copy is to be made in; symbolic links on the way are the user's own.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        Ok(Self {
            here: rustix::fs::open(path, flags, Mode::empty())?,
            above: Vec::new(),
            base: None,
        })
    }

    /// Makes a directory, or makes sure that the one that exists is no symbolic link.
    pub fn make_dir(&self, name: &[u8]) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.here, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => {
                rustix::fs::openat(&self.here, name, DIRECTORY, Mode::empty())?;
                Ok(())
            }
            made => Ok(made?),
        }
    }

    /// Goes down into a directory.
    pub fn enter(&mut self, name: &[u8]) -> Result<(), Errno> {
        let below = rustix::fs::openat(&self.here, name, DIRECTORY, Mode::empty())?;
        self.above.push(identity(&self.here)?);
        if self.base.is_none() {
            self.base = Some(
                below
                    .try_clone()
                    .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::MFILE))?,
            );
        }
        self.here = below;
        Ok(())
    }

    /// Goes up, and returns the directory that was left.
    pub fn leave(&mut self) -> io::Result<OwnedFd> {
        let up = rustix::fs::openat(&self.here, c"..", DIRECTORY, Mode::empty())?;
        if self.above.pop() != Some(identity(&up)?) {
            return Err(io::Error::other(
                "the directory was moved away while it was written",
            ));
        }
        Ok(std::mem::replace(&mut self.here, up))
    }

    /// Makes `name` another link to the file at `first`, a path below the walk's top that this copy
    /// has made.
    pub fn link(&self, first: &[u8], name: &[u8]) -> io::Result<()> {
        let base = self.base.as_ref().unwrap_or(&self.here);
        // Its directories were made or entered by us; none of them is a symbolic link.
        rustix::fs::linkat(base, first, &self.here, name, AtFlags::empty())?;
        Ok(())
    }

    /// Removes a file that stands in the way; a directory is left to fail later.
    pub fn remove(&self, name: &[u8]) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.here, name, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::ISDIR) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn identity(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

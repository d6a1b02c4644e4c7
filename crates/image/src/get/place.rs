//! The directory of the destination where the copy is at work.
//!
//! One descriptor is open at a time however deep the tree is. Going down never follows a symbolic
//! link; going up takes `..` and makes sure that it is the directory we came from.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use crate::put::Existing;
use rustix::fs::{Access, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::aside::Aside;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// An open directory below the destination.
#[derive(Debug)]
pub struct Place {
    here: Rc<OwnedFd>,
    /// Device and inode of the directories above, outermost first.
    above: Vec<(u64, u64)>,
    /// The walk's top, once entered.
    base: Option<Rc<OwnedFd>>,
    /// The walk's top is the directory that was opened: leaving it does not go up.
    is_top: bool,
    /// Files without a name can be made and linked here.
    can_be_unnamed: bool,
}

impl Place {
    /// Opens the directory the copy is to be made in; symbolic links on the way are the user's own.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        Ok(Self {
            here: Rc::new(rustix::fs::open(path, flags, Mode::empty())?),
            above: Vec::new(),
            base: None,
            is_top: false,
            can_be_unnamed: rustix::fs::access("/proc/self/fd", Access::EXISTS).is_ok(),
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

    /// Goes down into a directory; `None` stays in the one that was opened, which is the walk's
    /// top.
    pub fn enter(&mut self, name: Option<&[u8]>) -> Result<(), Errno> {
        let below = match name {
            Some(name) => {
                let below = rustix::fs::openat(&self.here, name, DIRECTORY, Mode::empty())?;
                self.above.push(identity(&self.here)?);
                Rc::new(below)
            }
            None => {
                self.is_top = true;
                Rc::clone(&self.here)
            }
        };
        self.base.get_or_insert_with(|| Rc::clone(&below));
        self.here = below;
        Ok(())
    }

    /// Goes up, and returns the directory that was left.
    pub fn leave(&mut self) -> io::Result<Rc<OwnedFd>> {
        if self.above.is_empty() && self.is_top {
            return Ok(Rc::clone(&self.here));
        }
        let up = rustix::fs::openat(&self.here, c"..", DIRECTORY, Mode::empty())?;
        if self.above.pop() != Some(identity(&up)?) {
            return Err(io::Error::other(
                "the directory was moved away while it was written",
            ));
        }
        Ok(std::mem::replace(&mut self.here, Rc::new(up)))
    }

    /// What is at a name, itself; `None` if nothing is.
    pub fn look(&self, name: &[u8]) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.here, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.here, name, Vec::new())?.into_bytes())
    }

    /// Makes `name` another link to the file at `first`, a path below the walk's top that this copy
    /// has made or accepted.
    pub fn link(&self, first: &[u8], name: &[u8], existing: Existing) -> io::Result<()> {
        let base = self.base.as_ref().unwrap_or(&self.here);
        let (dir, first) = match first.iter().rposition(|&b| b == b'/') {
            Some(slash) => (beneath(base, &first[..slash])?, &first[slash + 1..]),
            None => (Rc::clone(base), first),
        };
        let flags = AtFlags::empty();
        if existing == Existing::Refuse {
            return Ok(rustix::fs::linkat(&dir, first, &self.here, name, flags)?);
        }
        let linked = self.aside(|here, aside| rustix::fs::linkat(&dir, first, here, aside, flags));
        linked?.publish(name, existing)
    }

    /// Makes something that is to get its name later.
    pub fn aside(
        &self,
        make: impl FnMut(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<()>,
    ) -> io::Result<Aside> {
        Aside::make(&self.here, make)
    }

    /// Makes an empty regular file that is to get its name later.
    pub fn file(&mut self) -> io::Result<(Rc<File>, Aside)> {
        Aside::file(&self.here, &mut self.can_be_unnamed)
    }
}

/// Opens a directory below another; no component may be a symbolic link.
fn beneath(base: &Rc<OwnedFd>, path: &[u8]) -> Result<Rc<OwnedFd>, Errno> {
    let mut dir = Rc::clone(base);
    for name in path.split(|&b| b == b'/') {
        dir = Rc::new(rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty())?);
    }
    Ok(dir)
}

fn identity(fd: impl AsFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

//! What is made without its name, and gets it when it is complete.
//!
//! Regular files have no name at all until then where the file system can do that (`O_TMPFILE`);
//! everything else, and files elsewhere, have a random one in the same directory, which goes away
//! with the [`Aside`] unless the process is killed.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::put::Existing;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Tries of a random name before it is an error that all are in use.
const TRIES: u32 = 16;

/// Something new in a directory that has not its name yet.
#[derive(Debug)]
pub struct Aside {
    dir: Rc<OwnedFd>,
    new: New,
}

#[derive(Debug)]
enum New {
    /// A regular file without a name.
    Unnamed(Rc<File>),
    /// Anything, under a name that is removed when this is dropped.
    Named(Vec<u8>),
}

impl Aside {
    /// Makes something by `make`, which is given the directory and a name to make it under.
    ///
    /// # Errors
    /// What `make` says.
    pub fn make(
        dir: &Rc<OwnedFd>,
        mut make: impl FnMut(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<()>,
    ) -> io::Result<Self> {
        for _ in 0..TRIES {
            let name = random_name()?;
            match make(dir.as_fd(), &name) {
                Err(Errno::EXIST) => {}
                made => {
                    made?;
                    return Ok(Self {
                        dir: Rc::clone(dir),
                        new: New::Named(name),
                    });
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Makes an empty regular file that only its owner may use. `can_be_unnamed` becomes false
    /// where the file system has no files without a name.
    ///
    /// # Errors
    /// Those of opening a file.
    pub fn file(dir: &Rc<OwnedFd>, can_be_unnamed: &mut bool) -> io::Result<(Rc<File>, Self)> {
        let mode = Mode::from_raw_mode(0o600);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if *can_be_unnamed {
            match rustix::fs::openat(dir, c".", flags | OFlags::TMPFILE, mode) {
                Ok(fd) => {
                    let file = Rc::new(File::from(fd));
                    let new = New::Unnamed(Rc::clone(&file));
                    let dir = Rc::clone(dir);
                    return Ok((file, Self { dir, new }));
                }
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                    *can_be_unnamed = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mut file = None;
        let aside = Self::make(dir, |dir, name| {
            file = Some(rustix::fs::openat(dir, name, flags, mode)?);
            Ok(())
        })?;
        let file = file.ok_or(Errno::NOENT)?;
        Ok((Rc::new(File::from(file)), aside))
    }

    /// The directory and the name there; `None` for a file without one.
    pub fn name(&self) -> Option<(BorrowedFd<'_>, &[u8])> {
        match &self.new {
            New::Unnamed(_) => None,
            New::Named(name) => Some((self.dir.as_fd(), name)),
        }
    }

    /// Gives it its name; a file of that name is an error, or is replaced in one step.
    ///
    /// # Errors
    /// Those of linking and renaming.
    pub fn publish(self, name: &[u8], existing: Existing) -> io::Result<()> {
        match &self.new {
            New::Unnamed(file) => match link_open(file, &self.dir, name) {
                Err(Errno::EXIST) if existing == Existing::Replace => {
                    Self::make(&self.dir, |dir, aside| link_open(file, dir, aside))?
                        .publish(name, existing)
                }
                linked => Ok(linked?),
            },
            New::Named(aside) if existing == Existing::Replace => {
                Ok(rustix::fs::renameat(&self.dir, aside, &self.dir, name)?)
            }
            New::Named(aside) => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(&self.dir, aside, &self.dir, name, flags) {
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        let flags = AtFlags::empty();
                        Ok(rustix::fs::linkat(
                            &self.dir, aside, &self.dir, name, flags,
                        )?)
                    }
                    renamed => Ok(renamed?),
                }
            }
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let New::Named(name) = &self.new {
            // After a rename it is not there, except where both names were links of one file.
            let _ = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
        }
    }
}

fn random_name() -> io::Result<Vec<u8>> {
    let mut random = [0; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!(".uext4-get-{}", hex::encode(random)).into_bytes())
}

/// Gives a name to a file that has none.
fn link_open(file: &File, dir: impl AsFd, name: &[u8]) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}

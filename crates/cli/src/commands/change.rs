//! What all commands share that change an image: one opening, which is closed whatever happened.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use uext4::{Creation, Error, FileType, FollowLast, NewInode, Volume};

use super::bytes;
use crate::args::WriteArgs;
use crate::below::each_below;
use crate::failure::{Complaints, Exit, Failure};
use crate::open;
use crate::paths;
use crate::show::escaped;
use uext4_image::walk::joined;
use uext4_remote::{Node, Tree};

/// The file system that is changed, and where failures of single files are reported.
pub struct Target<'a> {
    /// Opened for writing, here or by the daemon of a mount.
    pub fs: &'a Tree,
    /// The image it is in.
    pub image: &'a Path,
    /// What could not be done while the rest went on.
    pub complaints: &'a mut Complaints,
    /// Standard input is being read already.
    pub is_script_on_stdin: bool,
}

/// What to do about a file that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Make it.
    Make,
    /// Leave it at that.
    Skip,
    /// It is an error.
    Report,
}

/// Which inodes a command changes.
pub struct Which<'a> {
    /// Their paths.
    pub paths: &'a [PathBuf],
    /// Whether symbolic links at the end of these are followed.
    pub last: FollowLast,
    /// Everything below them, too.
    pub recursive: bool,
}

/// A command whose last words are paths.
pub trait Operands {
    /// Those paths, in the order of the words.
    fn operands(&mut self) -> Vec<&mut PathBuf>;
}

/// One change.
pub trait Operation {
    /// Makes it. A failure of one of several files is reported, and the rest goes on.
    ///
    /// # Errors
    /// What ends it early.
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure>;
}

/// Opens the image, makes the change, closes it.
///
/// # Errors
/// What ends the change early, or keeps it from becoming durable.
pub fn run(image: &WriteArgs, change: &dyn Operation) -> Result<Exit, Failure> {
    let fs = open::open_tree(image)?;
    let mut complaints = Complaints::new();
    let done = change.apply(&mut Target {
        fs: &fs,
        image: &image.place.image,
        complaints: &mut complaints,
        is_script_on_stdin: false,
    });
    close_tree(&fs, &image.place.image, done)?;
    Ok(complaints.exit())
}

/// Makes all changes durable, also those before an error. That error is reported first.
///
/// # Errors
/// What was done so far says, else what closing says.
pub fn close<T>(fs: &Volume, image: &Path, done: Result<T, Failure>) -> Result<T, Failure> {
    closed(fs.close(), image, done)
}

/// The same, where another process may have it open: it keeps it so.
///
/// # Errors
/// As [`close`].
pub fn close_tree<T>(fs: &Tree, image: &Path, done: Result<T, Failure>) -> Result<T, Failure> {
    closed(fs.close(), image, done)
}

fn closed<T>(
    closed: uext4::Result<()>,
    image: &Path,
    done: Result<T, Failure>,
) -> Result<T, Failure> {
    let done = done?;
    closed.map_err(|error| Failure::engine(image.display(), &error))?;
    Ok(done)
}

impl Target<'_> {
    /// Does something for each of several paths; failures are reported.
    ///
    /// # Errors
    /// A broken pipe.
    pub fn each<P: AsRef<OsStr>>(
        &mut self,
        paths: &[P],
        mut f: impl FnMut(&mut Self, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for path in paths {
            if let Err(failure) = f(self, bytes(path.as_ref())) {
                self.complaints.failure(failure)?;
            }
        }
        Ok(())
    }

    /// Changes the inodes that `which` names; what fails is reported.
    ///
    /// # Errors
    /// A broken pipe.
    pub fn each_inode(
        &mut self,
        which: &Which<'_>,
        change: impl Fn(&Node) -> uext4::Result<()>,
    ) -> Result<(), Failure> {
        self.each(which.paths, |target, path| {
            let top = target.inode(path, which.last)?;
            if !which.recursive {
                return change(&top).map_err(about(path));
            }
            let mut unread = Vec::new();
            each_below(
                &top,
                path,
                &mut |inode, path| {
                    if let Err(error) = change(inode) {
                        target.complaints.engine(escaped(path), &error);
                    }
                },
                &mut |path, error| unread.push(Failure::engine(escaped(path), error)),
            );
            for failure in unread {
                target.complaints.failure(failure)?;
            }
            Ok(())
        })
    }

    /// The inode of a path, or of `<N>`.
    ///
    /// # Errors
    /// Exit 1 if there is none.
    pub fn inode(&self, path: &[u8], last: FollowLast) -> Result<Node, Failure> {
        paths::resolve_rw(self.fs, path, last)
    }

    /// Does something with the file of a path. One that was made for it goes away again if `f`
    /// fails.
    ///
    /// # Errors
    /// Exit 1 if there is none, and what `f` says.
    pub fn file(
        &self,
        path: &[u8],
        last: FollowLast,
        missing: Missing,
        f: impl FnOnce(&Node) -> uext4::Result<()>,
    ) -> Result<(), Failure> {
        match paths::find_rw(self.fs, path, last) {
            Err(Error::NotFound) if missing == Missing::Skip => Ok(()),
            Err(Error::NotFound) if missing == Missing::Make && paths::number(path).is_none() => {
                let new = &*paths::meant_new(self.fs, path);
                let made = self.fs.create(new, NewInode::File, &by_root(0o644));
                let done = f(&made.map_err(about_new(path))?);
                if done.is_err() {
                    // What went wrong first counts.
                    _ = self.fs.remove(new);
                }
                done.map_err(about(path))
            }
            found => found.and_then(|file| f(&file)).map_err(about(path)),
        }
    }

    /// `path`, or if that is a directory the path of `name` in it.
    pub fn inside(&self, path: &[u8], name: &[u8]) -> Vec<u8> {
        match self.is_dir(path) {
            true => joined(path, name),
            false => path.to_vec(),
        }
    }

    /// Whether there is a directory of this path.
    pub fn is_dir(&self, path: &[u8]) -> bool {
        let found = self.fs.open_path(path, FollowLast::Yes);
        let view = found.and_then(|inode| inode.view());
        view.is_ok_and(|view| view.file_type() == FileType::Directory)
    }
}

/// The last name of a path.
pub fn last_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|&b| b == b'/');
    &path[start.map_or(0, |at| at + 1)..end]
}

/// New files belong to root, not to the user who runs the command.
pub fn by_root(mode: u16) -> Creation {
    Creation {
        mode,
        ..Creation::default()
    }
}

/// An error of the engine about a path that is to be made.
pub fn about_new(path: &[u8]) -> impl Fn(Error) -> Failure {
    move |error| match error {
        Error::NotFound => {
            about(path)(error).hint("`uext4 mkdir -p` makes the directories it is in")
        }
        error => about(path)(error),
    }
}

/// An error of the engine about a path.
pub fn about(path: &[u8]) -> impl Fn(Error) -> Failure {
    move |error| Failure::engine(escaped(path), &error)
}

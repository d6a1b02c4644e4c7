//! Where images come from: directories and tar archives, listed into a [`Tree`].
//!
//! Listing reads names and attributes; contents stay where they are, in files below the directory
//! or at offsets of the archive, until the image is written. An archive that cannot be read twice
//! is unpacked into a temporary file first.

mod contents;
mod copies;
mod directory;
mod exclude;
mod spool;
mod tar;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

pub use contents::{Content, Contents};
pub use exclude::Excludes;

use crate::error::Error;
use crate::ids::HostIds;
use crate::progress::Counter;
use crate::tree::Tree;
use copies::Copies;
use spool::{Format, Spool};
use tar::Input;

/// What to make an image of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Everything below a directory, and the attributes of the directory itself.
    Directory(PathBuf),
    /// A tar archive: plain, or compressed with gzip, zstd or xz.
    TarFile(PathBuf),
    /// A tar archive on standard input, plain or compressed.
    Stdin,
}

impl Source {
    /// What a command line means: "-" is standard input, a directory itself, anything else a tar.
    pub fn from_argument(path: &Path) -> Self {
        if path.as_os_str() == "-" {
            Self::Stdin
        } else if path.is_dir() {
            Self::Directory(path.to_path_buf())
        } else {
            Self::TarFile(path.to_path_buf())
        }
    }
}

/// How to list a source.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Owner of everything, in place of what the source says.
    pub uid: Option<u32>,
    /// Group of everything, in place of what the source says.
    pub gid: Option<u32>,
    /// Archives: take the owner's and group's number from their names on this machine, where it
    /// knows them. Else, and by default, the numbers in the archive count, so that an image does
    /// not depend on where it is built.
    pub owner_names: bool,
    /// What to leave out.
    pub excludes: Excludes,
    /// Directories: what is mounted below is not entered (the mount points remain, empty).
    pub one_file_system: bool,
}

/// A source, listed.
#[derive(Debug)]
pub struct Listing {
    /// What it holds.
    pub tree: Tree,
    /// Where the contents are.
    pub store: Store,
    /// What was left out or changed without being asked to.
    pub warnings: Warnings,
}

/// Where the contents of a listing are to be read.
#[derive(Debug)]
pub enum Store {
    /// Each file below this directory has its own.
    Directory {
        /// The directory.
        root: OwnedFd,
        /// How errors call it.
        path: PathBuf,
        /// Contents of the files whose size does not say that they have any.
        copies: Copies,
    },
    /// All are in this file.
    Archive {
        /// The archive, or what it was unpacked to.
        file: Arc<File>,
        /// How errors call it.
        path: PathBuf,
    },
}

/// Most warnings stored in full.
const WARNINGS_MAX: usize = 100;

/// What a source has and the image cannot have, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// The first of them, a line each.
    pub shown: Vec<String>,
    /// How many there were beyond those.
    pub more: u64,
}

impl Warnings {
    fn add(&mut self, path: &[u8], what: impl std::fmt::Display) {
        if self.shown.len() < WARNINGS_MAX {
            let path = String::from_utf8_lossy(path);
            self.shown.push(format!("{path}: {what}"));
        } else {
            self.more += 1;
        }
    }
}

/// What all listings need in addition to the options.
pub struct Context<'a> {
    pub options: &'a SourceOptions,
    /// Directory for temporary files: the output's.
    pub spool_dir: &'a Path,
    /// Device and inode of a file to leave out: the output itself.
    pub leave_out: Option<(u64, u64)>,
    pub counter: &'a Counter<'a>,
}

/// Lists a source.
///
/// # Errors
/// Whatever is wrong with it; see [`Error`].
pub fn list(source: &Source, context: &Context<'_>) -> Result<Listing, Error> {
    let (file, path) = match source {
        Source::Directory(path) => return directory::list(path, context),
        Source::TarFile(path) => {
            let file = File::open(path).map_err(|e| failed(path, "open", e))?;
            (file, path.as_path())
        }
        Source::Stdin => {
            let path = Path::new("-");
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            (
                File::from(stdin.map_err(|e| failed(path, "open", e))?),
                path,
            )
        }
    };
    let input = archive_input(file, path, context.spool_dir)?;
    tar::list(input, path, context)
}

/// Lists one name of a directory and all below it: the only entry of the tree's root.
///
/// # Errors
/// As [`list`].
pub fn list_one(dir: &Path, name: &OsStr, context: &Context<'_>) -> Result<Listing, Error> {
    directory::list_one(dir, name, context)
}

/// An archive in a plain file is read where it is, any other through a spool.
fn archive_input(mut file: File, path: &Path, spool_dir: &Path) -> Result<Input, Error> {
    let stat = rustix::fs::fstat(&file).map_err(|e| failed(path, "stat", e.into()))?;
    let seekable = matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::RegularFile | FileType::BlockDevice
    );
    let read_error = |e| failed(path, "read", e);
    let base = match seekable {
        true => file.stream_position().map_err(read_error)?,
        false => 0,
    };
    let mut start = Vec::with_capacity(Format::MAGIC_LEN);
    let magic = file.by_ref().take(Format::MAGIC_LEN as u64);
    { magic }.read_to_end(&mut start).map_err(read_error)?;
    let format = Format::detect(&start);
    if seekable {
        let end = file.seek(SeekFrom::End(0)).map_err(read_error)?;
        if format == Format::Plain {
            let len = end.saturating_sub(base);
            return Ok(Input::from_file(file, base, len, path));
        }
        file.seek(SeekFrom::Start(base)).map_err(read_error)?;
        start.clear();
    }
    let stream = io::Cursor::new(start).chain(file);
    let spool = Spool::start(stream, format, path, spool_dir)?;
    Ok(Input::from_spool(spool, path))
}

fn failed(path: &Path, op: &'static str, source: io::Error) -> Error {
    Error::Source {
        path: path.to_path_buf(),
        op,
        source,
    }
}

/// Owner and group as a source names them.
struct Owner<'a> {
    uid: u32,
    gid: u32,
    /// The name of the user; empty where there is none.
    uname: &'a [u8],
    /// The name of the group; empty where there is none.
    gname: &'a [u8],
}

/// The numbers of owner and group that count.
fn owner(options: &SourceOptions, ids: &HostIds, stored: &Owner<'_>) -> (u32, u32) {
    let named = |lookup: fn(&HostIds, &[u8]) -> Option<u32>, name: &[u8]| {
        let look = options.owner_names && !name.is_empty();
        look.then(|| lookup(ids, name)).flatten()
    };
    let uid = options.uid.or_else(|| named(HostIds::user, stored.uname));
    let gid = options.gid.or_else(|| named(HostIds::group, stored.gname));
    (uid.unwrap_or(stored.uid), gid.unwrap_or(stored.gid))
}

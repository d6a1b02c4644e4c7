//! Where images come from: directories, tar archives, layers of container images and other images,
//! listed one after the other into one [`Tree`].
//!
//! Listing reads names and attributes; contents stay where they are, in files below the directory
//! or at offsets of the archive, until the image is written. What can be read only once – what is
//! compressed or comes from a pipe – goes to a [`sink`] as it passes: into the image, or into a
//! spool.

mod base;
mod contents;
mod copies;
mod copy;
mod directory;
mod exclude;
mod holes;
mod layer;
mod single;
pub mod sink;
mod spool;
mod stream;
mod tar;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use contents::{Content, Contents};
pub use exclude::Excludes;
pub use single::{SingleEntry, SingleKind};
pub use stream::{Input, Reader, list};
pub use tar::ArchiveKind;

use uext4_ondisk::Ino;

use crate::error::{Error, path_buf};
use crate::ids::HostIds;
use crate::limits::{Limits, Used};
use crate::place::Placed;
use crate::progress::Counter;
use crate::sparse::Holes;
use crate::tree::{LINKS_MAX, Node, NodeId, Tree};
use copies::Copies;
use spool::Spool;

/// What to make an image of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Everything below a directory, and the attributes of the directory itself.
    Directory(PathBuf),
    /// A tar archive: plain, or compressed with gzip, zstd, xz or bzip2.
    TarFile(PathBuf),
    /// A tar archive on standard input, plain or compressed.
    Stdin,
    /// A layer of a container image: a tar archive whose whiteouts hide what sources before it
    /// have.
    Layer(PathBuf),
    /// Another image, with an ext2, ext3 or ext4 file system.
    Image(PathBuf),
    /// One entry, or the removal of one.
    Single(SingleEntry),
}

impl Source {
    /// What a command line means: "-" is standard input, a directory itself, `layer:FILE` a layer
    /// of a container image, anything else a tar.
    pub fn from_argument(path: &Path) -> Self {
        let text = path.as_os_str().as_bytes();
        if text == b"-" {
            Self::Stdin
        } else if let Some(file) = text.strip_prefix(b"layer:") {
            Self::Layer(Path::new(OsStr::from_bytes(file)).to_path_buf())
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
    /// The most that all sources together may hold.
    pub limits: Limits,
    /// Device nodes are an error.
    pub no_devices: bool,
    /// A file with more names than one may have becomes several files with the same contents.
    pub split_links: bool,
}

/// Sources, listed.
#[derive(Debug, Default)]
pub struct Listing {
    /// What they hold.
    pub tree: Tree,
    /// Where the contents are, for each source.
    pub stores: Vec<Store>,
    /// Contents of streams that were not placed in the image.
    pub spool: Option<Spool>,
    /// Contents that were placed in an image that could not be laid out around them.
    pub placed: Option<Placed>,
    /// Which parts of files are holes.
    pub holes: Holes,
    /// What was left out or changed without being asked to.
    pub warnings: Warnings,
    used: Used,
}

impl Listing {
    /// Splits files that have too many names, and says so; whether there are any.
    pub fn split_links(&mut self) -> bool {
        let firsts = self.tree.split_links(LINKS_MAX);
        for &first in &firsts {
            let what = "begins another file with the same contents: one has at most 65,000 names";
            self.warnings.add(&self.tree.path(first), what);
        }
        !firsts.is_empty()
    }

    /// The store with the contents of a file.
    ///
    /// # Errors
    /// [`Error::Source`] if its source was not listed to its end.
    pub fn store_of(&self, node: &Node) -> Result<&Store, Error> {
        let store = self.stores.get(usize::from(node.source()));
        let missing = || failed(Path::new("."), "read", io::ErrorKind::NotFound.into());
        store.ok_or_else(missing)
    }
}

/// Where the contents of a source are to be read.
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
        /// The archive.
        file: Arc<File>,
        /// How errors call it.
        path: PathBuf,
    },
    /// Files of another image; where their pieces are is where they are in the file.
    Image {
        /// The image.
        image: uext4::Image,
        /// How errors call it.
        path: PathBuf,
        /// The inodes of files with contents.
        inos: HashMap<NodeId, Ino>,
    },
    /// There are none.
    Empty,
    /// All are in the spool.
    Spool {
        /// How errors call the source.
        path: PathBuf,
    },
    /// All are in the image, at offsets of the space for contents.
    Placed {
        /// How errors call the source.
        path: PathBuf,
    },
}

impl Store {
    /// How errors call the source.
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory { path, .. }
            | Self::Archive { path, .. }
            | Self::Image { path, .. }
            | Self::Spool { path }
            | Self::Placed { path } => path,
            Self::Empty => Path::new(""),
        }
    }
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
    pub(crate) fn add(&mut self, path: &[u8], what: impl std::fmt::Display) {
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
    /// Which parts of files become holes.
    pub holes: Holes,
}

/// Lists one name of a directory and all below it: the only entry of the tree's root.
///
/// # Errors
/// As [`list`].
pub fn list_one(dir: &Path, name: &OsStr, context: &Context<'_>) -> Result<Listing, Error> {
    let mut listing = Listing::default();
    let store = directory::list_one(dir, name, context, &mut listing)?;
    listing.stores.push(store);
    Ok(listing)
}

/// A device node, where the caller wants none.
fn device_refused(path: &[u8]) -> Error {
    Error::Path {
        path: path_buf(path),
        why: "is a device node, and device nodes are refused",
    }
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

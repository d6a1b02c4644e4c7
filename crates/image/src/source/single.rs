//! Single entries, as a command line gives them: put above all sources before them, or removed.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uext4_ondisk::inode::{DeviceNumber, Timestamp};

use super::{Context, Listing, Store, device_refused, failed};
use crate::error::Error;
use crate::tree::{Attributes, FileData, NewNode};

/// One entry of an image. Missing directories above it are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleEntry {
    /// Its path in the image.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: SingleKind,
    /// Permissions; by default those of the file it is made from, 0755 of a directory, else 0644.
    pub mode: Option<u16>,
    /// Owner; by default root.
    pub uid: u32,
    /// Group; by default that of root.
    pub gid: u32,
}

/// What a single entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SingleKind {
    /// A file with the contents, the permissions and the time of one of this machine.
    File(PathBuf),
    /// A directory.
    Directory,
    /// A symbolic link to these bytes.
    Symlink(Vec<u8>),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A fifo.
    Fifo,
    /// Nothing: what other sources have at the path, with all below it, is not in the image.
    Removed,
}

/// Puts an entry into `listing`, as the source that has begun there; returns its store.
///
/// # Errors
/// [`Error::Source`] for the file it is made from, and the tree's.
pub fn put(
    entry: &SingleEntry,
    context: &Context<'_>,
    listing: &mut Listing,
) -> Result<Store, Error> {
    let (node, file) = match &entry.kind {
        SingleKind::Removed => {
            listing.tree.hide(&entry.path)?;
            return Ok(store(None));
        }
        SingleKind::File(path) => {
            let file = File::open(path).map_err(|e| failed(path, "open", e))?;
            let metadata = file.metadata().map_err(|e| failed(path, "stat", e))?;
            if !metadata.is_file() {
                let why = "is not a regular file";
                let path = path.clone();
                return Err(Error::Path { path, why });
            }
            let data = FileData::Whole { at: 0 };
            let size = metadata.len();
            (NewNode::File { size, data }, Some((file, path, metadata)))
        }
        SingleKind::Directory => (NewNode::Directory, None),
        SingleKind::Symlink(target) => (NewNode::Symlink(target), None),
        SingleKind::CharDevice(_) | SingleKind::BlockDevice(_) if context.options.no_devices => {
            return Err(device_refused(&entry.path));
        }
        SingleKind::CharDevice(number) => (NewNode::CharDevice(*number), None),
        SingleKind::BlockDevice(number) => (NewNode::BlockDevice(*number), None),
        SingleKind::Fifo => (NewNode::Fifo, None),
    };
    let time = file.as_ref().map(|(_, _, metadata)| Timestamp {
        sec: metadata.mtime(),
        nsec: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    });
    let own_mode = file
        .as_ref()
        .map(|(_, _, metadata)| (metadata.mode() & 0o7777) as u16);
    let default_mode = match node {
        NewNode::Directory => 0o755,
        NewNode::Symlink(_) => 0o777,
        _ => 0o644,
    };
    let attributes = Attributes {
        mode: entry.mode.or(own_mode).unwrap_or(default_mode),
        uid: entry.uid,
        gid: entry.gid,
        atime: time.unwrap_or_default(),
        mtime: time.unwrap_or_default(),
        ctime: time.unwrap_or_default(),
        xattrs: Vec::new(),
    };
    let bytes = file.as_ref().map_or(0, |(_, _, metadata)| metadata.len());
    listing.used.add(&context.options.limits, bytes, &[])?;
    let made = listing.tree.insert(&entry.path, node, attributes)?;
    if time.is_none() {
        listing.tree.set_undated(made);
    }
    context.counter.entry();
    Ok(store(file.map(|(file, path, _)| (file, path.as_path()))))
}

fn store(file: Option<(File, &Path)>) -> Store {
    match file {
        Some((file, path)) => Store::Archive {
            file: Arc::new(file),
            path: path.to_path_buf(),
        },
        None => Store::Empty,
    }
}

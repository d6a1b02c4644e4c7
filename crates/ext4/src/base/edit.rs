//! How blocks of metadata are changed: by an operation through its journal handle, or by the bulk
//! writer of a new file system directly in the cache. Functions that both need take either: those
//! of groups and their bitmaps. Bytes of directories, extents and attributes are made by `ondisk`.

use uext4_buffer_cache::Buffer;
use uext4_ondisk::{Ino, Pblk};

use crate::base::disk::Disk;
use crate::base::owner::Owner;

/// A way to change blocks of metadata.
pub(crate) trait Edit {
    /// Changes a block; `f` must not touch the buffer otherwise.
    fn change<R>(&self, buffer: &Buffer, owner: Owner, f: impl FnOnce(&mut [u8]) -> R) -> R;

    /// A block whose old content does not matter, all zero. It must be changed before it is let go.
    fn fresh(&self, block: Pblk) -> Buffer;

    /// Whether an inode that the bitmap calls free may be in use all the same. It cannot be in a file
    /// system that was just made.
    fn distrusts_bitmaps(&self) -> bool {
        true
    }

    /// Lets the list of orphans in the superblock begin with this inode; 0 for none. Who keeps no
    /// orphans does nothing.
    fn set_last_orphan(&self, ino: Ino) {
        let _ = ino;
    }
}

/// Changes blocks in the cache, without a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct<'a>(pub(crate) &'a Disk);

impl Edit for Direct<'_> {
    fn change<R>(&self, buffer: &Buffer, _: Owner, f: impl FnOnce(&mut [u8]) -> R) -> R {
        buffer.modify(f)
    }

    fn fresh(&self, block: Pblk) -> Buffer {
        self.0.cache().getblk_zeroed(block)
    }

    fn distrusts_bitmaps(&self) -> bool {
        false
    }
}

//! How blocks of metadata are changed: by an operation through its journal handle, by the commit
//! in the transaction that it closes, or by the bulk writer of a new file system directly in the
//! cache. Functions that more than one of them needs take any: those of groups and their bitmaps,
//! of the inode table, of quotas and of orphans. Bytes of directories, extents and attributes are
//! made by `ondisk`.

use uext4_buffer_cache::Buffer;
use uext4_ondisk::Pblk;

use crate::base::disk::Disk;
use crate::base::owner::Owner;

/// A way to change blocks of metadata.
pub(crate) trait Edit {
    /// Changes a block; `f` must not touch the buffer otherwise.
    fn change<R>(&self, buffer: &Buffer, owner: Owner, f: impl FnOnce(&mut [u8]) -> R) -> R;

    /// A block whose old content does not matter, all zero. It must be changed before it is let go.
    fn fresh(&self, block: Pblk) -> Buffer;

    /// Whether an inode that the bitmap calls free may be in use all the same. It cannot be in a
    /// file system that was just made.
    fn distrusts_bitmaps(&self) -> bool {
        true
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

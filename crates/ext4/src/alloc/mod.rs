//! Free blocks and inode numbers: the bitmaps and descriptors of the groups.
//!
//! `bitmap` reads them, `groups` holds them for writing and hands them to the allocator, `ialloc`
//! is the choice of a group for a new inode, and `discards` tells the device which blocks
//! were freed.

pub(crate) mod bitmap;
pub(crate) mod discards;
pub(crate) mod groups;
pub(crate) mod ialloc;

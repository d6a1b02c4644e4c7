//! What callers see: the file system, inodes in use, and the same operations by path.
//!
//! `filesystem` and `open_inode` are the layer of inodes, `paths` the one of paths on top of it.

pub(crate) mod description;
pub(crate) mod filesystem;
pub(crate) mod open_inode;
pub(crate) mod paths;

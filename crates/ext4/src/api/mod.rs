//! The public interface: the file system, inodes in use, and the same operations by path.
//!
//! `image`, `volume` and `open_inode` are the layer of inodes, `in_use` and `paths` the layer of
//! paths on top of it. `file`, `dir`, `walk` and `std_fs` provide what `std::fs` has: positions,
//! iterators, calls by path. `data`, `device`, `format`, `stats` and `tuning` group types by
//! subject.

pub mod data;
pub(crate) mod description;
pub mod device;
pub(crate) mod dir;
pub(crate) mod file;
pub mod format;
pub(crate) mod image;
pub(crate) mod in_use;
pub(crate) mod open_inode;
pub(crate) mod paths;
pub(crate) mod read_dir;
pub mod stats;
pub(crate) mod std_fs;
pub mod tuning;
pub(crate) mod volume;
pub(crate) mod walk;

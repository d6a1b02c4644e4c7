//! Names given, taken and moved: create(2), link(2), unlink(2), rmdir(2), rename(2).
//!
//! Each is one journal handle that changes directories, link counts and orphans together.

pub(crate) mod create;
pub(crate) mod rename;
pub(crate) mod undelete;
pub(crate) mod unlink;

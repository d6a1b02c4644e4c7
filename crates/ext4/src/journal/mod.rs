//! A mounted file system, what writing adds to it, and the journal handle.
//!
//! `sbi` is a mounted file system, with `rw` in it if that is for writing; `handle`, the one way
//! to change its blocks, opens, extends and ends handles of jbd2. Around them: `space` and
//! `reservations` reserve blocks, `reclaim` writes what the journal holds back when memory is
//! short, `taking` and `unfinished` know what flushers and deletions have in hand, `xattr_shared`
//! knows the attribute blocks that inodes share, `error_record` notes errors in the superblock,
//! `fitrim` notifies the device what is free, and `mmp`, `label` and `mount_limits` are what a
//! mount itself keeps there.

pub(crate) mod error_record;
pub(crate) mod fitrim;
pub(crate) mod handle;
pub(crate) mod label;
pub(crate) mod mmp;
pub(crate) mod mount_limits;
pub(crate) mod reclaim;
pub(crate) mod reservations;
pub(crate) mod rw;
pub(crate) mod sbi;
pub(crate) mod space;
pub(crate) mod taking;
pub(crate) mod unfinished;
pub(crate) mod xattr_shared;

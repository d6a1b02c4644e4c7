//! A mounted file system, its additional state for writing, and the journal handle.
//!
//! `sbi` is a mounted file system, with `rw` in it if it is mounted for writing; `handle`, the
//! only way to change its blocks, opens, extends and ends handles of jbd2. Around them: `space`
//! and `reservations` reserve blocks, `reclaim` writes data that waits for the journal when
//! memory is short, `taking` and `unfinished` track work in progress of flushers and deletions,
//! `xattr_shared` tracks the attribute blocks that inodes share, `error_record` stores errors in
//! the superblock, `fitrim` discards free blocks on the device, and `mmp`, `label` and
//! `mount_limits` hold data and options of the mount itself.

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

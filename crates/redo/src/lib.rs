//! The redo log of a repair: what a repair or a change by `tune` leaves on the device when the
//! power goes while it writes, and how it is finished or read through.
//!
//! ```text
//! superblock, at 0x3CC: pointer ──▶ header, runs │ numbers of blocks │ their contents, inverted
//! ```
//! `uext4_ondisk::repair_log` has the layout, `uext4-fsck` decides what is written and in which
//! order. Here is what every program that opens a file system must know of it: while the pointer
//! is there, and the superblock is one of the two that it knows, some blocks are old and some are
//! new, and the file system is none. So
//!
//! - who is going to write finishes it first ([`UnfinishedRepair::finish_claimed`]). All blocks are
//!   written to their places and flushed; then the pointer is taken away. They are the same bytes
//!   however often this is done, and the log itself is not among them, so that a cut at any write
//!   leaves what the next opening finishes;
//! - who reads does so through the log ([`UnfinishedRepair::redone`]) and writes nothing;
//! - a log that is out of date ([`FoundLog::OutOfDate`]) is none: other programs have used the
//!   file system since, and its blocks may be those of files by now.
//!
//! # Trust
//!
//! A log counts only if its SHA-256 is right, its numbers ascend, lie on the device and name no
//! block of the log itself. Nothing that it says takes more memory than 16 bytes for each block
//! of contents that is there. A device without a pointer costs one read of 1,024 bytes.
//!
//! [`MmpClaim`] keeps other hosts away meanwhile, where the file system has multiple mount
//! protection.
//!
//! Left out: making a log's contents and finding room for it.

mod claim;
mod error;
mod log;
mod places;
pub mod primary;
mod redone;
mod unfinished;

pub use claim::{MmpClaim, Pause, abandoned_number, clear_mark, is_leftover};
pub use error::{Error, Result};
pub use log::Log;
pub use places::{LogRun, Places};
pub use redone::RedoneDevice;
pub use unfinished::{FoundLog, UnfinishedRepair};

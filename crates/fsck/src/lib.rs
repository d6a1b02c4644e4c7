//! The examination and the repair of ext2, ext3 and ext4 file systems.
//!
//! # One walk, on an overlay
//!
//! The checker is the first half of the repair. There is one set of passes; each of them reports
//! what it finds and at once applies the remedy to an [`Overlay`]: a view of the device with the
//! changed blocks on the side. The device itself is only read. A check throws the overlay away; a
//! repair makes a plan of it, and examines the result again *before* a byte of the device changes.
//!
//! ```text
//! device ◀── Overlay ◀── Volume ◀── passes ──▶ findings
//!               │ what each block becomes, and why
//!               ▼
//!             plan ──▶ in place through a redo log, with an undo file, or into a new image
//! ```
//!
//! # The passes
//!
//! | pass | reads | finds |
//! |---|---|---|
//! | superblock | superblock, descriptors, backups, journal, orphans | shapes that cannot be |
//! | inodes | inode tables, block maps, attributes; groups in parallel | fields, maps, owners |
//! | shared | maps of owners again, only if clusters have more than one | blocks claimed twice |
//! | directories | blocks of names; directories in parallel | entries, indexes, links |
//! | connected | nothing new | directories that do not hang from the root |
//! | links | nothing new | link counts, reference counts, files without a name |
//! | bitmaps | bitmaps; groups in parallel | bits, counts, quotas |
//!
//! Fast commits are replayed between the first two passes, on what the log of the journal leaves.
//!
//! Later passes may rely on what earlier ones have mended. Memory is two bits for each cluster and
//! a byte for each inode in the groups in use, and some eighty bytes for each directory.
//!
//! # Trust
//!
//! Every number read from the image is bounded before it is used; every walk has an end that does
//! not depend on the image's word; no input makes it panic.

mod account;
pub mod apply;
mod backups;
mod bitmaps;
mod clusters;
mod connect;
mod copies;
mod descriptors;
mod directories;
mod directory_list;
mod emptied;
mod error;
mod fast_commits;
mod finding;
mod fixed_places;
mod held;
mod inode_map;
mod inodes;
mod journal;
mod links;
mod lost_found;
mod make;
mod mapping;
mod memory;
mod mmp;
mod options;
mod orphans;
mod overlay;
pub mod plan_file;
pub mod problem;
mod quota;
mod rebuild;
mod record;
mod redo;
mod repeats;
mod report;
mod resize_inode;
mod run;
mod shared;
mod state;
mod strict_map;
mod summary;
mod superblock;
mod threads;
mod tree;
pub mod tune;
pub mod undo;
mod usage;
mod used_inodes;
mod volume;
mod xattr;
mod xattr_blocks;

pub use account::{Lost, LostName};
pub use clusters::ClusterSet;
pub use error::{Error, Result};
pub use finding::{Finding, Place};
pub use options::{Options, SharedBlocks};
pub use overlay::{ChangedBlock, Overlay};
pub use problem::{Loss, Problem, Severity};
pub use record::{Record, When};
pub use redo::Writes;
pub use report::{Cause, Observer, Pass, Progress};
pub use run::{Outcome, examine, findings, plan};
pub use summary::Summary;
pub use superblock::{Guess, guess};
pub use uext4_redo::{FoundLog, UnfinishedRepair};

#[cfg(test)]
mod tests;

//! Directories, tar archives and container layers in, ext4 images out: without root, of exact size,
//! reproducible.
//!
//! ```text
//! source ──► tree ──► size ──► mkfs ──► Creator ──► image, renamed into place
//!   (1)       (2)      (3)     (4)       (5)
//! ```
//! 1. Each [`Source`] is listed: names and attributes now; contents go to their final blocks as
//!    they pass, or are read where they lie in step 5.
//! 2. [`tree`] is the plan, in memory: what the image will hold, at most some 150 bytes an entry.
//! 3. The plan is counted: every block it will take is known before the first is written.
//! 4. The empty file system is laid out for just that, around contents that are there already.
//! 5. The plan is carried out in order, other contents copied from where they lie.
//!
//! [`put()`] makes the plan in a file system that is there, through its journal. [`get()`] copies
//! files and directories out of one, in the order of a [`walk`].
//!
//! Left out: the disk format (`uext4-mkfs`, `uext4`), and choosing what to do (the command).

pub mod budget;
pub mod error;
pub mod finish;
pub mod gpt;
pub mod links;
pub mod oci;
pub mod pairs;
pub mod readable;
pub mod same_data;
pub mod tree;
pub mod ustar;
pub mod verity;
pub mod walk;

mod acl;
mod begun;
mod build;
mod builder;
mod chunks;
mod get;
mod identity;
mod ids;
mod limits;
mod need;
mod options;
mod output;
mod path;
mod place;
mod progress;
mod put;
mod size;
mod source;
mod sparse;
mod stream_out;
#[cfg(test)]
mod tests;
mod unflushed;
mod xattrs;

pub use build::{Report, build};
pub use builder::Builder;
pub use error::{Error, FinishError, TarDamage};
pub use get::{Get, GetError, GetReport, Refused, Unreadable, Watcher, get};
pub use ids::HostIds;
pub use limits::Limits;
pub use options::BuildOptions;
pub use output::{Draft, Output, Protection, fs_len};
pub use progress::{Amount, Phase, Progress};
pub use put::{Attributes, Existing, PutOptions, PutReport, put, put_stream, untar};
pub use size::Size;
pub use sparse::Sparse;
pub use uext4_ondisk::inode::DeviceNumber;

pub use source::{Excludes, SingleEntry, SingleKind, Source, SourceOptions, Warnings};

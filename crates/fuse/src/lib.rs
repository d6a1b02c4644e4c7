//! An ext4 image as a FUSE mount: requests of the kernel to calls of the engine, nothing else.
//!
//! ```text
//! kernel ⇄ transport ─bytes─▶ request ─▶ server ─▶ engine
//!              ▲                           │
//!              └──────── bytes ── reply ◀──┘  at once, or later, by a pending reply
//! ```
//! The protocol is decoded and encoded here ([`abi`], [`request`], `reply`), so that every
//! transport feeds the same requests to the same `server`, and so that a test can ask as a kernel
//! does without a mount. What is read goes from the image straight into the buffer the transport
//! writes.
//!
//! Threads: several read requests and do at once what is asked ([`session`]); what may take long
//! goes to others, and a writer over the dirty limits is answered when its pause is over, by one
//! timer for all (`executor`). Locks: those of the engine; `nodes`, `writers` and `executor` have
//! leaves of their own.
//!
//! `docs/fuse.md` says which side caches what. Left out: who may do what (the kernel
//! decides, `default_permissions`), locks of files (the kernel keeps them), options of the
//! command line.

#![cfg_attr(test, allow(missing_docs))]

// The exercise of requests names this crate as the fuzzer does.
#[cfg(test)]
extern crate self as uext4_fuse;

pub mod abi;
pub mod addresses;
mod answer;
mod attributes;
pub mod cost;
mod cpus;
mod data;
mod deletions;
mod directories;
mod dispatch;
mod durable;
mod dying;
pub mod errno;
mod executor;
mod gathering;
mod handles;
#[cfg(test)]
mod hostile;
mod inflight;
pub mod init;
mod ioctl;
mod kernel_cache;
pub mod latency;
pub mod mount;
pub mod mountinfo;
mod names;
mod nodes;
pub mod omitted;
mod overlays;
pub mod owners;
mod panic_guard;
mod pending_reply;
mod privileges;
pub mod protocol;
pub mod readahead;
mod rename;
mod reply;
pub mod report;
pub mod request;
mod scheduling;
mod serve;
mod served;
mod server;
pub mod session;
mod statfs;
mod sync_policy;
#[cfg(test)]
mod testing;
mod transport;
pub mod unmount_status;
mod write_buffers;
pub mod writeback_cache;
mod writers;
mod xattrs;

pub use answer::Answer;
pub use pending_reply::{Channel, PendingReply};
pub use reply::{Out, Validity};
pub use serve::Serve;
pub use served::Served;
pub use server::Server;
pub use sync_policy::SyncPolicy;
pub use transport::dev::{Counts as PlacementCounts, Reason as SpreadReason};
pub use transport::{Placement, Transport};

//! mbcache: blocks of attributes with equal content, found again, so that one serves many inodes.
//!
//! Attributes that do not fit in an inode are stored in a block of their own. Inodes with equal
//! attributes (the same label, the same ACL) may share a block: its header counts its users in
//! `h_refcount`, 1024 at most, and has a hash of its entries in `h_hash`. Before the engine writes
//! a new block it searches this cache for an equal one. That is *online deduplication*: duplicates
//! are not removed, they are not made. A second cache does the same for large values, which are
//! stored in inodes of their own (`ea_inode`), by their crc32c.
//!
//! # The picture
//!
//! ```text
//!              content ──▶ hash on disk, hash of all of it ──▶ Key
//!                                                               │ find
//!   users     1 ≤ n < 1024: may get one more                    ▼
//!   block     [ header: users, hash │ entries … values ]◀── Candidate ── next ──▶ Candidate …
//!                      ▲                                        │ read, compare, lock its count
//!                      └──── n + 1 ◀──────────────── taken ─────┘
//!   release ──▶ Release ── users remain ─▶ left(n − 1)
//!                 └─────── none remains ─▶ remove ─▶ removed: free it, or change it
//!                                            └─────▶ InUse: another thread has found it; wait, and
//!                                                    count its users again
//! ```
//! Forgetting an entry costs sharing and never an answer, so the cache may drop any at any time. It
//! must never let a thing that is freed get a user: the block's content is still in memory then,
//! and equal, so comparing it does not help. Therefore searches and removals meet here: the cache
//! knows of each [`Candidate`], and [`Release::remove`] fails as long as there is one.
//!
//! # Caller requirements
//!
//! The caller has a lock for the count of each thing's users, the *count's lock*: in the kernel it
//! is the lock of the buffer. [`Counts`] has such locks, and the counts until they are stored.
//! 1. [`Cache::find`], [`Candidate::next`], [`Cache::release`] and [`InUse::wait`] are not called
//!    under a count's lock. A thread that has a candidate calls neither `release` nor `wait`.
//! 2. [`Candidate::taken`], [`Candidate::set_full`], [`Release::left`] and [`Release::remove`] are
//!    called under it, and the count changes before it is unlocked. Before `taken`, the caller
//!    compares content and count again.
//! 3. Threads may share the lock for `taken`, when a thing has users and room for more than one,
//!    and when a user goes that is neither the last nor one of a full thing; the latter is not
//!    reported.
//! 4. [`Cache::created`] and [`Cache::seen`] are called under it, or by a user that remains one.
//! 5. A content changes in place only after `remove`.
//!
//! # Design
//!
//! A [`Cache`] has an [`Index`], which says what is found, what stays and what may go. The index
//! that is shipped has one entry that serves each content (`one_donor.rs`); the essay of the seam,
//! and how another is given, is at the trait (`index.rs`).
//!
//! # Units
//!
//! Entries and users; bytes in [`Cache::memory`] and [`Cache::set_limit`]. Things are numbers of 64
//! bits.
//!
//! # Locks
//!
//! A count's lock comes first: one of 256 parts of [`Counts`], never two at once. Below it are two
//! leaves, never both: the lock of a part of the index, and that of the queue of waiting threads. A
//! part's lock counts how often it was taken, waited for, and handed from one thread to another.
//!
//! # Cost
//!
//! A search: a hash of the content (0.1 ns a byte), one look into the table and two
//! compare-and-swaps, whatever the number of entries and of equal things. An entry that comes takes
//! one lock. A count in memory: a shared lock, a look into its part, a compare-and-swap.
//!
//! # Left out
//!
//! Reading and comparing, storing counts, journals, quota, threads. Removing duplicates that exist
//! (*offline* deduplication). Out of memory: tables and lists reserve it and go without, and the
//! cache forgets rather than grows when its owner sets a limit; single entries rely on that limit.

/// The locks of the model checker, under the name of the product's.
#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

mod cache;
mod content;
mod counts;
mod entry;
mod ghost;
mod index;
mod list;
mod lock;
mod memo;
mod one_donor;
mod options;
mod stats;
mod table;
mod trace;
mod wait;

pub use cache::{BATCH, Cache, Candidate, InUse, Release};
pub use content::Content;
pub use counts::{Counts, Locked, Shared};
pub use entry::{Entry, Key};
pub use index::{Created, End, Index, Stale, Usage};
pub use options::{Options, TUNABLES};
pub use stats::Stats;
pub use uext4_tunables::TunableError;

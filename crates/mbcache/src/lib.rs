//! mbcache: blocks of attributes with equal content, found again, so that one serves many inodes.
//!
//! Attributes that do not fit in an inode lie in a block of their own. Inodes with equal attributes (the
//! same label, the same ACL) may have the same block: it counts its users in `h_refcount`, 1024 at most,
//! and has a hash of its entries in `h_hash`. Before a new block is written somebody asks here whether there
//! is one already. That is *online deduplication*: duplicates are not removed, they are not made. A second
//! cache does the same for large values, which lie in inodes of their own (`ea_inode`), by their crc32c.
//!
//! # The picture
//!
//! ```text
//!              content ──▶ hash on disk, hash of all of it ──▶ Key
//!                                                               │ find
//!   users     1 ≤ n < 1024: may get one more                    ▼
//!   block     [ header: users, hash │ entries … values ]◀── Candidate ── next ──▶ Candidate …
//!                      ▲                                        │ read it, compare it, lock its count
//!                      └──── n + 1 ◀──────────────── taken ─────┘
//!   release ──▶ Release ── others are left ─▶ left(n − 1)
//!                 └─────── nobody is left ──▶ remove ─▶ gone: free it, or change it
//!                                               └─────▶ InUse: somebody has found it; wait, count again
//! ```
//! Forgetting an entry costs sharing and never an answer, so the cache may drop any at any time. What it
//! must never do is let somebody become a user of a block that is freed. The block's content is still in
//! memory then, and equal; nothing in it tells. So finding and freeing meet here: who has a [`Candidate`]
//! is known, and [`Release::remove`] fails as long as there is one — but under `mbcache2`, where it is
//! [`Candidate::taken`] that fails.
//!
//! # Whoever calls
//!
//! Has a lock for the count of each thing's users, the *count's lock*: the kernel's is that of the buffer,
//! [`Counts`] has others, and what the counts are until they are written down.
//! 1. [`Cache::find`], [`Candidate::next`], [`Cache::release`] and [`InUse::wait`] may sleep: never under a
//!    count's lock. Nobody who has a candidate calls `release` or `wait`.
//! 2. [`Candidate::taken`], [`Release::left`] and [`Release::remove`] are called under it, and the count
//!    changes under the same hold. Before `taken`, content and count are looked at again.
//! 3. The lock may be shared by those who come to a thing that has users and room for more than one, for
//!    `taken`, and by those who go from one that keeps users and was not full, who need say nothing.
//! 4. [`Cache::created`] and [`Cache::seen`] are called under it, or by a user who stays one meanwhile.
//! 5. A content changes in place only after `remove`.
//!
//! # Policies
//!
//! | [`Policy`] | search | removal | entries that go |
//! |---|---|---|---|
//! | `mb1` | shared handle | sleeps for the exclusive one | oldest idle one, under the lock of all |
//! | `mbcache2` | chain's lock | at once; `taken` may fail | by memory only, the touched ones first |
//! | `mbcache2-touch-fixed` | chain's lock | at once; `taken` may fail | by memory only, oldest first |
//! | `mainline` | chain's lock, only with room | waits for who has found it | second chance; worker, then caller |
//! | `one-donor` | none | waits for who has found it | clocks by part, marks from 0 to 3 |
//!
//! Each is a file of its own, which says where it comes from and where it differs. A policy changes the
//! cost, never what an inode has. Under all but `one-donor` all that is known before a block is read is the
//! 32-bit hash on disk, which anybody can make equal: such blocks are read one by one, and cost time.
//!
//! # Units
//!
//! Entries and users; bytes in [`Cache::memory`] and [`Cache::set_limit`]. Things are numbers of 64 bits.
//!
//! # Locks
//!
//! A count's lock comes first: of 256 parts of [`Counts`], never two. The others are leaves: of a chain, of a
//! list or part of one, of an entry, of a queue of sleepers. Nothing is called out to under them. Each leaf counts how
//! often it was taken, waited for, and handed from one thread to another.
//!
//! # Cost
//!
//! A search: a lock and the entries of a chain, n/1024 with n entries and n equal ones at worst; `mb1` five
//! locks and as many when it ends. `one-donor`: one hash of the content (0.1 ns a byte), one look into the
//! table and two compare-and-swaps, whatever n is. An entry that comes takes two locks (`mb1` four), or one.
//! A count that is gathered: a lock that is shared, a look into its part, a compare-and-swap.
//!
//! # What this room leaves out
//!
//! Reading and comparing, writing counts down, journals, quota, threads: the worker of `mainline` runs when the
//! caller says ([`Cache::work`]). Removing duplicates that are there already (*offline* deduplication).
//! Out of memory: chains, tables and lists ask for it and do without, and the cache forgets rather than grows when
//! its owner sets a limit; single entries trust that limit.

mod cache;
mod chains;
mod content;
mod counts;
mod entry;
mod ghost;
mod list;
mod lock;
mod mainline;
mod mb1;
mod mbcache2;
mod memo;
mod one_donor;
mod options;
mod policy;
mod stats;
mod table;
mod trace;
mod wait;

pub use cache::{BATCH, Cache, Candidate, Created, InUse, Release, Stale};
pub use counts::{Counts, Locked, Shared};
pub use entry::Key;
pub use options::{OptionError, Options};
pub use policy::{Policy, UnknownPolicy};
pub use stats::Stats;
pub use uext4_tunables::TunableError;

/// About what an entry of a chain takes: itself, its places in a chain and on the list, and what the
/// allocator of memory adds.
const CHAINED_ENTRY_BYTES: usize = size_of::<entry::Entry>() + 16 + 16 + 24 + 16;

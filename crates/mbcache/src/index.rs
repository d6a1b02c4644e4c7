//! The index of a cache: which things have a content, and which threads have found them.
//!
//! # Why
//!
//! Looking a hash up is the small part. The same object decides three things that cannot be decided
//! apart: which of many equal things a search returns (a thing that is full of users costs a read
//! and a comparison in vain), which entries stay when memory is short, and whether a thing may be
//! freed while another thread compares its content. So all three are one trait.
//!
//! # The design
//!
//! The shipped index (`one_donor.rs`) keys its entries by a 64-bit hash of the whole content, and
//! returns one thing for each content, whatever the number of equal ones. A search takes no lock:
//! it reserves the place of a user by compare-and-swap. Removing a thing fails while any such
//! reservation is pending, and the thread that removes then waits until none is.
//!
//! # The seam
//!
//! Another index is an object with the trait [`Index`], given to [`crate::Cache::with_index`]. It
//! changes what a search costs and how much is shared, never the attributes of an inode. The
//! designs of the kernel before version 4.6, of the patch of 2015 and of today's kernel are in
//! `lab/policies`; they and the shipped one pass the tests in `tests/it/answers.rs`.

use std::fmt;
use std::sync::Arc;

use crate::content::Content;
use crate::entry::{Entry, Key};

/// What became of an entry that was to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is in the index.
    Inserted,
    /// The index has an entry of this thing already.
    Present,
    /// There is no room or no memory for it, or the thing has as many users as it may.
    Refused,
}

/// How a search ends for an entry that it has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The thing gets no user.
    Unused,
    /// The thing gets a user, and has this many with it. The lock of its count is held.
    Taken(u32),
}

/// The thing that was found has left the index: search again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was found is not in the cache any more")]
pub struct Stale;

/// What an index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Entries now.
    pub entries: usize,
    /// Entries from which on some must go; 0: no such number.
    pub max: usize,
    /// About what an entry takes, in bytes.
    pub entry_bytes: usize,
    /// What the index takes without entries, in bytes.
    pub fixed_bytes: usize,
}

/// What a cache needs of its index.
///
/// One object serves all threads of one cache, and only that. No lock of the cache is held during a
/// call, and a call must not use the cache. An entry that [`find`](Self::find) returns is *found*
/// until [`end`](Self::end) is called for it.
///
/// The caller has a lock for the count of each thing's users. The methods that need it say so. It
/// is not held during `find`, `hold` and `wait_unused`, which may wait for other threads to call
/// `end`; during the last two the caller has found nothing itself.
pub trait Index: fmt::Debug + Send + Sync {
    /// What the index holds. Changes by other threads may be missing.
    fn usage(&self) -> Usage;

    /// The key of a content: `hash` is the hash on disk, `body` all that must be equal. `of`: the
    /// thing that has this content, if the caller is its only user or holds the lock of its count;
    /// an index that remembers the key of that thing need not look at `body`.
    fn key(&self, hash: u32, body: Content<'_>, of: Option<u64>) -> Key {
        let _ = (body, of);
        Key { hash, content: 0 }
    }

    /// Whether a thing that was read, and not made, is to be created.
    fn admits(&self, value: u64) -> bool {
        let _ = value;
        true
    }

    /// Creates the entry of a thing with this many users. The lock of its count is held, or the
    /// caller is one of its users.
    fn create(&self, key: Key, value: u64, users: u32) -> Created;

    /// An entry of this key whose thing may have room for a user; after `after`, which stays found.
    fn find(&self, key: Key, after: Option<&Arc<Entry>>) -> Option<Arc<Entry>>;

    /// The thing of a found entry has as many users as it may. The lock of its count is held.
    fn set_full(&self, found: &Arc<Entry>) {
        let _ = found;
    }

    /// Ends that an entry is found, or held.
    ///
    /// # Errors
    /// [`Stale`]: its thing must not get a user. Never, if `remove` fails for things that are
    /// found.
    fn end(&self, found: &Arc<Entry>, how: End) -> Result<(), Stale>;

    /// A user of a thing is about to go, or to change it. An index in which users exclude each
    /// other returns the entry *held*: no other thread has found it, and none finds it until `end`
    /// or `remove`. Of `key`, only the hash on disk is true.
    fn hold(&self, key: Key, value: u64) -> Option<Arc<Entry>> {
        let _ = (key, value);
        None
    }

    /// Removes the entry of a thing that has one user, if there is one, and ends that it is held.
    /// The lock of the thing's count is held.
    ///
    /// # Errors
    /// The entry, which another thread has found, to be given to `wait_unused`. Nothing was
    /// removed.
    fn remove(&self, key: Key, value: u64, held: Option<&Arc<Entry>>) -> Result<(), Arc<Entry>>;

    /// A thing that was full has lost a user, and has this many left, at least one. The lock of its
    /// count is held.
    fn left(&self, key: Key, value: u64, users: u32) {
        let _ = (key, value, users);
    }

    /// Waits until no thread has found an entry that `remove` returned, or its thing has another
    /// user.
    fn wait_unused(&self, entry: &Arc<Entry>) {
        let _ = entry;
    }

    /// Looks at up to `nr` entries and drops those that may go. Returns how many it dropped.
    fn scan(&self, nr: usize) -> usize;
}

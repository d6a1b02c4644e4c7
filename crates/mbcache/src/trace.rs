//! Trace events, for subscribers to the target `mbcache` of the crate `tracing`. Without one, an
//! event costs a load. The kernel has none for its mbcache; names are those of what its functions
//! do (`mb_cache_entry_create`, `_find_first`, `_touch`, `_delete_or_get`, `_wait_unused`,
//! `mb_cache_shrink`).
//!
//! `key` is the hash on disk, `value` the number of the block or inode. No lock of this crate is
//! held during an event; for some, the caller's lock of a count is.
//!
//! There is no event for each entry that goes, but one for what a scan dropped; entries that go for
//! one that comes are only counted ([`crate::Stats::shrunk_sync`]).

use tracing::trace;

use crate::entry::{Entry, Key};
use crate::index::Created;

/// A thing was made or read, and came in or did not.
pub(crate) fn create(key: Key, value: u64, users: u32, created: Created) {
    trace!(name: "mbcache_create", target: "mbcache", key = key.hash, value, users, ?created);
}

/// A search found one.
pub(crate) fn hit(entry: &Entry) {
    trace!(name: "mbcache_hit", target: "mbcache", key = entry.key.hash, value = entry.value);
}

/// What was found gets a user: there are so many then. Or it must not, and is to be searched for
/// again.
pub(crate) fn reuse(entry: &Entry, users: u32, taken: bool) {
    let (key, value) = (entry.key.hash, entry.value);
    trace!(name: "mbcache_reuse", target: "mbcache", key, value, users, taken);
}

/// A thing leaves because it is freed or changed; or it stays, because another thread has found it.
pub(crate) fn delete(key: u32, value: u64, removed: bool) {
    trace!(name: "mbcache_delete", target: "mbcache", key, value, removed);
}

/// A thread waits until a thing is not found any more.
pub(crate) fn wait(entry: &Entry) {
    let (key, value) = (entry.key.hash, entry.value);
    trace!(name: "mbcache_wait_unused", target: "mbcache", key, value);
}

/// A scan dropped so many entries, because memory is short.
pub(crate) fn evict(freed: usize, left: usize) {
    if freed > 0 {
        trace!(name: "mbcache_evict", target: "mbcache", freed, left);
    }
}

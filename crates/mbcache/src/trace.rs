//! Trace events, for whoever subscribes to the target `mbcache` of crate `tracing`. Where nobody does, an
//! event costs a load. The kernel has none for its mbcache; names are those of what its functions do
//! (`mb_cache_entry_create`, `_find_first`, `_touch`, `_delete_or_get`, `_wait_unused`, `mb_cache_shrink`).
//!
//! `key` is the hash on disk, `value` the number of the block or inode. All are told with no lock of
//! this room held, some under the caller's lock of a count.
//!
//! Not told: each entry that goes, but how many a scan dropped; those that go for one that comes are
//! counted alone ([`crate::Stats::shrunk_sync`]).

use tracing::trace;

use crate::cache::Created;
use crate::entry::{Entry, Key};

/// A thing was made or read, and came in or did not.
pub(crate) fn create(key: Key, value: u64, users: u32, created: Created) {
    trace!(name: "mbcache_create", target: "mbcache", key = key.hash, value, users, ?created);
}

/// A search found one.
pub(crate) fn hit(entry: &Entry) {
    trace!(name: "mbcache_hit", target: "mbcache", key = entry.key.hash, value = entry.value);
}

/// What was found gets a user: there are so many then. Or it must not, and is to be searched for again.
pub(crate) fn reuse(entry: &Entry, users: u32, taken: bool) {
    let (key, value) = (entry.key.hash, entry.value);
    trace!(name: "mbcache_reuse", target: "mbcache", key, value, users, taken);
}

/// A thing leaves because it is freed or changed; or it stays, for somebody has found it.
pub(crate) fn delete(key: u32, value: u64, removed: bool) {
    trace!(name: "mbcache_delete", target: "mbcache", key, value, removed);
}

/// Somebody waits for who has found a thing.
pub(crate) fn wait(entry: &Entry) {
    let (key, value) = (entry.key.hash, entry.value);
    trace!(name: "mbcache_wait_unused", target: "mbcache", key, value);
}

/// A scan, by the worker or because memory is short, dropped so many entries.
pub(crate) fn evict(freed: usize, left: usize) {
    if freed > 0 {
        trace!(name: "mbcache_evict", target: "mbcache", freed, left);
    }
}

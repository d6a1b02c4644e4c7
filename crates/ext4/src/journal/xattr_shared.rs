//! Attribute data that inodes may share: xattr blocks and value inodes, found again by their
//! hash.
//!
//! Two caches of the crate `mbcache`, or none (`nombcache`), and the reference counts with their
//! locks: the number of users of a block, or of a value inode, changes under the lock of that
//! count. The requirements of that crate on its callers are stated there; this module adds none.
//!
//! Users of blocks are counted in memory ([`Counts`]). `h_refcount` is stored once per
//! transaction, when it accepts no more handles ([`XattrSharing::store_counts`]): a recovered
//! transaction therefore has the counts that match its inodes, and no intermediate ones. Until
//! then the count in the header is outdated; use [`XattrSharing::users_of_block`]. The counts of
//! value inodes are stored at each change.
//!
//! A block or value inode is added to the cache when it is created, and when it is read by a
//! caller that holds the lock of an inode that refers to it: for listing or getting attributes,
//! or before they are changed. It is not added when it is read for a new inode's ACLs, or by a
//! caller that has a copy of an inode.
//!
//! Locks: the lock of a count, shared or not, is taken with no lock of mbcache held, never two at
//! once, and never while waiting. Under it come the locks of mbcache, of buffers and of a handle.

use std::sync::Arc;

use uext4_buffer_cache::Buffer;
use uext4_mbcache::{
    Cache, Candidate, Content, Counts, Created, Index, Key, Locked, Options, Release, Stats,
};
use uext4_ondisk::Pblk;
use uext4_ondisk::xattr::{XATTR_BLOCK_HEADER_LEN, put_block_header, verify_block};

use crate::base::edit::Edit;
use crate::base::error::Result;
use crate::base::memory::Shrinker;
use crate::base::owner::{Kind, Owner};
use crate::base::policies::Policies;

/// The shared attributes of one file system.
#[derive(Debug)]
pub(crate) struct XattrSharing {
    /// Blocks of attributes, by `h_hash`.
    pub(crate) blocks: Sharing,
    /// Inodes of values, by the value's hash.
    pub(crate) values: Sharing,
}

impl XattrSharing {
    /// Creates an empty instance. `None` turns off new sharing.
    pub(crate) fn new(
        options: Option<Options>,
        users_max: u32,
        policies: &Policies,
    ) -> Result<Self> {
        let blocks = options.map(|options| Options {
            users_max,
            ..options
        });
        let values = options.map(|options| Options {
            // As many as the count can represent.
            users_max: u32::MAX,
            ..options
        });
        Ok(Self {
            blocks: Sharing::new(blocks, policies.xattr_blocks.clone())?,
            values: Sharing::new(values, policies.xattr_values.clone())?,
        })
    }

    /// Adds a block that one of its users has read to the cache; the caller remains a user
    /// meanwhile.
    pub(crate) fn seen_block(&self, at: Pblk, block: &[u8]) -> Result<()> {
        let header = verify_block(block, at, None)?;
        let (hash, stored) = (header.h_hash.get(), header.h_refcount.get());
        // Blocks without a hash are not shared.
        if hash != 0 && stored > 0 {
            let body = block.get(XATTR_BLOCK_HEADER_LEN..).unwrap_or_default();
            let users = || self.users_of_block(at, stored);
            self.blocks.seen(hash, body, at.0, users);
        }
        Ok(())
    }

    /// The number of users of a block whose header stores `stored`.
    pub(crate) fn users_of_block(&self, at: Pblk, stored: u32) -> u32 {
        self.blocks.counts.users(at.0).unwrap_or(stored)
    }

    /// Stores the counts of blocks that have changed since the last call. No handle is open.
    pub(crate) fn store_counts(&self, closing: &impl Edit) -> Result<()> {
        let mut result = Ok(());
        self.blocks.counts.drain(|at, buffer, users| {
            if result.is_ok() {
                result = store_count(closing, Pblk(at), buffer, users);
            }
        });
        result
    }

    fn caches(&self) -> impl Iterator<Item = &Cache> {
        [&self.blocks, &self.values]
            .into_iter()
            .filter_map(|sharing| sharing.cache.as_ref())
    }
}

/// Stores a block's number of users if it has changed; the commit computes the checksum.
fn store_count(closing: &impl Edit, at: Pblk, buffer: &Buffer, users: u32) -> Result<()> {
    // The borrow of the bytes ends before the change; otherwise the buffer would be copied.
    let header = verify_block(&buffer.data(), at, None)?;
    if header.h_refcount.get() != users {
        closing.change(buffer, Owner::of(Kind::Xattr), |bytes| {
            put_block_header(bytes, at, users, header.h_hash.get(), None);
        });
    }
    Ok(())
}

impl Shrinker for XattrSharing {
    fn memory(&self) -> u64 {
        self.caches().map(|cache| cache.memory() as u64).sum()
    }

    fn count(&self) -> u64 {
        let bytes = |cache: &Cache| cache.count() as u64 * cache.entry_memory() as u64;
        self.caches().map(bytes).sum()
    }

    fn scan(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        for cache in self.caches() {
            let each = cache.entry_memory() as u64;
            // At most four visits of each entry: a visit may only clear a reference bit.
            let mut left = cache.count().saturating_mul(4);
            while freed < bytes && left > 0 {
                let batch = left.min(uext4_mbcache::BATCH);
                freed += cache.scan(batch) as u64 * each;
                left -= batch;
            }
        }
        freed
    }

    fn set_limit(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.caches().for_each(|cache| cache.set_limit(bytes / 2));
    }
}

/// Objects found by a hash, and their reference counts.
#[derive(Debug)]
pub(crate) struct Sharing {
    cache: Option<Cache>,
    /// For blocks: the counts that differ from their headers; for values: only the locks.
    pub(crate) counts: Counts<Buffer>,
}

impl Sharing {
    fn new(options: Option<Options>, index: Option<Arc<dyn Index>>) -> Result<Self> {
        let cache = options.map(|options| match index {
            Some(index) => Ok(Cache::with_index(index, options.users_max)),
            None => Cache::new(&options),
        });
        Ok(Self {
            cache: cache.transpose()?,
            counts: Counts::default(),
        })
    }

    /// Locks the reference count of an object; this may lock other counts with it.
    pub(crate) fn lock(&self, thing: u64) -> Locked<'_, Buffer> {
        self.counts.lock(thing)
    }

    /// The key of a content, if there is a cache.
    pub(crate) fn key<'a>(&self, hash: u32, body: impl Into<Content<'a>>) -> Option<Key> {
        Some(self.cache.as_ref()?.key(hash, body))
    }

    /// Finds an object that may have the content. Must not be called under the lock of a count.
    pub(crate) fn find(&self, key: Key) -> Option<Candidate<'_>> {
        self.cache.as_ref()?.find(key)
    }

    /// Adds a new object with that many users, one of which is the caller.
    pub(crate) fn made(&self, key: Key, thing: u64, users: u32) {
        if let Some(cache) = &self.cache {
            // If it is not added, it is not shared.
            let _: Created = cache.created(key, thing, users);
        }
    }

    /// Adds an object that one of its users has read; the caller remains a user meanwhile.
    pub(crate) fn seen(&self, hash: u32, body: &[u8], thing: u64, users: impl FnOnce() -> u32) {
        if let Some(cache) = &self.cache {
            let _: Created = cache.seen(hash, body, thing, users);
        }
    }

    /// Starts the removal of a user, or a change of the object. Must not be called under the lock
    /// of a count.
    pub(crate) fn release(&self, key: Key, thing: u64) -> Option<Release<'_>> {
        Some(self.cache.as_ref()?.release(key, thing))
    }

    /// Like [`Self::release`], for an object that was read: by its hash and its body.
    pub(crate) fn release_read<'a>(
        &'a self,
        hash: u32,
        body: &'a [u8],
        thing: u64,
    ) -> Option<Release<'a>> {
        Some(self.cache.as_ref()?.release_read(hash, body, thing))
    }

    /// Whether new sharing is on.
    pub(crate) fn is_on(&self) -> bool {
        self.cache.is_some()
    }

    /// Statistics of the cache.
    pub(crate) fn stats(&self) -> Option<Stats> {
        Some(self.cache.as_ref()?.stats())
    }
}

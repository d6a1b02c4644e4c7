//! What inodes may share of their attributes: blocks, and inodes of values, found again by their
//! hash.
//!
//! Two caches of the crate `mbcache`, or none (`nombcache`), and the counts of users with their
//! locks: a user more or less of a block, or of an inode with a value, is counted under the lock
//! of that. The requirements of that crate on its callers are stated there; nothing here adds to
//! them.
//!
//! Users of blocks are counted in memory ([`Counts`]), and `h_refcount` is stored once a
//! transaction, when it takes no more handles ([`XattrSharing::store_counts`]): so a transaction
//! that is recovered has the counts that its inodes make, and none in between. Meanwhile the
//! header's count is an old one: any thread that wants to know asks
//! [`XattrSharing::users_of_block`]. Users of inodes of values are stored one by one.
//!
//! A thing comes in when it is made, and when it is read for a caller that holds the lock of an
//! inode that leads to it: attributes that are listed or got, and those of an inode that is about
//! to change them. What is read for a new inode's ACLs does not count, nor what is read for a
//! caller that has a copy of an inode.
//!
//! Locks: a count's, shared or not, is taken with none of the room's held, never two at once, and
//! never while waiting. Under it come the room's, those of buffers and of a handle.

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

/// What is shared in one file system.
#[derive(Debug)]
pub(crate) struct XattrSharing {
    /// Blocks of attributes, by `h_hash`.
    pub(crate) blocks: Sharing,
    /// Inodes of values, by the value's hash.
    pub(crate) values: Sharing,
}

impl XattrSharing {
    /// Empty. `None`: nothing is shared that is not yet.
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
            // As many as can be counted.
            users_max: u32::MAX,
            ..options
        });
        Ok(Self {
            blocks: Sharing::new(blocks, policies.xattr_blocks.clone())?,
            values: Sharing::new(values, policies.xattr_values.clone())?,
        })
    }

    /// Lets others find a block that one of its users has read, who stays that for now.
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

    /// The users of a block whose header says that they are so many.
    pub(crate) fn users_of_block(&self, at: Pblk, stored: u32) -> u32 {
        self.blocks.counts.users(at.0).unwrap_or(stored)
    }

    /// Stores the counts of blocks that have changed since this was last done. No thread has a
    /// handle.
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

/// Stores a block's number of users, if it is another one; the commit puts in the checksum.
fn store_count(closing: &impl Edit, at: Pblk, buffer: &Buffer, users: u32) -> Result<()> {
    // The bytes are let go of before they are changed: else they would be copied.
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
            // Four times each at most: visits may only take away marks of use.
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

/// Things found by a hash, and their counts of users.
#[derive(Debug)]
pub(crate) struct Sharing {
    cache: Option<Cache>,
    /// Of blocks, those that are not as in their headers; of values, the locks alone.
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

    /// Locks the count of a thing's users; others may be locked with it.
    pub(crate) fn lock(&self, thing: u64) -> Locked<'_, Buffer> {
        self.counts.lock(thing)
    }

    /// The key of a content, if there is a cache.
    pub(crate) fn key<'a>(&self, hash: u32, body: impl Into<Content<'a>>) -> Option<Key> {
        Some(self.cache.as_ref()?.key(hash, body))
    }

    /// A thing that may have the content. Not under a count's lock.
    pub(crate) fn find(&self, key: Key) -> Option<Candidate<'_>> {
        self.cache.as_ref()?.find(key)
    }

    /// A thing was made, and has so many users, of whom the caller is one.
    pub(crate) fn made(&self, key: Key, thing: u64, users: u32) {
        if let Some(cache) = &self.cache {
            // If it does not come in it is not shared.
            let _: Created = cache.created(key, thing, users);
        }
    }

    /// A thing was read by one of its users, who stays that for now.
    pub(crate) fn seen(&self, hash: u32, body: &[u8], thing: u64, users: impl FnOnce() -> u32) {
        if let Some(cache) = &self.cache {
            let _: Created = cache.seen(hash, body, thing, users);
        }
    }

    /// A user is to go, or to change the thing. Not under a count's lock.
    pub(crate) fn release(&self, key: Key, thing: u64) -> Option<Release<'_>> {
        Some(self.cache.as_ref()?.release(key, thing))
    }

    /// The same of a thing that was read: its hash and its body.
    pub(crate) fn release_read<'a>(
        &'a self,
        hash: u32,
        body: &'a [u8],
        thing: u64,
    ) -> Option<Release<'a>> {
        Some(self.cache.as_ref()?.release_read(hash, body, thing))
    }

    /// Whether anything is shared that is not yet.
    pub(crate) fn is_on(&self) -> bool {
        self.cache.is_some()
    }

    /// What the cache has done.
    pub(crate) fn stats(&self) -> Option<Stats> {
        Some(self.cache.as_ref()?.stats())
    }
}

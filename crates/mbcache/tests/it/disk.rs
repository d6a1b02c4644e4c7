//! Blocks with contents and users, and the threads that use them: what an engine does, with every
//! rule for the cache's callers. Users are counted in memory and stored by [`Disk::commit`]. Panics
//! where a block is used after it was freed.
//!
//! The tests on it hold for any index: `answers.rs` and `schedules.rs` run them on each of
//! `super::DESIGNS`, here those of this crate, and in `lab/policies` all others.

use parking_lot::Mutex;
use uext4_mbcache::{Cache, Candidate, Counts, Key};

/// An index under test.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    pub name: &'static str,
    /// An empty cache with it.
    pub cache: fn(Limits) -> Cache,
    /// Whether what was found is not freed and does not change. Else it may be, and gets no user.
    pub stays: bool,
}

/// What a cache is made with.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// 0: the design's own number.
    pub max_entries: u32,
    pub users_max: u32,
}

/// A block that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    content: u32,
    /// As stored.
    users: u32,
}

/// The blocks of a file system, and the cache over them.
#[derive(Debug)]
pub struct Disk {
    pub cache: Cache,
    users_max: u32,
    /// Contents whose hash on disk is the same: every so many.
    hashes: u32,
    blocks: Vec<Mutex<Option<Block>>>,
    counts: Counts<()>,
    free: Mutex<Vec<u64>>,
    stays: bool,
}

impl Disk {
    /// `hashes`: contents that differ by a multiple of it have one hash on disk.
    pub fn new(design: &Design, limits: Limits, blocks: u64, hashes: u32) -> Self {
        Self {
            cache: (design.cache)(limits),
            users_max: limits.users_max,
            hashes,
            blocks: (0..blocks).map(|_| Mutex::new(None)).collect(),
            counts: Counts::default(),
            free: Mutex::new((0..blocks).rev().collect()),
            stays: design.stays,
        }
    }

    fn body(content: u32) -> [u8; 4] {
        content.to_le_bytes()
    }

    pub fn key(&self, content: u32) -> Key {
        let hash = content % self.hashes;
        self.cache.key(hash, &Self::body(content))
    }

    fn block(&self, at: u64) -> &Mutex<Option<Block>> {
        &self.blocks[at as usize]
    }

    /// What an inode has that has this block.
    pub fn content(&self, at: u64) -> u32 {
        self.block(at).lock().expect("a user's block").content
    }

    /// Reads an inode's block.
    pub fn get(&self, at: u64) -> u32 {
        let block = self.block(at).lock().expect("a user's block");
        let (content, hash) = (block.content, block.content % self.hashes);
        let body = Self::body(content);
        let users = || self.counts.users(at).unwrap_or(block.users);
        _ = self.cache.seen(hash, &body, at, users);
        content
    }

    /// Gives an inode another content.
    pub fn set(&self, inode: &mut Option<u64>, content: u32) {
        let old = inode.take();
        *inode = match (self.share(content), old) {
            (Some(at), _) => {
                old.inspect(|&old| self.release(old));
                Some(at)
            }
            (None, Some(old)) if self.edit(old, content) => Some(old),
            (None, _) => {
                let at = self.make(content);
                old.inspect(|&old| self.release(old));
                Some(at)
            }
        };
    }

    /// A block of this content with one more user.
    pub fn share(&self, content: u32) -> Option<u64> {
        for _ in 0..8 {
            let mut next = self.cache.find(self.key(content));
            loop {
                let candidate = next?;
                let at = candidate.value();
                let read = *self.block(at).lock();
                assert!(!self.stays || read.is_some(), "{at} was found and freed");
                if read.is_none_or(|read| read.content != content) {
                    next = candidate.next();
                    continue;
                }
                match self.join(candidate, content) {
                    Ok(true) => return Some(at),
                    Ok(false) => break,
                    Err(candidate) => next = candidate.next(),
                }
            }
        }
        None
    }

    /// One user more of what was found; whether that is so, or it is to be searched for again.
    fn join<'a>(&self, candidate: Candidate<'a>, content: u32) -> Result<bool, Candidate<'a>> {
        let at = candidate.value();
        let has_content = || {
            let has = self.block(at).lock().is_some_and(|b| b.content == content);
            assert!(has || !self.stays, "{at} was found and freed or changed");
            has
        };
        if let Some(count) = self.counts.share(at) {
            let users = count.users();
            if users + 1 < self.users_max && has_content() {
                let taken = candidate.taken(users + 1).is_ok();
                assert!(taken || !self.stays);
                return Ok(taken && count.come(self.users_max - 1).is_some());
            }
        }
        let mut count = self.counts.lock(at);
        if !has_content() {
            return Err(candidate);
        }
        let users = count.users().unwrap_or_else(|| self.stored(at));
        if users >= self.users_max {
            candidate.set_full();
            return Err(candidate);
        }
        let taken = candidate.taken(users + 1).is_ok();
        assert!(taken || !self.stays);
        if taken {
            count.set(users + 1, || ());
        }
        Ok(taken)
    }

    fn stored(&self, at: u64) -> u32 {
        self.block(at).lock().map_or(0, |block| block.users)
    }

    /// Stores the users of all blocks. None comes or goes meanwhile.
    pub fn commit(&self) {
        self.counts.drain(|at, (), users| {
            let mut block = self.block(at).lock();
            block.as_mut().expect("what is freed is forgotten").users = users;
        });
    }

    fn make(&self, content: u32) -> u64 {
        let at = self.free.lock().pop().expect("a free block");
        let new = Block { content, users: 1 };
        assert_eq!(self.block(at).lock().replace(new), None);
        _ = self.cache.created(self.key(content), at, 1);
        at
    }

    /// Changes a block in place, if it has no other user.
    fn edit(&self, at: u64, content: u32) -> bool {
        loop {
            let release = self.cache.release(self.key(self.content(at)), at);
            let count = self.counts.lock(at);
            if count.users().unwrap_or_else(|| self.stored(at)) != 1 {
                return false;
            }
            match release.remove() {
                Ok(()) => {
                    drop(count);
                    let new = Block { content, users: 1 };
                    self.block(at).lock().replace(new).expect("a block");
                    _ = self.cache.created(self.key(content), at, 1);
                    return true;
                }
                Err(in_use) => {
                    drop(count);
                    in_use.wait();
                }
            }
        }
    }

    /// Lets go of a block.
    pub fn release(&self, at: u64) {
        let count = self.counts.share(at);
        if count.is_some_and(|count| count.leave(self.users_max).is_some()) {
            return;
        }
        loop {
            let release = self.cache.release(self.key(self.content(at)), at);
            let mut count = self.counts.lock(at);
            let users = count.users().unwrap_or_else(|| self.stored(at));
            assert!(users > 0, "a user's block");
            if users > 1 {
                count.set(users - 1, || ());
                release.left(users - 1);
                return;
            }
            match release.remove() {
                Ok(()) => {
                    count.forget();
                    *self.block(at).lock() = None;
                    self.free.lock().push(at);
                    return;
                }
                Err(in_use) => {
                    drop(count);
                    in_use.wait();
                }
            }
        }
    }

    /// Users of all blocks, by block.
    pub fn users(&self) -> Vec<u32> {
        let users = |at| self.counts.users(at).unwrap_or_else(|| self.stored(at));
        (0..self.blocks.len() as u64).map(users).collect()
    }

    /// Whether these inodes are all users, and nothing is found that is none of the content's hash.
    pub fn check(&self, inodes: &[Option<u64>], contents: u32) {
        let mut users = vec![0; self.blocks.len()];
        for at in inodes.iter().flatten() {
            users[*at as usize] += 1;
        }
        assert_eq!(self.users(), users);
        self.commit();
        assert_eq!(self.users(), users);
        assert!(users.iter().all(|&users| users <= self.users_max));
        for content in 0..contents {
            let mut next = self.cache.find(self.key(content));
            while let Some(candidate) = next {
                let block = *self.block(candidate.value()).lock();
                let hash = block.map(|block| block.content % self.hashes);
                assert_eq!(hash, Some(content % self.hashes), "{:?}", self.cache);
                next = candidate.next();
            }
        }
    }
}

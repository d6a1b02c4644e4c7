//! Blocks with contents and users, and whoever has them: what an engine does, with every rule of the
//! cache's callers. Panics where a block is used after it was freed.

use parking_lot::Mutex;
use uext4_mbcache::{Cache, Key, Options};

/// A block that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    content: u32,
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
    free: Mutex<Vec<u64>>,
    /// Whether the cache promises that what is found is not freed.
    keeps: bool,
}

impl Disk {
    pub fn new(options: &Options, blocks: u64, hashes: u32) -> Self {
        let policy = options.policy.to_string();
        Self {
            cache: Cache::new(options).unwrap(),
            users_max: options.users_max,
            hashes,
            blocks: (0..blocks).map(|_| Mutex::new(None)).collect(),
            free: Mutex::new((0..blocks).rev().collect()),
            keeps: !policy.starts_with("mbcache2"),
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
        _ = self.cache.seen((hash, &body), at, block.users);
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
        if self.cache.is_work_due() {
            self.cache.work();
        }
    }

    /// A block of this content with one more user.
    pub fn share(&self, content: u32) -> Option<u64> {
        for _ in 0..8 {
            let mut next = self.cache.find(self.key(content));
            loop {
                let candidate = next?;
                let at = candidate.value();
                let read = *self.block(at).lock();
                assert!(!self.keeps || read.is_some(), "{at} was found and freed");
                if read.is_none_or(|read| read.content != content) {
                    next = candidate.next();
                    continue;
                }
                let mut block = self.block(at).lock();
                let Some(found) = block.as_mut().filter(|found| found.content == content) else {
                    assert!(!self.keeps, "{at} was found and changed");
                    drop(block);
                    next = candidate.next();
                    continue;
                };
                if found.users >= self.users_max {
                    candidate.is_full();
                    drop(block);
                    next = candidate.next();
                    continue;
                }
                if candidate.taken(found.users + 1).is_ok() {
                    found.users += 1;
                    return Some(at);
                }
                assert!(!self.keeps);
                break;
            }
        }
        None
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
            let mut block = self.block(at).lock();
            let only = block.as_mut().filter(|block| block.users == 1);
            let Some(only) = only else {
                return false;
            };
            match release.remove() {
                Ok(()) => {
                    only.content = content;
                    drop(block);
                    _ = self.cache.created(self.key(content), at, 1);
                    return true;
                }
                Err(in_use) => {
                    drop(block);
                    in_use.wait();
                }
            }
        }
    }

    /// Lets go of a block.
    pub fn release(&self, at: u64) {
        loop {
            let release = self.cache.release(self.key(self.content(at)), at);
            let mut block = self.block(at).lock();
            let found = block.as_mut().expect("a user's block");
            if found.users > 1 {
                found.users -= 1;
                release.left(found.users);
                return;
            }
            match release.remove() {
                Ok(()) => {
                    *block = None;
                    drop(block);
                    self.free.lock().push(at);
                    return;
                }
                Err(in_use) => {
                    drop(block);
                    in_use.wait();
                }
            }
        }
    }

    /// Users of all blocks, by block.
    pub fn users(&self) -> Vec<u32> {
        let users = |block: &Mutex<Option<Block>>| block.lock().map_or(0, |block| block.users);
        self.blocks.iter().map(users).collect()
    }

    /// Whether these inodes are all users, and nothing is found that is none of the content's hash.
    pub fn check(&self, inodes: &[Option<u64>], contents: u32) {
        let mut users = vec![0; self.blocks.len()];
        for at in inodes.iter().flatten() {
            users[*at as usize] += 1;
        }
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

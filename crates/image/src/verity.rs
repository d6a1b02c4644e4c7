//! Hash trees of dm-verity, with which the kernel verifies every block of an image as it is read.
//!
//! ```text
//! | superblock |  top  |  …  | hashes of hashes | hashes of data blocks |
//!   one block   1 block        1 a 128 blocks below     1 a 128 blocks
//! ```
//! Every hash block holds the hashes of 128 blocks of the level below it; the hash of the top
//! block is the root hash, which the program that opens the image must know from elsewhere. The
//! sources: the kernel's `Documentation/admin-guide/device-mapper/verity.rst` says what a hash is
//! taken of, and the order of the levels; the page `DMVerity` of the cryptsetup wiki describes the
//! superblock, in which `veritysetup` finds the parameters.
//!
//! Only one kind is made: format version 1, SHA-256, data and hash blocks of 4096 bytes. All cores
//! hash; each level is read back from the device, so that memory does not grow with the image.
//! Blocks in holes are not read.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use uext4_blockdev::verity::{SUPERBLOCK_LEN, Tree};
use uext4_blockdev::{BlockDevice, Error};

/// Bytes of a data block and of a hash block.
pub const BLOCK: u64 = 4096;

/// The hash, as `veritysetup` and the kernel call it.
pub const HASH_ALGORITHM: &str = "sha256";

/// Bytes of the longest salt.
pub const SALT_MAX: usize = 256;

/// Bytes of a hash.
const HASH: usize = 32;
/// Hashes in a block.
const PER_BLOCK: u64 = BLOCK / HASH as u64;
/// Hash blocks that a thread makes before it takes others: those of 8 MiB of data.
const BLOCKS_AT_ONCE: u64 = 16;

/// Parameters of a hash tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verity {
    /// Hashed before every block; empty or up to [`SALT_MAX`] bytes.
    salt: Vec<u8>,
    /// UUID in the superblock.
    uuid: [u8; 16],
    superblock: Superblock,
}

/// Whether a superblock stands before the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superblock {
    /// One block, from which `veritysetup` reads the parameters.
    Written,
    /// None: who opens the image gives all parameters.
    LeftOut,
}

/// The hash that all of the data follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootHash(pub [u8; 32]);

/// In hexadecimal digits, as `veritysetup` reads it.
impl fmt::Display for RootHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Verity {
    /// A tree with a superblock. `None` if the salt is longer than [`SALT_MAX`] bytes.
    #[must_use]
    pub fn new(salt: Vec<u8>, uuid: [u8; 16]) -> Option<Self> {
        (salt.len() <= SALT_MAX).then_some(Self {
            salt,
            uuid,
            superblock: Superblock::Written,
        })
    }

    /// The same tree, with or without a superblock.
    #[must_use]
    pub fn with(mut self, superblock: Superblock) -> Self {
        self.superblock = superblock;
        self
    }

    /// The salt that follows from an identity, such as the UUID of a file system: 32 bytes.
    #[must_use]
    pub fn salt_from(identity: &[u8; 16]) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(b"uext4 verity salt 1\0");
        hash.update(identity);
        hash.finalize().to_vec()
    }

    /// The salt in hexadecimal digits; "-" if there is none, as `veritysetup` reads it.
    #[must_use]
    pub fn salt_text(&self) -> String {
        match self.salt.is_empty() {
            true => "-".to_owned(),
            false => hex::encode(&self.salt),
        }
    }

    /// UUID in the superblock.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Bytes that the tree of `data_len` bytes takes, with its superblock if it has one.
    #[must_use]
    pub fn tree_len(&self, data_len: u64) -> u64 {
        let blocks: u64 = levels(data_len.div_ceil(BLOCK)).iter().sum();
        (blocks + self.first_level()).saturating_mul(BLOCK)
    }

    /// Block at which the top level begins.
    fn first_level(&self) -> u64 {
        match self.superblock {
            Superblock::Written => 1,
            Superblock::LeftOut => 0,
        }
    }

    /// Hashes all of `data` and writes the tree at the beginning of `tree`, which must have
    /// [`Verity::tree_len`] bytes. Data that is no multiple of [`BLOCK`] is hashed as if zeroes
    /// followed it: they must be there when the image is opened.
    ///
    /// # Errors
    /// Those of both devices; [`Error::OutOfRange`] if `tree` is too small, before anything is
    /// written.
    pub fn write(&self, data: &dyn BlockDevice, tree: &dyn BlockDevice) -> Result<RootHash, Error> {
        let data_blocks = data.len().div_ceil(BLOCK);
        Error::check_range(0, self.tree_len(data.len()), tree.len())?;
        let salted = Sha256::new().chain_update(&self.salt);
        let hasher = Hasher {
            zero: digest(&salted, &[0; BLOCK as usize]),
            salted,
            tree,
        };
        let levels = levels(data_blocks);
        let mut end = self.first_level() + levels.iter().sum::<u64>();
        let mut below = Below {
            device: data,
            bytes: 0..data.len(),
        };
        // The lowest level lies last.
        for &blocks in &levels {
            end -= blocks;
            hasher.level(&below, end * BLOCK, blocks)?;
            below = Below {
                device: tree,
                bytes: end * BLOCK..(end + blocks) * BLOCK,
            };
        }
        if self.superblock == Superblock::Written {
            tree.write_at(0, &self.superblock_block(data_blocks))?;
        }
        let mut top = [0; BLOCK as usize];
        below.read(0, &mut top)?;
        Ok(RootHash(digest(&hasher.salted, &top)))
    }

    fn superblock_block(&self, data_blocks: u64) -> Vec<u8> {
        let tree = Tree {
            at: 0,
            uuid: self.uuid,
            hash_type: 1,
            algorithm: HASH_ALGORITHM.to_owned(),
            data_block: BLOCK as u32,
            hash_block: BLOCK as u32,
            data_blocks,
            salt: self.salt.clone(),
        };
        let mut block = tree.to_bytes().to_vec();
        block.resize(BLOCK as usize, 0);
        block
    }
}

/// The root hash that follows from a tree on `device`, whose data begins at byte `data` of the same
/// device: the hash of its top block. Whether the tree is right is not verified. `None` for a hash
/// that is not SHA-256, or a tree that is cut off.
///
/// # Errors
/// Those of reading the device.
pub fn root_hash(
    tree: &Tree,
    device: &dyn BlockDevice,
    data: u64,
) -> Result<Option<RootHash>, Error> {
    if tree.algorithm != HASH_ALGORITHM || tree.hash_type > 1 || tree.data_blocks == 0 {
        return Ok(None);
    }
    let superblock_end = tree.at.saturating_add(SUPERBLOCK_LEN as u64);
    let (at, len) = match tree.data_blocks {
        1 => (data, tree.data_block),
        _ => {
            let first = superblock_end.checked_next_multiple_of(tree.hash_block.into());
            (first.unwrap_or(u64::MAX), tree.hash_block)
        }
    };
    let mut block = vec![0; len as usize];
    if Error::check_range(at, len.into(), device.len()).is_err() {
        return Ok(None);
    }
    device.read_at(at, &mut block)?;
    let hash = match tree.hash_type {
        0 => Sha256::new().chain_update(&block).chain_update(&tree.salt),
        _ => Sha256::new().chain_update(&tree.salt).chain_update(&block),
    };
    Ok(Some(RootHash(hash.finalize().into())))
}

/// Blocks of every level, the lowest first; none if there is but one block of data, whose hash is
/// the root hash.
fn levels(data_blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut blocks = data_blocks;
    while blocks > 1 {
        blocks = blocks.div_ceil(PER_BLOCK);
        levels.push(blocks);
    }
    levels
}

fn digest(salted: &Sha256, block: &[u8]) -> [u8; HASH] {
    salted.clone().chain_update(block).finalize().into()
}

/// What a level has the hashes of.
struct Below<'a> {
    device: &'a dyn BlockDevice,
    bytes: Range<u64>,
}

impl Below<'_> {
    fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Fills `buf` with what there is from `at` on, at least a byte; the rest of it stays.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Error> {
        let there = (self.len() - at).min(buf.len() as u64) as usize;
        self.device
            .read_at(self.bytes.start + at, &mut buf[..there])
    }
}

/// Makes the levels of one tree.
struct Hasher<'a> {
    /// What has hashed the salt.
    salted: Sha256,
    /// Hash of a block of zeroes.
    zero: [u8; HASH],
    tree: &'a dyn BlockDevice,
}

impl Hasher<'_> {
    /// Makes the level of `blocks` blocks at byte `at` of the tree, with all cores.
    fn level(&self, below: &Below<'_>, at: u64, blocks: u64) -> Result<(), Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let threads = cores.min(blocks.div_ceil(BLOCKS_AT_ONCE));
        let next = AtomicU64::new(0);
        let failed = Mutex::new(None);
        let work = || {
            let mut worker = Worker::new(self, below);
            loop {
                let first = next.fetch_add(BLOCKS_AT_ONCE, Ordering::Relaxed);
                if first >= blocks {
                    return;
                }
                let range = first..blocks.min(first + BLOCKS_AT_ONCE);
                if let Err(error) = worker.blocks(range, at) {
                    // The other threads have nothing more to do either.
                    next.store(blocks, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(|lock| lock.into_inner());
                    failed.get_or_insert(error);
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(|lock| lock.into_inner()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// One thread, with its buffers.
struct Worker<'a> {
    hasher: &'a Hasher<'a>,
    below: &'a Below<'a>,
    /// The device was asked for the next data from here on,
    asked: u64,
    /// and this was found, in bytes of the level below; empty at first.
    found: Range<u64>,
    /// Blocks that one hash block has the hashes of.
    input: Vec<u8>,
    output: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(hasher: &'a Hasher<'a>, below: &'a Below<'a>) -> Self {
        Self {
            hasher,
            below,
            asked: 0,
            found: 0..0,
            input: vec![0; (PER_BLOCK * BLOCK) as usize],
            output: Vec::with_capacity((BLOCKS_AT_ONCE * BLOCK) as usize),
        }
    }

    /// Makes these blocks of the level that begins at byte `level` of the tree.
    fn blocks(&mut self, blocks: Range<u64>, level: u64) -> Result<(), Error> {
        let at = level + blocks.start * BLOCK;
        self.output.clear();
        for block in blocks {
            self.block(block * PER_BLOCK * BLOCK)?;
            // Zeroes follow the last hash.
            let full = self.output.len().next_multiple_of(BLOCK as usize);
            self.output.resize(full, 0);
        }
        self.hasher.tree.write_at(at, &self.output)
    }

    /// Adds the hashes of the blocks below from byte `from` on.
    fn block(&mut self, from: u64) -> Result<(), Error> {
        let end = self.below.len().min(from + PER_BLOCK * BLOCK);
        let mut at = from;
        while at < end {
            let data = self.next_data(at)?;
            let begin = (data.start / BLOCK * BLOCK).clamp(at, end);
            while at < begin {
                self.output.extend_from_slice(&self.hasher.zero);
                at += BLOCK;
            }
            if at >= end {
                break;
            }
            let blocks_end = data.end.min(end).next_multiple_of(BLOCK);
            let input = &mut self.input[..(blocks_end - at) as usize];
            let there = (blocks_end.min(end) - at) as usize;
            input[there..].fill(0);
            self.below.read(at, &mut input[..there])?;
            for block in input.chunks(BLOCK as usize) {
                let hash = digest(&self.hasher.salted, block);
                self.output.extend_from_slice(&hash);
            }
            at = blocks_end;
        }
        Ok(())
    }

    /// The first bytes at or after `at` that may be other than zero; the end if there are none.
    fn next_data(&mut self, at: u64) -> Result<Range<u64>, Error> {
        if at < self.asked || at >= self.found.end {
            let (begin, len) = (self.below.bytes.start, self.below.len());
            let inside = |byte: u64| byte.saturating_sub(begin).clamp(at, len);
            let found = self.below.device.next_data(begin + at)?;
            self.asked = at;
            self.found = found.map_or(len..len, |found| inside(found.start)..inside(found.end));
        }
        Ok(self.found.clone())
    }
}

#[cfg(test)]
mod tests;

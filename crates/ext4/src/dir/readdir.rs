//! Lists a directory in steps while it changes: each entry has a cookie for its position, and a
//! listing can continue from any cookie.
//!
//! ```text
//! hashed      hash (31 bits) | minor hash (32 bits)     stays when names move between leaves
//! linear      offset in the directory + 1               stays, as records never move
//! ```
//! A directory of one block that would get an htree if it grew is listed as if it had one, so
//! that cookies stay valid. "." and ".." come first, with the cookies 1 and 2. All entries with
//! the same hash are in memory when the first of them is reported; if their minor hashes are
//! equal too, they are reported in the order of their names, each with a cookie higher than the
//! one before.

use uext4_ondisk::dir_entry::{DirBlock, DirEntry};
use uext4_ondisk::hash::{HashVersion, hash_name};
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};

use crate::base::error::{Error, Result};
use crate::dir::change::may_hash;
use crate::dir::htree::{SAME_HASH_LEAVES_MAX, Walk, hash_version, too_many_leaves};
use crate::dir::inline_dir::as_block;
use crate::dir::{Block, DirCursor, check_is_dir, is_dx};
use crate::inode::Inode;
use crate::journal::sbi::Sbi;

/// What is notified of each entry: it, and the cookie to go on with after it. False ends the
/// listing.
pub(crate) type EachEntry<'a> = dyn FnMut(&DirEntry<'_>, u64) -> bool + 'a;

/// Reports the entries of a directory after `cookie`, 0 for all. An entry that is there all the
/// time is reported once, whatever happens to others between one call and the next.
pub(crate) fn read_from(sbi: &Sbi, dir: &Inode, cookie: u64, f: &mut EachEntry<'_>) -> Result<()> {
    check_is_dir(dir)?;
    if dir.has(InodeFlags::INLINE_DATA) {
        let block = Block {
            at: Pblk(0),
            data: as_block(sbi, dir)?.into(),
        };
        return match may_hash(sbi) {
            true => read_one(sbi, block, cookie, f),
            false => report_records(sbi, &block, 0, cookie, f).map(|_| ()),
        };
    }
    if is_dx(sbi, dir) {
        match read_tree(sbi, dir, cookie, f) {
            // The hash is not computed from names as stored.
            Err(Error::Unsupported { .. }) => {}
            done => return done,
        }
    } else if dir.size == sbi.block_len() as u64 && may_hash(sbi) {
        let block = DirCursor::new(sbi, dir)?.block_at(sbi, dir, Lblk(0))?;
        return read_one(sbi, block, cookie, f);
    }
    read_linear(sbi, dir, cookie, f)
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The name as stored, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The inode that it refers to.
    pub ino: Ino,
    /// The file type stored in the entry, if there is one.
    pub file_type: Option<FileType>,
    /// The cookie to continue after this entry.
    pub next: u64,
}

/// Like [`read_from`], for the public interface.
pub(crate) fn list(
    sbi: &Sbi,
    dir: &Inode,
    cookie: u64,
    each: &mut dyn FnMut(&Listed<'_>) -> bool,
) -> Result<()> {
    read_from(sbi, dir, cookie, &mut |entry, next| {
        each(&Listed {
            name: entry.name,
            ino: entry.ino,
            file_type: entry.file_type,
            next,
        })
    })
}

fn records<'a>(sbi: &Sbi, bytes: &'a [u8], at: Pblk) -> DirBlock<'a> {
    let incompat = sbi.geometry().features.incompat;
    DirBlock::new(bytes, Some(at), incompat)
}

fn read_linear(sbi: &Sbi, dir: &Inode, cookie: u64, f: &mut EachEntry<'_>) -> Result<()> {
    let log2 = sbi.geometry().block_size.log2();
    let Ok(lblk) = u32::try_from(cookie >> log2) else {
        return Ok(());
    };
    let mut cursor = DirCursor::new(sbi, dir)?.starting_at(Lblk(lblk));
    while let Some(next) = cursor.next_buffer(sbi, dir) {
        let (lblk, buffer) = next?;
        let start = u64::from(lblk.0) << log2;
        if !report_records(sbi, &Block::from(buffer), start, cookie, f)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reports the records of a block that begins at byte `start`; false if that is to be all.
fn report_records(
    sbi: &Sbi,
    block: &Block,
    start: u64,
    cookie: u64,
    f: &mut EachEntry<'_>,
) -> Result<bool> {
    for entry in records(sbi, &block.data, block.at) {
        let entry = entry?;
        let at = start + entry.offset as u64;
        if at >= cookie && !f(&entry, at + 1) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The position of an entry of a batch.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// Its cookie, unless other entries have the same.
    key: u64,
    block: u32,
    offset: u32,
}

/// Entries that are reported in the order of their hashes.
struct Batch<'a> {
    sbi: &'a Sbi,
    version: HashVersion,
    seed: [u32; 4],
    blocks: Vec<Block>,
    items: Vec<Item>,
    /// The cookie of the last entry reported.
    reported: u64,
}

impl<'a> Batch<'a> {
    fn new(sbi: &'a Sbi, version: HashVersion, cookie: u64) -> Self {
        Self {
            sbi,
            version,
            seed: sbi.superblock().hash_seed(),
            blocks: Vec::new(),
            items: Vec::new(),
            reported: cookie,
        }
    }

    fn key(&self, name: &[u8]) -> u64 {
        match name {
            b"." => return 1,
            b".." => return 2,
            _ => {}
        }
        let hash = hash_name(self.version, self.seed, name);
        let minor = match self.version {
            // The legacy hash has no minor hash.
            HashVersion::Legacy | HashVersion::LegacyUnsigned => {
                hash_name(HashVersion::HalfMd4Unsigned, self.seed, name).hash
            }
            _ => hash.minor_hash,
        };
        (u64::from(hash.hash >> 1) << 32 | u64::from(minor)).max(3)
    }

    fn gather(&mut self, block: Block) -> Result<()> {
        let index = self.blocks.len() as u32;
        for entry in records(self.sbi, &block.data, block.at) {
            let entry = entry?;
            self.items.push(Item {
                key: self.key(entry.name),
                block: index,
                offset: entry.offset as u32,
            });
        }
        self.blocks.push(block);
        Ok(())
    }

    fn entry(&self, item: &Item) -> Option<DirEntry<'_>> {
        let block = self.blocks.get(item.block as usize)?;
        let mut records = records(self.sbi, &block.data, block.at);
        records = records.starting_at(item.offset as usize);
        records.next()?.ok()
    }

    /// Reports what has been gathered and comes after what was reported; false if that is to be
    /// all.
    fn report(&mut self, f: &mut EachEntry<'_>) -> bool {
        let mut items = std::mem::take(&mut self.items);
        items.sort_unstable_by(|a, b| {
            let name = |item| self.entry(item).map(|entry| entry.name);
            a.key.cmp(&b.key).then_with(|| name(a).cmp(&name(b)))
        });
        let mut before: Option<u64> = None;
        for item in &items {
            let same_hash = before.filter(|before| before >> 32 == item.key >> 32);
            let at = same_hash.map_or(item.key, |before| item.key.max(before + 1));
            before = Some(at);
            if at <= self.reported {
                continue;
            }
            self.reported = at;
            if let Some(entry) = self.entry(item)
                && !f(&entry, at)
            {
                return false;
            }
        }
        items.clear();
        self.items = items;
        self.blocks.clear();
        true
    }
}

fn read_one(sbi: &Sbi, block: Block, cookie: u64, f: &mut EachEntry<'_>) -> Result<()> {
    let version = hash_version(sbi, sbi.superblock().s_def_hash_version)?;
    let mut batch = Batch::new(sbi, version, cookie);
    batch.gather(block)?;
    batch.report(f);
    Ok(())
}

fn read_tree(sbi: &Sbi, dir: &Inode, cookie: u64, f: &mut EachEntry<'_>) -> Result<()> {
    // OK to truncate: 31 bits of hash; for an invalid cookie any position will do.
    let start = ((cookie >> 32) as u32) << 1;
    let (mut walk, _) = Walk::to(sbi, dir, |_| Ok(start))?;
    let version = hash_version(sbi, walk.info.hash_version)?;
    let mut batch = Batch::new(sbi, version, cookie);
    if start == 0 {
        // "." and ".."; a root has no other visible records.
        let root = DirCursor::new(sbi, dir)?.block_at(sbi, dir, Lblk(0))?;
        batch.gather(root)?;
    }
    let blocks = sbi.geometry().block_size.blocks_for(dir.size);
    for _ in 0..blocks {
        let (_, leaf) = walk.leaf(sbi, dir)?;
        batch.gather(Block::from(leaf))?;
        let next = walk.next_hash();
        // Names of one hash are reported together.
        if next.is_none_or(|hash| hash & 1 == 0) && !batch.report(f) {
            return Ok(());
        }
        if batch.blocks.len() > SAME_HASH_LEAVES_MAX as usize {
            return Err(too_many_leaves(dir));
        }
        if next.is_none() {
            return Ok(());
        }
        walk.advance(sbi, dir)?;
    }
    Err(Error::Corrupt(Damage::Directory {
        ino: dir.ino,
        why: "its htree has more leaves than there are blocks",
    }))
}

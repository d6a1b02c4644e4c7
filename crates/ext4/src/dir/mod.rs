//! Directories: reading, lookup, changes; and paths, which consist of their names.
//!
//! ```text
//! DirCursor: runs of blocks → block, verified once      ReadDir: block → records, owned
//! ```
//! This file reads directories from front to back, block by block or inline in the inode; in a
//! hashed directory the inner nodes look like blocks without used records, so the same walk
//! works. `htree` looks up a name by its hash, `change` adds and removes names with the help of
//! `grow`, `htree_change` and `inline_dir`, and `namei` follows paths.

pub(crate) mod change;
pub(crate) mod crypto;
pub(crate) mod grow;
pub(crate) mod htree;
pub(crate) mod htree_change;
pub(crate) mod inline_dir;
pub(crate) mod namei;
pub(crate) mod readdir;
pub(crate) mod symlink;

use std::sync::Arc;
use std::vec;

use uext4_buffer_cache::Buffer;
use uext4_ondisk::dir_block::DirFormat;
use uext4_ondisk::dir_entry::{self, DirBlock, DirEntryHeader, decode_rec_len};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::hash::DirHash;
use uext4_ondisk::htree::{DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET};
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};
use zerocopy::FromBytes;

use crate::base::error::{Error, Result};
use crate::base::mapping::{MapState, Mapping};
use crate::base::owner::{Kind, Owner};
use crate::inode::inline::InlineDir;
use crate::inode::{Inode, iget};
use crate::journal::sbi::Sbi;
use crate::map::MapCursor;
use uext4_ondisk::fast_commit::ChangedNames;

/// Blocks of a directory that are read at once.
const DIR_READAHEAD: u32 = 32;
/// Number of damaged blocks after which reading a directory stops.
const DAMAGED_MAX: u32 = 64;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode number, never 0; an inode with this number may not exist.
    pub ino: Ino,
    /// The name as stored: 1 to 255 bytes, encrypted if the directory is.
    pub name: Vec<u8>,
    /// The file type stored in the record; the type in the inode is authoritative.
    pub file_type: Option<FileType>,
    /// The hash stored after the name, in directories that are both encrypted and
    /// case-insensitive.
    pub hash: Option<DirHash>,
}

impl From<dir_entry::DirEntry<'_>> for DirEntry {
    fn from(entry: dir_entry::DirEntry<'_>) -> Self {
        Self {
            ino: entry.ino,
            name: entry.name.to_vec(),
            file_type: entry.file_type,
            hash: entry.hash,
        }
    }
}

/// A verified block of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) at: Pblk,
    pub(crate) data: Arc<[u8]>,
}

impl From<Buffer> for Block {
    fn from(buffer: Buffer) -> Self {
        Self {
            at: buffer.block(),
            data: buffer.data(),
        }
    }
}

/// Fails with [`Error::NotDirectory`].
pub(crate) fn check_is_dir(inode: &Inode) -> Result<()> {
    match inode.file_type {
        FileType::Directory => Ok(()),
        _ => Err(Error::NotDirectory),
    }
}

/// Whether the directory has an htree that is in use.
pub(crate) fn is_dx(sbi: &Sbi, dir: &Inode) -> bool {
    dir.has(InodeFlags::INDEX) && sbi.geometry().features.compat.contains(Compat::DIR_INDEX)
}

/// Number of blocks of a directory that is not inline.
fn block_count(sbi: &Sbi, dir: &Inode) -> Result<u32> {
    let blocks = sbi.geometry().block_size.blocks_for(dir.size);
    u32::try_from(blocks)
        .ok()
        .filter(|_| blocks <= sbi.blocks_present())
        .ok_or(Error::Corrupt(Damage::Directory {
            ino: dir.ino,
            why: "larger than the file system",
        }))
}

/// The on-disk format of directories.
#[inline]
pub(crate) fn format(sbi: &Sbi) -> DirFormat {
    DirFormat::new(sbi.geometry())
}

/// The kind and the owner of block `lblk` of a directory.
pub(crate) fn owner(dir: &Inode, lblk: Lblk) -> Owner {
    let kind = if lblk.0 == 0 {
        Kind::DirFirst
    } else {
        Kind::Dir
    };
    Owner::new(kind, 0, dir.ino, dir.generation)
}

/// Reads block `lblk` of a directory, which is located at `at`.
fn read_block(sbi: &Sbi, dir: &Inode, lblk: Lblk, at: Pblk) -> Result<Buffer> {
    sbi.bread("directory", at, owner(dir, lblk).tag(), |bytes| {
        let Some(seed) = sbi.geometry().csum_seed else {
            return Ok(());
        };
        let seed = seed.inode(dir.ino, dir.generation);
        match dx_entries_offset(bytes, lblk).filter(|_| is_dx(sbi, dir)) {
            Some(offset) => uext4_ondisk::htree::verify_tail(bytes, offset, lblk, at, seed),
            None => dir_entry::verify_tail(bytes, at, seed),
        }
    })
}

/// The offset of the hashes if this block of a hashed directory is its root or an inner node.
pub(crate) fn dx_entries_offset(bytes: &[u8], lblk: Lblk) -> Option<usize> {
    if lblk.0 == 0 {
        return Some(DX_ROOT_ENTRIES_OFFSET);
    }
    let (first, _) = DirEntryHeader::ref_from_prefix(bytes).ok()?;
    let spans = decode_rec_len(first.rec_len.get(), bytes.len()) == bytes.len();
    spans.then_some(DX_NODE_ENTRIES_OFFSET)
}

/// Iterates over the blocks of a directory; each costs one cache lookup.
#[derive(Clone, Debug)]
pub(crate) struct DirCursor {
    map: MapCursor,
    run: Mapping,
    next: u32,
    end: u32,
}

impl DirCursor {
    /// Fails with [`Damage::Directory`] if the directory is larger than the file system.
    pub(crate) fn new(sbi: &Sbi, dir: &Inode) -> Result<Self> {
        Ok(Self {
            map: MapCursor::default(),
            run: Mapping::hole(Lblk(0), 0),
            next: 0,
            end: block_count(sbi, dir)?,
        })
    }

    /// The same cursor, starting at `lblk`.
    pub(crate) fn starting_at(self, lblk: Lblk) -> Self {
        Self {
            next: lblk.0,
            ..self
        }
    }

    /// The next block, like [`DirCursor::next_buffer`].
    pub(crate) fn next_block(&mut self, sbi: &Sbi, dir: &Inode) -> Option<Result<Block>> {
        let next = self.next_buffer(sbi, dir)?;
        Some(next.map(|(_, buffer)| Block::from(buffer)))
    }

    /// The next block and its position in the directory. After damage of one block the walk
    /// continues with the next one; damage of the mapping ends it.
    pub(crate) fn next_buffer(&mut self, sbi: &Sbi, dir: &Inode) -> Option<Result<(Lblk, Buffer)>> {
        if self.next >= self.end {
            return None;
        }
        if self.next >= self.run.end() {
            let lblk = Lblk(self.next);
            self.run = match self.map.map(sbi, dir, lblk, self.end - self.next) {
                Ok(run) => run,
                Err(error) => {
                    self.next = self.end;
                    return Some(Err(error));
                }
            };
            if self.run.state != MapState::Written {
                self.next = self.run.end();
                return Some(Err(hole(dir)));
            }
        }
        let into_run = self.next - self.run.lblk.0;
        let at = Pblk(self.run.pblk.0 + u64::from(into_run));
        let ahead = (self.run.len - into_run).min(DIR_READAHEAD);
        if into_run.is_multiple_of(DIR_READAHEAD) && ahead > 1 {
            sbi.cache().readahead(at, ahead);
        }
        let lblk = Lblk(self.next);
        self.next += 1;
        Some(read_block(sbi, dir, lblk, at).map(|buffer| (lblk, buffer)))
    }

    /// The block at `lblk`, independent of the current position.
    pub(crate) fn block_at(&mut self, sbi: &Sbi, dir: &Inode, lblk: Lblk) -> Result<Block> {
        self.buffer_at(sbi, dir, lblk).map(Block::from)
    }

    /// The buffer of the block at `lblk`, independent of the current position.
    pub(crate) fn buffer_at(&mut self, sbi: &Sbi, dir: &Inode, lblk: Lblk) -> Result<Buffer> {
        if lblk.0 >= self.end {
            return Err(Error::Corrupt(Damage::Directory {
                ino: dir.ino,
                why: "refers to a block past its end",
            }));
        }
        let run = self.map.map(sbi, dir, lblk, 1)?;
        match run.state {
            MapState::Written => read_block(sbi, dir, lblk, run.pblk),
            _ => Err(hole(dir)),
        }
    }
}

fn hole(dir: &Inode) -> Error {
    Error::Corrupt(Damage::Directory {
        ino: dir.ino,
        why: "has a hole",
    })
}

/// The names of a directory that fast commits changed, and their current inodes.
fn changed_names<'a>(sbi: &'a Sbi, dir: &Inode) -> Option<&'a ChangedNames> {
    sbi.fast_commit()?.names(dir.ino)
}

/// The inode of ".." in a directory that fast commits created: it has no blocks yet.
fn new_dir_parent(sbi: &Sbi, dir: &Inode) -> Option<Ino> {
    sbi.fast_commit()?.changed(dir.ino)?.parent
}

/// Whether the entries of a directory are all in memory.
fn has_no_blocks(sbi: &Sbi, dir: &Inode) -> bool {
    dir.has(InodeFlags::INLINE_DATA) || new_dir_parent(sbi, dir).is_some()
}

/// The entries of a directory without blocks, "." and ".." first, before the changes of fast
/// commits.
fn entries_at_hand(sbi: &Sbi, dir: &Inode) -> Result<Vec<Result<DirEntry>>> {
    let dot = |name: &[u8], ino| DirEntry {
        ino,
        name: name.to_vec(),
        file_type: Some(FileType::Directory),
        hash: None,
    };
    if let Some(parent) = new_dir_parent(sbi, dir) {
        return Ok(vec![Ok(dot(b".", dir.ino)), Ok(dot(b"..", parent))]);
    }
    let inline = InlineDir::read(sbi, dir)?;
    let mut entries = vec![Ok(dot(b".", dir.ino)), Ok(dot(b"..", inline.parent))];
    for region in inline.regions() {
        let records = DirBlock::new(region, None, Incompat::FILETYPE);
        entries.extend(records.map(|entry| Ok(DirEntry::from(entry?))));
    }
    Ok(entries)
}

/// An entry that is not stored in a block.
fn borrowed(ino: Ino, name: &[u8], hash: Option<DirHash>) -> dir_entry::DirEntry<'_> {
    dir_entry::DirEntry {
        ino,
        name,
        file_type: None,
        hash,
        offset: 0,
        rec_len: 0,
    }
}

/// Returns the first entry that `wanted` accepts, searching from front to back.
pub(crate) fn find_linear(
    sbi: &Sbi,
    dir: &Inode,
    wanted: impl Fn(&dir_entry::DirEntry<'_>) -> bool,
) -> Result<Option<Ino>> {
    check_is_dir(dir)?;
    let changed = changed_names(sbi, dir);
    let found = |entry: &dir_entry::DirEntry<'_>| {
        !changed.is_some_and(|names| names.contains_key(entry.name)) && wanted(entry)
    };
    if has_no_blocks(sbi, dir) {
        for entry in entries_at_hand(sbi, dir)? {
            let entry = entry?;
            if found(&borrowed(entry.ino, &entry.name, entry.hash)) {
                return Ok(Some(entry.ino));
            }
        }
    } else {
        let mut cursor = DirCursor::new(sbi, dir)?;
        while let Some(block) = cursor.next_block(sbi, dir) {
            let block = block?;
            for entry in records(sbi, dir, &block) {
                let entry = entry?;
                if found(&entry) {
                    return Ok(Some(entry.ino));
                }
            }
        }
    }
    let mut new = changed
        .into_iter()
        .flatten()
        .filter_map(|(name, ino)| Some((name, (*ino)?)));
    Ok(new
        .find(|(name, ino)| wanted(&borrowed(*ino, name, None)))
        .map(|(_, ino)| ino))
}

/// The entries of a directory in stored order, "." and ".." included.
///
/// A damaged block gives one error, and the walk continues after it.
#[derive(Debug)]
pub struct ReadDir {
    sbi: Arc<Sbi>,
    dir: Inode,
    source: Source,
    /// Names that fast commits added, which are returned last.
    added: vec::IntoIter<(Vec<u8>, Ino)>,
}

#[derive(Debug)]
enum Source {
    AtHand(vec::IntoIter<Result<DirEntry>>),
    Blocks(Blocks),
}

#[derive(Debug)]
struct Blocks {
    cursor: DirCursor,
    /// The current block and the offset of its next record.
    block: Option<(Block, usize)>,
    damaged: u32,
}

/// Starts reading a directory.
///
/// Fails with [`Error::NotDirectory`], or with damage that leaves nothing to read.
pub(crate) fn read_dir(sbi: &Arc<Sbi>, dir: &Inode) -> Result<ReadDir> {
    check_is_dir(dir)?;
    let source = if has_no_blocks(sbi, dir) {
        Source::AtHand(entries_at_hand(sbi, dir)?.into_iter())
    } else {
        Source::Blocks(Blocks {
            cursor: DirCursor::new(sbi, dir)?,
            block: None,
            damaged: 0,
        })
    };
    let added: Vec<_> = changed_names(sbi, dir)
        .into_iter()
        .flatten()
        .filter_map(|(name, ino)| Some((name.clone(), (*ino)?)))
        .collect();
    Ok(ReadDir {
        sbi: Arc::clone(sbi),
        dir: dir.clone(),
        source,
        added: added.into_iter(),
    })
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if let Some(Err(error)) = &next {
            self.sbi.note(Some(self.dir.ino), error);
        }
        next
    }
}

impl ReadDir {
    fn advance(&mut self) -> Option<Result<DirEntry>> {
        loop {
            let next = match &mut self.source {
                Source::AtHand(entries) => entries.next(),
                Source::Blocks(blocks) => blocks.next(&self.sbi, &self.dir),
            };
            let Some(Ok(entry)) = &next else {
                return next.or_else(|| self.next_added());
            };
            let changed = changed_names(&self.sbi, &self.dir);
            if !changed.is_some_and(|names| names.contains_key(&entry.name)) {
                return next;
            }
        }
    }

    fn next_added(&mut self) -> Option<Result<DirEntry>> {
        let (name, ino) = self.added.next()?;
        Some(iget(&self.sbi, ino).map(|inode| DirEntry {
            ino,
            name,
            file_type: Some(inode.file_type),
            hash: None,
        }))
    }
}

impl Blocks {
    fn next(&mut self, sbi: &Sbi, dir: &Inode) -> Option<Result<DirEntry>> {
        loop {
            if let Some((block, offset)) = &mut self.block {
                match records(sbi, dir, block).starting_at(*offset).next() {
                    Some(Ok(entry)) => {
                        *offset = entry.offset + entry.rec_len;
                        return Some(Ok(entry.into()));
                    }
                    Some(Err(damage)) => {
                        self.block = None;
                        self.damaged += 1;
                        return Some(Err(Error::Corrupt(damage)));
                    }
                    None => self.block = None,
                }
            }
            if self.damaged >= DAMAGED_MAX {
                return None;
            }
            match self.cursor.next_block(sbi, dir)? {
                Ok(next) => self.block = Some((next, 0)),
                Err(error) => {
                    self.damaged += 1;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The records of a block.
pub(crate) fn records<'a>(sbi: &Sbi, dir: &Inode, block: &'a Block) -> DirBlock<'a> {
    let incompat = sbi.geometry().features.incompat;
    let records = DirBlock::new(&block.data, Some(block.at), incompat);
    match dir.has(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD) {
        true => records.with_hashes(),
        false => records,
    }
}

//! What the log of the journal still holds of older days.

use std::collections::HashMap;

use uext4::{FileType, Image, Inode};
use uext4_jbd2::{LogRun, OlderCopy, all_copies};
use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::{RawInode, inode_checksum, stored_checksum};
use uext4_ondisk::journal::unescape;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::{AllBuried, Buried};
use crate::extents::Runs;

/// An inode before it was deleted.
pub struct Older {
    /// Its record.
    pub bytes: Vec<u8>,
    /// The age of the oldest copy in which it is deleted, if there is one.
    pub deleted_age: Option<u32>,
}

/// All copies in the log.
pub struct Copies<'a> {
    fs: &'a Image,
    /// Sorted by home location, the newest first.
    all: Vec<OlderCopy>,
    /// First block of each inode table, sorted, and its group.
    tables: Vec<(Pblk, GroupNr)>,
}

impl<'a> Copies<'a> {
    /// Reads through the log. Of one that is damaged, or in another device, there are none.
    pub fn read(fs: &'a Image) -> Self {
        let geometry = fs.geometry();
        let groups = (0..geometry.groups_count.get()).map(GroupNr);
        let table = |group| Some((fs.group_desc(group).ok()?.inode_table, group));
        let mut tables: Vec<_> = groups.filter_map(table).collect();
        tables.sort_unstable();
        let device = &**fs.device();
        let (size, count) = (geometry.block_size, geometry.blocks_count);
        let found =
            log(fs).and_then(|runs| all_copies(device, size, count, &runs, &mut |_, _| true).ok());
        Self {
            fs,
            all: found.unwrap_or_default(),
            tables,
        }
    }

    /// Those of one block, the newest first.
    pub fn of(&self, home: Pblk) -> &[OlderCopy] {
        let from = self.all.partition_point(|copy| copy.block.home < home);
        let rest = self.all.get(from..).unwrap_or_default();
        let len = rest.partition_point(|copy| copy.block.home == home);
        rest.get(..len).unwrap_or_default()
    }

    /// All that are in no inode table.
    pub fn others(&self) -> impl Iterator<Item = &OlderCopy> {
        let is_other = |copy: &&OlderCopy| self.first_inode(copy.block.home).is_none();
        self.all.iter().filter(is_other)
    }

    /// What a copy holds; `None` if it cannot be read.
    pub fn content(&self, copy: &OlderCopy) -> Option<Vec<u8>> {
        let size = self.fs.geometry().block_size;
        let mut bytes = vec![0; size.len()];
        let offset = size.byte_offset(copy.block.log)?;
        self.fs.device().read_at(offset, &mut bytes).ok()?;
        if copy.block.escaped {
            unescape(&mut bytes, 0);
        }
        Some(bytes)
    }

    /// The first inode in a block of an inode table.
    fn first_inode(&self, block: Pblk) -> Option<Ino> {
        let geometry = self.fs.geometry();
        let next = self.tables.partition_point(|&(start, _)| start <= block);
        let &(start, group) = self.tables.get(next.checked_sub(1)?)?;
        let skip = u32::try_from(block.0 - start.0).ok()?;
        let per_block = geometry.block_size.bytes() / u32::from(geometry.inode_size);
        let before = group.0.checked_mul(geometry.inodes_per_group.get())?;
        let first = before
            .checked_add(skip.checked_mul(per_block)?)?
            .checked_add(1)?;
        (skip < geometry.itable_blocks()).then_some(Ino(first))
    }

    /// The newest copies of these inodes in which they have a link.
    pub fn inodes(&self, buried: &AllBuried) -> HashMap<Ino, Older> {
        let size = usize::from(self.fs.geometry().inode_size);
        let mut found: HashMap<Ino, Older> = HashMap::new();
        // The oldest copies in which they are deleted, of those that are newer.
        let mut deleted = HashMap::new();
        for copy in &self.all {
            let Some(first) = self.first_inode(copy.block.home) else {
                continue;
            };
            let Some(bytes) = self.content(copy) else {
                continue;
            };
            for (ino, record) in (first.0..).map(Ino).zip(bytes.chunks_exact(size)) {
                let Some(buried) = buried.get(&ino).filter(|_| !found.contains_key(&ino)) else {
                    continue;
                };
                match self.links(record, ino, buried) {
                    Some(0) => _ = deleted.insert(ino, copy.age),
                    Some(_) => {
                        let older = Older {
                            bytes: record.to_vec(),
                            deleted_age: deleted.get(&ino).copied(),
                        };
                        found.insert(ino, older);
                    }
                    None => {}
                }
            }
        }
        found
    }

    /// The links of an inode in a copy; `None` if it is another one, or damaged.
    fn links(&self, record: &[u8], ino: Ino, buried: &Buried) -> Option<u16> {
        let raw = RawInode::parse(record, ino).ok()?;
        let generation = raw.i_generation.get();
        if let Some(seed) = self.fs.geometry().csum_seed
            && inode_checksum(record, seed, ino, generation) != stored_checksum(record)
        {
            return None;
        }
        let is_same = generation == buried.generation
            && FileType::from_mode(raw.i_mode.get()) == Some(buried.file_type);
        is_same.then_some(raw.i_links_count.get())
    }
}

/// Where the journal lies; `None` if there is none in the file system, or if it has holes.
fn log(fs: &Image) -> Option<Vec<LogRun>> {
    let superblock = fs.superblock();
    let ino = Ino(superblock.s_journal_inum.get());
    let has_journal = superblock.features().compat.contains(Compat::HAS_JOURNAL);
    let inode: Inode = fs.inode(ino).ok().filter(|_| has_journal)?;
    let mut runs = Vec::new();
    let mut end = 0;
    for run in Runs::new(fs, &inode) {
        let run = run.ok().filter(|run| run.lblk == end && !run.unwritten)?;
        end = run.lblk.checked_add(run.len)?;
        runs.push(LogRun {
            start: Pblk(run.pblk),
            len: u32::try_from(run.len).ok()?,
        });
    }
    Some(runs)
}

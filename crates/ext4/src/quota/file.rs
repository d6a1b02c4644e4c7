//! A hidden quota file: where its blocks lie, and the way down its tree to an entry.
//!
//! Left out: changing it (`quota_change`), and what the numbers mean (`dquot`).

use rustc_hash::FxHashSet;
use uext4_buffer_cache::Buffer;
use uext4_ondisk::quota::{
    QUOTA_BLOCK_LEN, QUOTA_ENTRIES_PER_LEAF, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, QuotaHeader,
    QuotaKind, QuotaLeafHeader, RawQuotaEntry, parse_leaf, parse_tree_block, tree_slot,
};
use uext4_ondisk::{Damage, Ino, Lblk};
use zerocopy::{FromBytes, FromZeros};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::mapping::MapState;
use crate::base::owner::{Kind, Owner};
use crate::inode::{Inode, MapBlocks, iget};

/// All kinds; a kind's place here is its index everywhere.
pub(crate) const KINDS: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];

/// A quota file, as it is now.
#[derive(Debug)]
pub(crate) struct QuotaFile {
    pub(crate) inode: Inode,
    pub(crate) header: QuotaHeader,
    map: MapBlocks,
}

/// One block of the tree or of entries.
#[derive(Clone)]
pub(crate) struct QuotaBlock {
    /// The block of the file system that it is part of.
    pub(crate) buffer: Buffer,
    /// Where it begins there.
    pub(crate) at: usize,
}

/// How far the tree leads to an id.
pub(crate) enum Found {
    /// To an entry: a block, the byte in the block of the file system, and what is there.
    Entry(QuotaBlock, usize, Box<RawQuotaEntry>),
    /// Nowhere from the last of these blocks on, `len` of them: the way down from the root.
    Way {
        /// The blocks.
        blocks: [u32; QUOTA_TREE_DEPTH as usize],
        /// How many there are.
        len: usize,
    },
}

impl QuotaBlock {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> [u8; QUOTA_BLOCK_LEN] {
        let mut bytes = [0; QUOTA_BLOCK_LEN];
        let data = self.buffer.data();
        // OK to index: `read` made sure that it lies in the block.
        bytes.copy_from_slice(&data[self.at..self.at + QUOTA_BLOCK_LEN]);
        bytes
    }
}

pub(crate) fn damaged(field: &'static str, value: u32, why: &'static str) -> Error {
    Error::Corrupt(Damage::Field {
        structure: "quota file",
        field,
        value: value.into(),
        why,
    })
}

/// The inode of a kind's file, if there is one.
pub(crate) fn quota_inum(disk: &Disk, kind: QuotaKind) -> Option<Ino> {
    let superblock = disk.superblock();
    let inum = match kind {
        QuotaKind::User => superblock.s_usr_quota_inum,
        QuotaKind::Group => superblock.s_grp_quota_inum,
        QuotaKind::Project => superblock.s_prj_quota_inum,
    };
    (inum.get() != 0).then(|| Ino(inum.get()))
}

impl QuotaFile {
    /// The file of a kind, if that is counted.
    pub(crate) fn open(disk: &Disk, map: MapBlocks, kind: QuotaKind) -> Result<Option<Self>> {
        let Some(ino) = quota_inum(disk, kind) else {
            return Ok(None);
        };
        let inode = iget(disk, ino)?;
        let mut file = Self {
            inode,
            header: QuotaHeader::new_zeroed(),
            map,
        };
        let header = QuotaHeader::parse(&file.read(disk, 0)?.bytes(), kind)?;
        let blocks = header.dqi_blocks.get();
        if u64::from(blocks) * QUOTA_BLOCK_LEN as u64 > file.inode.size {
            return Err(damaged("dqi_blocks", blocks, "past the end of the file"));
        }
        file.header = header;
        Ok(Some(file))
    }

    /// What its blocks are verified as.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new(Kind::Quota, 0, self.inode.ino, 0)
    }

    /// Block of the file system, counted in the file, that holds a block, and where in it.
    pub(crate) fn lblk(disk: &Disk, block: u32) -> (Lblk, usize) {
        let size = disk.geometry().block_size;
        let offset = u64::from(block) * QUOTA_BLOCK_LEN as u64;
        // OK to truncate: 2³² blocks of 1 KiB are no more of any size.
        let lblk = Lblk((offset >> size.log2()) as u32);
        (lblk, offset as usize & (size.len() - 1))
    }

    /// Reads a block.
    pub(crate) fn read(&self, disk: &Disk, block: u32) -> Result<QuotaBlock> {
        let (lblk, at) = Self::lblk(disk, block);
        let found = (self.map)(disk, &self.inode, lblk, 1)?;
        if found.state != MapState::Written {
            return Err(damaged("block", block, "not mapped"));
        }
        let tag = self.owner().tag();
        let buffer = disk.bread("quota file", found.pblk, tag, |_| Ok(()))?;
        Ok(QuotaBlock { buffer, at })
    }

    /// Looks an id up.
    pub(crate) fn find(&self, disk: &Disk, id: u32) -> Result<Found> {
        let mut blocks = [QUOTA_TREE_ROOT; QUOTA_TREE_DEPTH as usize];
        let mut next = QUOTA_TREE_ROOT;
        for level in 0..QUOTA_TREE_DEPTH {
            blocks[level as usize] = next;
            let bytes = self.read(disk, next)?.bytes();
            let refs = parse_tree_block(&bytes, self.header.dqi_blocks.get())?;
            next = refs.get(tree_slot(id, level)).map_or(0, |n| n.get());
            if next == 0 {
                let len = level as usize + 1;
                return Ok(Found::Way { blocks, len });
            }
        }
        let leaf = self.read(disk, next)?;
        let bytes = leaf.bytes();
        for slot in 0..QUOTA_ENTRIES_PER_LEAF {
            let entry = entry_at(&bytes, slot);
            if !is_free(&bytes, slot) && entry.dqb_id.get() == id {
                let at = leaf.at + entry_offset(slot);
                return Ok(Found::Entry(leaf, at, Box::new(entry)));
            }
        }
        Err(damaged(
            "tree block",
            next,
            "leads to a leaf without the id",
        ))
    }

    /// All entries, in no order.
    pub(crate) fn entries(&self, disk: &Disk) -> Result<Vec<RawQuotaEntry>> {
        let mut level: Vec<u32> = vec![QUOTA_TREE_ROOT];
        for _ in 0..QUOTA_TREE_DEPTH {
            // Each block once, however many lead to it: leaves are shared.
            let mut below = FxHashSet::default();
            for &block in &level {
                let bytes = self.read(disk, block)?.bytes();
                let refs = parse_tree_block(&bytes, self.header.dqi_blocks.get())?;
                below.extend(refs.iter().map(|n| n.get()).filter(|&n| n != 0));
            }
            level = below.into_iter().collect();
            level.sort_unstable();
        }
        let mut entries = Vec::new();
        for &block in &level {
            entries.extend(parse_leaf(&self.read(disk, block)?.bytes())?);
        }
        Ok(entries)
    }
}

/// Where an entry begins in its leaf.
pub(crate) fn entry_offset(slot: usize) -> usize {
    size_of::<QuotaLeafHeader>() + slot * size_of::<RawQuotaEntry>()
}

fn entry_bytes(leaf: &[u8; QUOTA_BLOCK_LEN], slot: usize) -> &[u8] {
    let at = entry_offset(slot);
    leaf.get(at..at + size_of::<RawQuotaEntry>())
        .unwrap_or_default()
}

fn entry_at(leaf: &[u8; QUOTA_BLOCK_LEN], slot: usize) -> RawQuotaEntry {
    let read = RawQuotaEntry::read_from_bytes(entry_bytes(leaf, slot));
    read.unwrap_or_else(|_| RawQuotaEntry::new_zeroed())
}

/// Whether an entry of a leaf is free.
pub(crate) fn is_free(leaf: &[u8; QUOTA_BLOCK_LEN], slot: usize) -> bool {
    entry_bytes(leaf, slot).iter().all(|&byte| byte == 0)
}

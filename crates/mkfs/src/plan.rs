//! A file system on the drawing board: what is taken so far, and what will be written where.

use std::collections::BTreeMap;

use uext4_ondisk::features::{Features, Incompat, RoCompat};
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, DescChecksum, GroupDesc};
use uext4_ondisk::inode::{
    FULL_EXTRA_ISIZE, GOOD_OLD_INODE_SIZE, I_BLOCK_LEN, InodeFlags, RawInode, Timestamp,
    update_checksum,
};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::xattr::pack_body;
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};
use zerocopy::little_endian::U32;

use crate::Error;
use crate::space::{Run, SpaceMap};

/// The generation of every inode made here.
pub(crate) const GENERATION: u32 = 0;

/// Larger files need the `large_file` feature.
const LARGE_FILE_FROM: u64 = i32::MAX as u64;

/// The state all builders of one structure each work on.
#[derive(Debug)]
pub(crate) struct Plan {
    pub geometry: Geometry,
    pub superblock: SuperBlock,
    /// Every time stamp.
    pub time: u32,
    pub groups: Vec<GroupDesc>,
    pub space: SpaceMap,
    /// Inodes in use and their bytes.
    pub inodes: BTreeMap<u32, Vec<u8>>,
    /// Contents of single blocks, up to their last byte that is not zero.
    pub blocks: Vec<(Pblk, Vec<u8>)>,
    /// Blocks of the journal, in the order of the log.
    pub journal: Vec<Run>,
    /// Clusters of superblocks, descriptors, bitmaps, inode tables and the journal.
    pub overhead: u64,
    /// What each inode that quotas count takes.
    pub usage: Vec<Usage>,
}

/// One inode's share of its owner's quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Uid and gid.
    pub owner: (u32, u32),
    pub bytes: u64,
}

/// An inode before it has bytes.
#[derive(Clone, Debug)]
pub(crate) struct InodeSpec {
    pub mode: u16,
    pub owner: (u32, u32),
    pub size: u64,
    pub links: u16,
    /// Blocks it owns, those that map the others included, counted in whole clusters.
    pub blocks: u64,
    pub flags: InodeFlags,
    pub i_block: [u8; I_BLOCK_LEN],
}

impl Plan {
    /// A plan where nothing is taken.
    pub fn new(geometry: Geometry, superblock: SuperBlock, time: u32) -> Self {
        let count = geometry.groups_count.get() as usize;
        let uninit = if geometry.desc_checksum == DescChecksum::None {
            0
        } else {
            BG_INODE_UNINIT | BG_BLOCK_UNINIT
        };
        let desc = GroupDesc {
            flags: uninit,
            ..GroupDesc::default()
        };
        let mut groups = vec![desc; count];
        if let Some(last) = groups.last_mut() {
            // Its bitmap has padding, which an uninitialised one would not show.
            last.flags &= !BG_BLOCK_UNINIT;
        }
        Self {
            space: SpaceMap::new(0),
            geometry,
            superblock,
            time,
            groups,
            inodes: BTreeMap::new(),
            blocks: Vec::new(),
            journal: Vec::new(),
            overhead: 0,
            usage: Vec::new(),
        }
    }

    /// The feature words.
    pub fn features(&self) -> Features {
        self.geometry.features
    }

    /// True if files are mapped by extents.
    pub fn extents(&self) -> bool {
        self.features().incompat.contains(Incompat::EXTENTS)
    }

    /// Bytes of a block.
    pub fn block_len(&self) -> usize {
        self.geometry.block_size.len()
    }

    /// Takes the blocks, and makes the bitmaps of their groups be written.
    pub fn take(&mut self, run: Run) {
        self.space.mark(run);
        let Some(last) = run.len.checked_sub(1).map(|n| Pblk(run.start + n)) else {
            return;
        };
        let group = |block| self.geometry.group_of(block).map(|(group, _)| group.0);
        if let (Some(first), Some(last)) = (group(Pblk(run.start)), group(last)) {
            for desc in &mut self.groups[first as usize..=last as usize] {
                desc.flags &= !BG_BLOCK_UNINIT;
            }
        }
    }

    /// From here on whole clusters are taken. The groups' own metadata shares them freely.
    pub fn count_in_clusters(&mut self) {
        if self.geometry.cluster_bits > 0 {
            self.space = self.space.in_clusters(self.geometry.cluster_bits);
        }
    }

    /// The first inode not in use yet.
    pub fn next_inode(&self) -> Ino {
        let last = self.inodes.last_key_value();
        Ino(last.map_or(Ino::GOOD_OLD_FIRST.0, |(&ino, _)| ino + 1))
    }

    /// Where the first block of an inode is looked for: the start of its group, or of its flex
    /// group.
    pub fn goal_of(&self, ino: Ino) -> u64 {
        let flex = self.geometry.log_groups_per_flex;
        let group = self
            .geometry
            .inode_group(ino)
            .map_or(0, |(group, _)| group.0);
        let first = group.checked_shr(flex.into()).unwrap_or(0) << flex;
        self.geometry.group_start(GroupNr(first)).0
    }

    /// Takes the first free blocks in a row at or after `goal`, else from the start, at most
    /// `most`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] for `what`.
    pub fn take_run(&mut self, goal: u64, most: u64, what: &'static str) -> Result<Run, Error> {
        let first = u64::from(self.geometry.first_data_block);
        let end = self.geometry.blocks_count;
        // Blocks of a cluster whose first is free are all free.
        let goal = goal >> self.geometry.cluster_bits << self.geometry.cluster_bits;
        let free = self
            .space
            .next_free(goal.max(first), end)
            .or_else(|| self.space.next_free(first, end))
            .ok_or(Error::NoSpace { what, len: most })?;
        let run = Run {
            start: free.start,
            len: free.len.min(most),
        };
        self.take(run);
        Ok(run)
    }

    /// Takes the first free block at or after `goal`, else the first free one at all.
    ///
    /// # Errors
    /// [`Error::NoSpace`] for `what`.
    pub fn take_block(&mut self, goal: u64, what: &'static str) -> Result<u64, Error> {
        self.take_run(goal, 1, what).map(|run| run.start)
    }

    /// Takes block `index` of a file whose other `blocks` are taken already or 0: within the
    /// cluster of a neighbour where that has one, else the first free one from `goal` on.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn take_in_file(&mut self, blocks: &[u64], index: usize, goal: u64) -> Result<u64, Error> {
        let ratio = 1usize << self.geometry.cluster_bits;
        let first = index / ratio * ratio;
        let mates = blocks.iter().enumerate().skip(first).take(ratio);
        let mate = mates.into_iter().find(|&(_, &block)| block != 0);
        match mate {
            Some((at, &block)) => Ok(block + index as u64 - at as u64),
            None => self.take_block(goal, "quota file"),
        }
    }

    /// Records what a block will hold. Of a thousand tables for growing, all but some bytes are
    /// zero: only those bytes stay in memory.
    pub fn put(&mut self, block: u64, mut bytes: Vec<u8>) {
        let len = bytes
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        bytes.truncate(len);
        bytes.shrink_to_fit();
        self.blocks.push((Pblk(block), bytes));
    }

    /// Marks an inode used and gives it contents.
    pub fn put_inode(&mut self, ino: Ino, spec: &InodeSpec) {
        let now = Timestamp {
            sec: self.time.into(),
            nsec: 0,
        };
        let large = usize::from(self.geometry.inode_size) > GOOD_OLD_INODE_SIZE;
        let (base, extra) = if large {
            now.encode()
        } else {
            (now.encode_short(), 0)
        };
        let mut raw = RawInode::zeroed();
        raw.i_mode = spec.mode.into();
        raw.i_uid = (spec.owner.0 as u16).into();
        raw.i_uid_high = ((spec.owner.0 >> 16) as u16).into();
        raw.i_gid = (spec.owner.1 as u16).into();
        raw.i_gid_high = ((spec.owner.1 >> 16) as u16).into();
        if spec.size > LARGE_FILE_FROM {
            self.superblock.s_feature_ro_compat |= U32::new(RoCompat::LARGE_FILE.bits());
            self.geometry.features.ro_compat |= RoCompat::LARGE_FILE;
        }
        raw.i_size_lo = (spec.size as u32).into();
        raw.i_size_high = ((spec.size >> 32) as u32).into();
        raw.i_links_count = spec.links.into();
        let sectors = spec.blocks << (self.geometry.block_size.log2() - 9);
        raw.i_blocks_lo = (sectors as u32).into();
        raw.i_blocks_high = ((sectors >> 32) as u16).into();
        raw.i_flags = spec.flags.bits().into();
        raw.i_block = spec.i_block;
        raw.i_generation = GENERATION.into();
        (raw.i_atime, raw.i_ctime, raw.i_mtime) = (base.into(), base.into(), base.into());
        if large {
            raw.i_extra_isize = FULL_EXTRA_ISIZE.into();
            raw.i_crtime = base.into();
            let extra = extra.into();
            (raw.i_atime_extra, raw.i_ctime_extra) = (extra, extra);
            (raw.i_mtime_extra, raw.i_crtime_extra) = (extra, extra);
        }
        self.put_raw_inode(ino, &raw);
    }

    /// Marks an inode used and stores these fields with their checksum.
    pub fn put_raw_inode(&mut self, ino: Ino, raw: &RawInode) {
        let size = usize::from(self.geometry.inode_size);
        let mut bytes = vec![0; size];
        raw.store(&mut bytes);
        if let Some(seed) = self.geometry.csum_seed {
            update_checksum(&mut bytes, seed, ino, GENERATION);
        }
        self.inodes.insert(ino.0, bytes);
    }

    /// Gives an inode an empty set of attributes, where it has room for one.
    ///
    /// # Errors
    /// [`Error::Pack`] if inodes are of a size that no file system has.
    pub fn put_attribute_magic(&mut self, ino: Ino) -> Result<(), Error> {
        let at = GOOD_OLD_INODE_SIZE + usize::from(FULL_EXTRA_ISIZE);
        let seed = self.geometry.csum_seed;
        let Some(bytes) = self.inodes.get_mut(&ino.0) else {
            return Ok(());
        };
        if let Some(region) = bytes.get_mut(at..) {
            pack_body(region, &[])?;
        }
        if let Some(seed) = seed {
            update_checksum(bytes, seed, ino, GENERATION);
        }
        Ok(())
    }

    /// Counts an inode that is a directory.
    pub fn count_directory(&mut self, ino: Ino) {
        if let Some((GroupNr(group), _)) = self.geometry.inode_group(ino) {
            self.groups[group as usize].used_dirs += 1;
        }
    }
}

//! Calculates the space that files will need before they exist, with the same packing code.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;

use uext4_ondisk::extent::EXT_INIT_MAX_LEN;
use uext4_ondisk::features::{Incompat, RoCompat};
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN};
use uext4_ondisk::pack::directory::DirShape;
use uext4_ondisk::pack::extent_tree::ExtentTree;
use uext4_ondisk::pack::quota::quota_blocks;
use uext4_ondisk::quota::QUOTA_BLOCK_LEN;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::xattr::{
    XATTR_BLOCK_HEADER_LEN, XattrEntry, XattrValue, ea_inode_hash, entries_len, pack_block,
};
use uext4_ondisk::{Geometry, Ino, Lblk};

use super::content::{PlacedRun, block_ranges, tables_of};
use super::inline::InlineSpace;
use super::threads;
use super::xattr::digest;
use crate::base::error::{Error, Result};
use crate::xattr::layout::{Attribute, XattrShape};

/// Calculates for file systems with one geometry: the layout depends only on the superblock.
///
/// All counts are in blocks and exact, except for extent trees: the number of a file's extents
/// depends on its location. [`Footprint::file`] assumes one more for every file and for every
/// half group of its blocks; up to four extents need no block.
#[derive(Clone, Debug)]
pub struct Footprint {
    geometry: Geometry,
    dir_shape: DirShape,
    xattr_shape: XattrShape,
    /// Whether there are quota files of users, groups and projects.
    quotas: [bool; 3],
    threads: NonZeroUsize,
}

/// The owners of all inodes of a file system, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerIds {
    /// Users.
    pub users: BTreeSet<u32>,
    /// Groups.
    pub groups: BTreeSet<u32>,
    /// Projects.
    pub projects: BTreeSet<u32>,
}

/// The space that a file needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFootprint {
    /// Blocks of data.
    pub data: u64,
    /// Blocks of the extent tree (an upper bound), or of indirect blocks (exact).
    pub tree: u64,
}

/// The space that the extended attributes of an inode need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XattrFootprint {
    /// Set if an xattr block is needed. Inodes with equal numbers here share it, up to 1,024 of
    /// them; every further 1,024 need another one.
    pub block: Option<u64>,
    /// Number of separate inodes for values. Equal values may share one, which is not considered
    /// here.
    pub inodes: u32,
    /// Blocks of these inodes.
    pub value_blocks: u64,
}

impl Footprint {
    /// Creates a calculator for file systems with this superblock; its size and counts do not
    /// matter.
    ///
    /// # Errors
    /// Damage of the superblock's geometry.
    pub fn new(superblock: &SuperBlock) -> Result<Self> {
        let geometry = Geometry::new(superblock)?;
        let is_counted = geometry.features.ro_compat.contains(RoCompat::QUOTA);
        let files = [
            superblock.s_usr_quota_inum,
            superblock.s_grp_quota_inum,
            superblock.s_prj_quota_inum,
        ];
        Ok(Self {
            quotas: files.map(|ino| is_counted && ino.get() != 0),
            dir_shape: DirShape::new(superblock, &geometry),
            xattr_shape: XattrShape::new(&geometry),
            threads: threads::available(),
            geometry,
        })
    }

    /// Whether directories take the same blocks with `other`, see [`Footprint::directory_blocks`].
    pub fn has_same_directories(&self, other: &Self) -> bool {
        let inline =
            |footprint: &Self| InlineSpace::new(&footprint.geometry, &footprint.xattr_shape, 0);
        self.dir_shape == other.dir_shape
            && self.xattr_shape == other.xattr_shape
            && inline(self) == inline(other)
    }

    /// Whether everything takes the same with `other`, whatever the size of the file system.
    pub fn has_same_counts(&self, other: &Self) -> bool {
        let extents = |footprint: &Self| {
            let incompat = footprint.geometry.features.incompat;
            incompat.contains(Incompat::EXTENTS)
        };
        let (ours, theirs) = (&self.geometry, &other.geometry);
        self.has_same_directories(other)
            && ours.block_size == theirs.block_size
            && ours.blocks_per_group == theirs.blocks_per_group
            && extents(self) == extents(other)
            && self.quotas == other.quotas
    }

    /// What an inode of this type with these attributes can hold of its own data. For directories
    /// that mkfs makes it is nothing: the default.
    ///
    /// # Errors
    /// As [`super::Creator::create`] for invalid attributes.
    pub fn inline(
        &self,
        file_type: FileType,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<InlineSpace> {
        if !self.has_inline_data() {
            return Ok(InlineSpace::default());
        }
        let placed = self.xattr_shape.place(file_type, xattrs)?;
        let taken = placed.body.iter().map(Attribute::len).sum();
        Ok(InlineSpace::new(&self.geometry, &self.xattr_shape, taken))
    }

    /// Whether small files and directories may lie within their inodes.
    pub fn has_inline_data(&self) -> bool {
        let incompat = self.geometry.features.incompat;
        incompat.contains(Incompat::INLINE_DATA)
    }

    /// Blocks of a directory with these names in addition to "." and "..", without those of its
    /// extent tree or indirect blocks, which [`Footprint::directory`] adds.
    ///
    /// # Errors
    /// [`Error::Exists`] if a name occurs twice, [`Error::FileTooBig`].
    pub fn directory_blocks(&self, names: &[&[u8]], inline: InlineSpace) -> Result<u32> {
        let count = u32::try_from(names.len()).map_err(|_| Error::FileTooBig)?;
        let name = |i: u32| names[i as usize];
        if inline.plan(&self.dir_shape, count, name)?.is_some() {
            return Ok(0);
        }
        let plan = threads::plan(&self.dir_shape, self.threads, count, name)?;
        Ok(plan.blocks())
    }

    /// What a directory of so many blocks takes: they, and its extent tree or indirect blocks.
    ///
    /// # Errors
    /// [`Error::FileTooBig`].
    pub fn directory(&self, blocks: u32) -> Result<FileFootprint> {
        let whole = 0..u64::from(blocks) << self.geometry.block_size.log2();
        self.file(whole.end, &[whole], InlineSpace::default())
    }

    /// Blocks of a regular file with data in these ranges of bytes, which have the form that
    /// [`super::Creator::write_file`] takes.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::FileTooBig`].
    pub fn file(
        &self,
        size: u64,
        ranges: &[Range<u64>],
        inline: InlineSpace,
    ) -> Result<FileFootprint> {
        let block_size = self.geometry.block_size;
        let mut blocks = Vec::new();
        block_ranges(block_size, size, ranges, &mut blocks)?;
        if blocks.is_empty() || inline.holds_file(size) {
            return Ok(FileFootprint::default());
        }
        let data: u64 = blocks.iter().map(|&(_, len)| u64::from(len)).sum();
        let tree = if self.geometry.features.incompat.contains(Incompat::EXTENTS) {
            let broken = data / u64::from(self.geometry.blocks_per_group.get() / 2).max(1);
            let extents = blocks.len() as u64 + broken + 1;
            ExtentTree::new(block_size, None).blocks(extents)
        } else {
            tables_of(block_size, &blocks)
        };
        let tree = tree.ok_or(Error::FileTooBig)?;
        Ok(FileFootprint { data, tree })
    }

    /// Blocks of the extent tree of a file of `size` bytes whose blocks have been chosen already.
    ///
    /// # Errors
    /// [`Error::FileTooBig`].
    pub fn placed(&self, size: u64, runs: &[PlacedRun]) -> Result<u64> {
        if self.geometry.block_size.blocks_for(size) > u64::from(Lblk::LAST.0) + 1 {
            return Err(Error::FileTooBig);
        }
        let extents = |run: &PlacedRun| u64::from(run.len.div_ceil(EXT_INIT_MAX_LEN.into()));
        let tree = ExtentTree::new(self.geometry.block_size, None);
        let blocks = tree.blocks(runs.iter().map(extents).sum());
        blocks.ok_or(Error::FileTooBig)
    }

    /// Whether there are quota files.
    pub fn has_quotas(&self) -> bool {
        self.quotas.contains(&true)
    }

    /// Blocks of all quota files with these owners.
    ///
    /// # Errors
    /// [`Error::FileTooBig`].
    pub fn quota_files(&self, owners: &OwnerIds) -> Result<FileFootprint> {
        let all = [&owners.users, &owners.groups, &owners.projects];
        let mut sum = FileFootprint::default();
        for (ids, _) in all.into_iter().zip(self.quotas).filter(|&(_, has)| has) {
            let len = quota_blocks(ids.iter().copied()) * QUOTA_BLOCK_LEN as u64;
            let file = self.file(len, std::slice::from_ref(&(0..len)), InlineSpace::default())?;
            sum.data += file.data;
            sum.tree += file.tree;
        }
        Ok(sum)
    }

    /// Blocks of a symbolic link whose target has this many bytes.
    pub fn symlink(&self, target_len: usize) -> u64 {
        u64::from(target_len >= I_BLOCK_LEN)
    }

    /// The space that extended attributes need in addition to the inode.
    ///
    /// # Errors
    /// As [`super::Creator::create`] for invalid attributes.
    pub fn xattrs(
        &self,
        file_type: FileType,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<XattrFootprint> {
        let placed = self.xattr_shape.place(file_type, xattrs)?;
        let mut footprint = XattrFootprint::default();
        for attribute in placed.body.iter().chain(&placed.block).filter(|a| a.apart) {
            let len = attribute.value.len() as u64;
            footprint.inodes += 1;
            let value = self.file(len, std::slice::from_ref(&(0..len)), InlineSpace::default())?;
            footprint.value_blocks += value.data + value.tree;
        }
        if !placed.block.is_empty() {
            footprint.block = Some(block_digest(&placed.block)?);
        }
        Ok(footprint)
    }
}

/// A number that is the same for equal xattr blocks: separate values are represented by their
/// hash.
fn block_digest(list: &[Attribute<'_>]) -> Result<u64> {
    let seed = uext4_ondisk::checksum::CsumSeed(!0);
    let entry = |attribute: &'_ Attribute<'_>| -> (u32, u32) {
        (
            ea_inode_hash(seed, &attribute.value),
            attribute.value.len() as u32,
        )
    };
    let apart: Vec<(u32, u32)> = list.iter().map(entry).collect();
    let entries: Vec<XattrEntry<'_>> = list
        .iter()
        .zip(&apart)
        .map(|(attribute, &(hash, size))| XattrEntry {
            index: attribute.index,
            name: attribute.name,
            value: match attribute.apart {
                true => XattrValue::Inode { ino: Ino(1), size },
                false => XattrValue::Here(&attribute.value),
            },
            hash,
        })
        .collect();
    let mut bytes = vec![0; XATTR_BLOCK_HEADER_LEN + entries_len(&entries)];
    pack_block(&mut bytes, &entries)?;
    Ok(digest(&bytes))
}

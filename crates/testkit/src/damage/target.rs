//! The image that is being damaged: its structures as they are by now, to be changed.
//!
//! Each change takes the place, and the checksum of the structure follows or stays stale, as the
//! damage is asked for.

use std::collections::BTreeSet;

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::dir_entry::DirBlock;
use uext4_ondisk::group_desc::{GroupDesc, bitmap_checksum};
use uext4_ondisk::htree::entries_offset;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Lblk, Pblk, dir_entry, extent, htree, inode, xattr};
use zerocopy::{FromBytes, IntoBytes};

use super::Sums;
use super::survey::{Known, Mapped, Node, Survey};
use crate::random::SplitMix64;

/// What the damage may cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hurt {
    /// Inodes that may lose content, attributes, names in them, or everything.
    pub inodes: BTreeSet<Ino>,
    /// Any inode may.
    pub all: bool,
}

/// An image under damage.
#[derive(Debug)]
pub struct Target<'a> {
    /// The image as it was.
    pub clean: &'a Survey,
    /// Where a kind gets its choices from.
    pub random: SplitMix64,
    /// The image as it is.
    pub bytes: Vec<u8>,
    /// What it may cost.
    pub hurt: Hurt,
    sums: Sums,
}

/// Which bitmap of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitmap {
    /// Of its clusters.
    Blocks,
    /// Of its inodes.
    Inodes,
}

/// A record of a directory's block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it begins in the block.
    pub at: usize,
    /// How long it is.
    pub len: usize,
    /// The inode it names.
    pub ino: Ino,
    /// The name.
    pub name: Vec<u8>,
}

impl<'a> Target<'a> {
    /// The image as it was found.
    pub fn new(clean: &'a Survey, sums: Sums, seed: u64) -> Self {
        Self {
            clean,
            random: SplitMix64::new(seed),
            bytes: clean.bytes.clone(),
            hurt: Hurt::default(),
            sums,
        }
    }

    /// The shape of the image.
    pub fn geometry(&self) -> &'a Geometry {
        &self.clean.geometry
    }

    /// The seed of sums that are to be right; `None` if there are none or they are to stay stale.
    pub fn seed(&self) -> Option<CsumSeed> {
        match self.sums {
            Sums::Right => self.clean.geometry.csum_seed,
            Sums::Stale => None,
        }
    }

    /// Whether checksums follow what is changed.
    pub(crate) fn has_right_sums(&self) -> bool {
        self.sums == Sums::Right
    }

    /// What becomes of the checksums of what is changed from now on.
    pub(crate) fn set_sums(&mut self, sums: Sums) {
        self.sums = sums;
    }

    /// The seed of what belongs to an inode, as [`Target::seed`].
    pub fn seed_of(&self, known: &Known) -> Option<CsumSeed> {
        let generation = known.raw.i_generation.get();
        self.seed().map(|seed| seed.inode(known.ino, generation))
    }

    /// One of a list.
    pub fn one_of<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        list.get(self.random.index(list.len())).cloned()
    }

    /// One of the inodes in use that this is true for.
    pub fn inode_where(&mut self, is_meant: impl Fn(&Known) -> bool) -> Option<&'a Known> {
        let clean = self.clean;
        let list: Vec<_> = clean.inodes.iter().filter(|k| is_meant(k)).collect();
        self.one_of(&list)
    }

    /// A file of this type that is not reserved.
    pub fn file(&mut self, file_type: FileType) -> Option<&'a Known> {
        let first = self.geometry().first_ino;
        self.inode_where(|known| known.ino.0 > first && known.is(file_type))
    }

    /// A regular file with content in blocks.
    pub fn with_blocks(&mut self) -> Option<&'a Known> {
        let first = self.geometry().first_ino;
        let is_meant = |k: &Known| k.is(FileType::Regular) && !k.blocks.is_empty();
        self.inode_where(|known| known.ino.0 > first && is_meant(known))
    }

    /// A directory other than the root, with blocks.
    pub fn directory(&mut self) -> Option<&'a Known> {
        let first = self.geometry().first_ino;
        let is_meant = |k: &Known| k.is(FileType::Directory) && !k.blocks.is_empty();
        self.inode_where(|known| known.ino.0 > first && is_meant(known))
    }

    /// A directory with an index.
    pub fn indexed(&mut self) -> Option<&'a Known> {
        self.inode_where(|k| k.is(FileType::Directory) && k.has(InodeFlags::INDEX))
    }

    /// Changes the primary superblock.
    pub fn superblock(&mut self, change: impl FnOnce(&mut SuperBlock)) -> Option<()> {
        let at = SUPERBLOCK_OFFSET as usize;
        let (superblock, _) = SuperBlock::mut_from_prefix(&mut self.bytes[at..]).ok()?;
        change(superblock);
        if self.sums == Sums::Right {
            superblock.update_checksum();
        }
        Some(())
    }

    /// One of the groups.
    pub fn any_group(&mut self) -> GroupNr {
        GroupNr(self.random.below(self.geometry().groups_count.get().into()) as u32)
    }

    /// Changes a descriptor.
    pub fn group(&mut self, group: GroupNr, change: impl FnOnce(&mut GroupDesc)) -> Option<()> {
        let place = self.clean.desc_place(group);
        let how = self.geometry().desc_checksum;
        let bytes = &mut self.bytes[place];
        let mut desc = GroupDesc::parse(bytes);
        change(&mut desc);
        let sum = bytes[0x1E..0x20].to_vec();
        desc.store(bytes, group, how);
        if self.sums == Sums::Stale {
            bytes[0x1E..0x20].copy_from_slice(&sum);
        }
        Some(())
    }

    /// Changes a bitmap: all of its block.
    pub fn bitmap(
        &mut self,
        group: GroupNr,
        which: Bitmap,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<()> {
        let desc = self.clean.groups[index(group.0)];
        let geometry = self.geometry();
        let (block, bits) = match which {
            Bitmap::Blocks => (desc.block_bitmap, geometry.clusters_per_group),
            Bitmap::Inodes => (desc.inode_bitmap, geometry.inodes_per_group),
        };
        let bytes = self.block(block);
        change(bytes);
        let summed = bytes[..index(bits.get() / 8)].to_vec();
        let Some(seed) = self.seed() else {
            return Some(());
        };
        let sum = bitmap_checksum(seed, &summed, geometry.desc_size.into());
        self.group(group, |desc| match which {
            Bitmap::Blocks => desc.block_bitmap_csum = sum,
            Bitmap::Inodes => desc.inode_bitmap_csum = sum,
        })
    }

    /// A block as it is.
    pub fn block(&mut self, block: Pblk) -> &mut [u8] {
        let at = self.clean.place(block);
        &mut self.bytes[at..][..self.clean.geometry.block_size.len()]
    }

    /// Changes the bytes of an inode.
    pub fn inode_bytes(&mut self, ino: Ino, change: impl FnOnce(&mut [u8])) -> Option<()> {
        self.hurt.inodes.insert(ino);
        let place = self.clean.inode_place(ino);
        let seed = self.seed();
        let bytes = &mut self.bytes[place];
        change(bytes);
        if let Some(seed) = seed {
            let generation = u32::from_le_bytes(*bytes[100..].first_chunk()?);
            inode::update_checksum(bytes, seed, ino, generation);
        }
        Some(())
    }

    /// Changes the fields of an inode.
    pub fn inode(&mut self, ino: Ino, change: impl FnOnce(&mut RawInode)) -> Option<()> {
        self.inode_bytes(ino, |bytes| {
            // OK to unwrap: the image was surveyed.
            let mut raw = RawInode::parse(bytes, ino).unwrap();
            change(&mut raw);
            raw.store(bytes);
        })
    }

    /// Changes a node of an extent tree, or an indirect block.
    pub fn node(
        &mut self,
        known: &Known,
        node: Node,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<()> {
        let Some(block) = node.block else {
            return self.inode(known.ino, |raw| change(&mut raw.i_block));
        };
        self.hurt.inodes.insert(known.ino);
        let seed = self
            .seed_of(known)
            .filter(|_| known.has(InodeFlags::EXTENTS));
        let bytes = self.block(block);
        change(bytes);
        if let Some(seed) = seed {
            extent::update_tail(bytes, seed);
        }
        Some(())
    }

    /// Changes a block of a directory: a leaf, or an inner node of its index.
    pub fn dir_block(
        &mut self,
        known: &Known,
        mapped: Mapped,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<()> {
        self.hurt.inodes.insert(known.ino);
        let seed = self.seed_of(known);
        let lblk = mapped.lblk;
        let is_inner =
            known.has(InodeFlags::INDEX) && (lblk == Lblk(0) || known.index_nodes.contains(&lblk));
        let bytes = self.block(mapped.pblk);
        change(bytes);
        match seed {
            Some(seed) if is_inner => htree::update_tail(bytes, entries_offset(lblk), seed),
            // A tail that the damage took is not put back.
            Some(seed) if dir_entry::tail(bytes).is_some() => dir_entry::update_tail(bytes, seed),
            _ => {}
        }
        Some(())
    }

    /// A block of a directory that has names, and its records.
    pub fn records(&mut self, known: &Known) -> Option<Leaf> {
        let is_leaf = |mapped: &&Mapped| {
            let lblk = mapped.lblk;
            let is_inner = lblk == Lblk(0) || known.index_nodes.contains(&lblk);
            !(known.has(InodeFlags::INDEX) && is_inner)
        };
        let leaves: Vec<_> = known.blocks.iter().filter(is_leaf).copied().collect();
        let mapped = self.one_of(&leaves)?;
        let records = self.records_of(mapped);
        Some(Leaf { mapped, records })
    }

    /// The records of a block that has names.
    pub fn records_of(&self, mapped: Mapped) -> Vec<Record> {
        let incompat = self.geometry().features.incompat;
        let block = self.clean.block(mapped.pblk);
        let entries = DirBlock::new(block, Some(mapped.pblk), incompat);
        let record = |entry: dir_entry::DirEntry<'_>| Record {
            at: entry.offset,
            len: entry.rec_len,
            ino: entry.ino,
            name: entry.name.to_vec(),
        };
        entries.map(|entry| record(entry.unwrap())).collect()
    }

    /// Changes the block of attributes of an inode.
    pub fn xattr_block(&mut self, known: &Known, change: impl FnOnce(&mut [u8])) -> Option<()> {
        let block = known.xattr_block()?;
        self.hurt_sharers(block);
        let seed = self.seed();
        let bytes = self.block(block);
        change(bytes);
        if let Some(seed) = seed {
            xattr::update_checksum(bytes, block, seed);
        }
        Some(())
    }

    /// All inodes with this block of attributes may lose them.
    fn hurt_sharers(&mut self, block: Pblk) {
        let sharers = self.clean.inodes.iter();
        let sharers = sharers.filter(|known| known.xattr_block() == Some(block));
        self.hurt.inodes.extend(sharers.map(|known| known.ino));
    }

    /// A block that no one owns, by the bitmaps.
    pub fn free_block(&mut self) -> Option<Pblk> {
        let geometry = self.geometry();
        let first = u64::from(geometry.first_data_block);
        let span = geometry.blocks_count - first;
        let start = self.random.below(span);
        let mut places = (0..span).map(|i| Pblk(first + (start + i) % span));
        places.find(|&block| self.is_free(block))
    }

    /// Whether the bit of a block is clear.
    pub fn is_free(&self, block: Pblk) -> bool {
        let geometry = self.geometry();
        let Some((group, at)) = geometry.group_of(block) else {
            return false;
        };
        let desc = &self.clean.groups[index(group.0)];
        let bit = index(at >> geometry.cluster_bits);
        let is_made = desc.flags & uext4_ondisk::group_desc::BG_BLOCK_UNINIT == 0;
        is_made && self.clean.block(desc.block_bitmap)[bit / 8] >> (bit % 8) & 1 == 0
    }
}

/// A block of a directory that has names.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Where it is.
    pub mapped: Mapped,
    /// Its records.
    pub records: Vec<Record>,
}

/// Whether the image has what is named, as `mke2fs -O` names features: all words, separated by
/// commas; `^` before those that it must not have.
pub fn has_features(geometry: &Geometry, words: &str) -> bool {
    words
        .split(',')
        .filter(|word| !word.is_empty())
        .all(|word| {
            let name = word.trim_start_matches('^');
            let feature = uext4_ondisk::features::feature_by_name(name);
            let feature = feature.unwrap_or_else(|| panic!("no feature {name}"));
            feature.bit.is_in(geometry.features) != word.starts_with('^')
        })
}

/// Puts a little-endian number over bytes.
pub fn put16(bytes: &mut [u8], at: usize, number: u16) {
    let number = zerocopy::little_endian::U16::new(number);
    bytes[at..at + 2].copy_from_slice(number.as_bytes());
}

/// Puts a little-endian number over bytes.
pub fn put32(bytes: &mut [u8], at: usize, number: u32) {
    let number = zerocopy::little_endian::U32::new(number);
    bytes[at..at + 4].copy_from_slice(number.as_bytes());
}

/// The little-endian number in bytes.
pub fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The little-endian number in bytes.
pub fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

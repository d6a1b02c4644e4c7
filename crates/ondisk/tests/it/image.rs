//! An image in memory, read with this crate alone: enough to find every structure in it.

use std::fs;
use std::path::Path;

use uext4_ondisk::extent::{self, ExtentNode};
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::inode::{FileType, InodeFlags, NDIR_BLOCKS, RawInode};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};

/// A whole image, its superblock and its shape.
pub struct Image {
    bytes: Vec<u8>,
    pub sb: SuperBlock,
    pub geometry: Geometry,
}

impl Image {
    pub fn open(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let sb = SuperBlock::parse(&bytes[SUPERBLOCK_OFFSET as usize..]).unwrap();
        let geometry = Geometry::new(&sb).unwrap();
        assert!(geometry.len_bytes() <= bytes.len() as u64);
        Self {
            bytes,
            sb,
            geometry,
        }
    }

    /// `len` bytes from the start of a block.
    pub fn bytes_at(&self, block: Pblk, len: usize) -> &[u8] {
        let at = self.geometry.block_size.byte_offset(block).unwrap() as usize;
        &self.bytes[at..at + len]
    }

    pub fn block(&self, block: Pblk) -> &[u8] {
        self.bytes_at(block, self.geometry.block_size.len())
    }

    pub fn groups(&self) -> impl Iterator<Item = GroupNr> + use<> {
        (0..self.geometry.groups_count.get()).map(GroupNr)
    }

    /// A group's descriptor in the table whose blocks `place` gives.
    pub fn desc_bytes(&self, group: GroupNr, place: impl Fn(u32) -> Pblk) -> &[u8] {
        let per_block = self.geometry.descs_per_block();
        let len = usize::from(self.geometry.desc_size);
        let at = (group.0 % per_block) as usize * len;
        &self.block(place(group.0 / per_block))[at..at + len]
    }

    pub fn desc(&self, group: GroupNr) -> GroupDesc {
        GroupDesc::parse(self.desc_bytes(group, |index| self.geometry.gdt_block(index)))
    }

    pub fn inode_bytes(&self, ino: Ino) -> &[u8] {
        let (group, index) = self.geometry.inode_group(ino).unwrap();
        let len = usize::from(self.geometry.inode_size);
        let table = self.desc(group).inode_table;
        let all = self.bytes_at(table, (index as usize + 1) * len);
        &all[all.len() - len..]
    }

    pub fn inode(&self, ino: Ino) -> RawInode {
        RawInode::parse(self.inode_bytes(ino), ino).unwrap()
    }

    /// The physical blocks of an inode's data by logical number, and those of its extent tree.
    pub fn blocks(&self, ino: Ino) -> Blocks {
        let inode = self.inode(ino);
        let mut blocks = Blocks::default();
        if InodeFlags::from_bits_retain(inode.i_flags.get()).contains(InodeFlags::EXTENTS) {
            self.walk(&inode.i_block, None, None, &mut blocks);
            return blocks;
        }
        let numbers = words(&inode.i_block);
        for (lblk, &number) in numbers[..NDIR_BLOCKS].iter().enumerate() {
            blocks.push(lblk as u32, number);
        }
        let mut next = NDIR_BLOCKS as u32;
        for (levels, &number) in (1..).zip(&numbers[NDIR_BLOCKS..NDIR_BLOCKS + 2]) {
            self.walk_indirect(number, levels, &mut next, &mut blocks);
        }
        blocks
    }

    fn walk_indirect(&self, number: u32, levels: u32, next: &mut u32, blocks: &mut Blocks) {
        let per_block = self.geometry.block_size.bytes() / 4;
        if levels == 0 {
            blocks.push(*next, number);
            *next += 1;
        } else if number == 0 {
            *next += per_block.pow(levels);
        } else {
            for number in words(self.block(Pblk(number.into()))) {
                self.walk_indirect(number, levels - 1, next, blocks);
            }
        }
    }

    fn walk(&self, node: &[u8], at: Option<Pblk>, depth: Option<u16>, blocks: &mut Blocks) {
        match ExtentNode::parse(node, at, depth).unwrap() {
            ExtentNode::Leaf(entries) => {
                for e in entries.iter().map(extent::RawExtent::get) {
                    let run = (0..u32::from(e.len)).filter(|_| !e.unwritten);
                    let data = run.map(|i| (e.lblk.0 + i, Pblk(e.pblk.0 + u64::from(i))));
                    blocks.data.extend(data);
                }
            }
            ExtentNode::Index { depth, entries } => {
                for child in entries.iter().map(extent::ExtentIdx::leaf) {
                    blocks.tree.push(child);
                    self.walk(self.block(child), Some(child), Some(depth - 1), blocks);
                }
            }
        }
    }

    /// The inodes in use, from the bitmaps.
    pub fn inodes_in_use(&self) -> Vec<Ino> {
        let per_group = self.geometry.inodes_per_group.get();
        let in_group = |group: GroupNr| {
            let desc = self.desc(group);
            let bitmap = self.block(desc.inode_bitmap).to_vec();
            let initialised = desc.flags & uext4_ondisk::group_desc::BG_INODE_UNINIT == 0;
            (0..per_group)
                .filter(move |&i| initialised && bitmap[i as usize / 8] >> (i % 8) & 1 != 0)
                .map(move |i| Ino(group.0 * per_group + i + 1))
        };
        self.groups().flat_map(in_group).collect()
    }

    /// True if the inode is a directory with blocks of its own.
    pub fn is_dir(&self, ino: Ino) -> bool {
        let inode = self.inode(ino);
        let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
        FileType::from_mode(inode.i_mode.get()) == Some(FileType::Directory)
            && !flags.contains(InodeFlags::INLINE_DATA)
    }
}

/// Where an inode's blocks are.
#[derive(Default)]
pub struct Blocks {
    pub data: Vec<(u32, Pblk)>,
    pub tree: Vec<Pblk>,
}

impl Blocks {
    fn push(&mut self, lblk: u32, number: u32) {
        if number != 0 {
            self.data.push((lblk, Pblk(number.into())));
        }
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

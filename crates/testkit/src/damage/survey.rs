//! What lies where in an image that is not damaged yet: so that damage can choose its place.
//!
//! The image is trusted: one that cannot be surveyed makes the test panic.

use uext4_ondisk::extent::{ExtentNode, header};
use uext4_ondisk::group_desc::{BG_INODE_UNINIT, GroupDesc};
use uext4_ondisk::htree::{DxNode, DxShape, entries_offset};
use uext4_ondisk::indirect::{LEVELS, numbers};
use uext4_ondisk::inode::{FileType, InodeFlags, NDIR_BLOCKS, RawInode};
use uext4_ondisk::num::{index, lo32};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Lblk, Pblk};

/// An image and what is known of it.
#[derive(Debug)]
pub struct Survey {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Its superblock.
    pub superblock: SuperBlock,
    /// Its shape.
    pub geometry: Geometry,
    /// Its descriptors.
    pub groups: Vec<GroupDesc>,
    /// The inodes whose bit is set, in order; reserved ones, too.
    pub inodes: Vec<Known>,
}

/// An inode in use.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its number.
    pub ino: Ino,
    /// Its fields.
    pub raw: RawInode,
    /// What it is; `None` for a reserved inode that is not used.
    pub file_type: Option<FileType>,
    /// Its flags.
    pub flags: InodeFlags,
    /// The nodes of its extent tree, or its indirect blocks: parents first.
    pub nodes: Vec<Node>,
    /// The blocks of its content, one after the other.
    pub blocks: Vec<Mapped>,
    /// The inner nodes of its index, without the root; only a directory with one has them.
    pub index_nodes: Vec<Lblk>,
}

/// A node of an extent tree, or an indirect block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it is; `None` for the extent root within the inode.
    pub block: Option<Pblk>,
    /// Levels below it; 0 for a leaf, and for an indirect block with numbers of content.
    pub depth: u16,
    /// Entries in use.
    pub entries: u16,
}

/// A block of an inode's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its place in the file.
    pub lblk: Lblk,
    /// Its place on the device.
    pub pblk: Pblk,
    /// It reads as zeroes.
    pub unwritten: bool,
}

impl Known {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.raw.i_size_lo.get()) | u64::from(self.raw.i_size_high.get()) << 32
    }

    /// Whether it is of this type and an ordinary file: not a reserved inode, and no holder of an
    /// attribute.
    pub fn is(&self, file_type: FileType) -> bool {
        self.file_type == Some(file_type) && !self.flags.contains(InodeFlags::EA_INODE)
    }

    /// Whether all these flags are set.
    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Its block of extended attributes.
    pub fn xattr_block(&self) -> Option<Pblk> {
        let block = u64::from(self.raw.i_file_acl_lo.get())
            | u64::from(self.raw.i_file_acl_high.get()) << 32;
        (block != 0).then_some(Pblk(block))
    }
}

impl Survey {
    /// Looks at an image without damage.
    #[track_caller]
    pub fn new(bytes: Vec<u8>) -> Self {
        let at = SUPERBLOCK_OFFSET as usize;
        let superblock = SuperBlock::parse(&bytes[at..at + 1024]).unwrap();
        let geometry = Geometry::new(&superblock).unwrap();
        let mut survey = Self {
            bytes,
            superblock,
            groups: Vec::new(),
            inodes: Vec::new(),
            geometry,
        };
        survey.groups = (0..survey.geometry.groups_count.get())
            .map(|group| GroupDesc::parse(&survey.bytes[survey.desc_place(GroupNr(group))]))
            .collect();
        survey.inodes = (1..=survey.geometry.inodes_count)
            .filter(|&ino| survey.is_inode_used(Ino(ino)))
            .map(|ino| survey.know(Ino(ino)))
            .collect();
        survey
    }

    /// The bytes of a descriptor.
    pub fn desc_place(&self, group: GroupNr) -> std::ops::Range<usize> {
        let per_block = self.geometry.descs_per_block();
        let block = self.geometry.gdt_block(group.0 / per_block);
        let size = usize::from(self.geometry.desc_size);
        let at = self.place(block) + index(group.0 % per_block) * size;
        at..at + size
    }

    /// Where a block begins.
    pub fn place(&self, block: Pblk) -> usize {
        (block.0 << self.geometry.block_size.log2()) as usize
    }

    /// The bytes of a block.
    pub fn block(&self, block: Pblk) -> &[u8] {
        &self.bytes[self.place(block)..][..self.geometry.block_size.len()]
    }

    /// The bytes of an inode.
    pub fn inode_place(&self, ino: Ino) -> std::ops::Range<usize> {
        let (group, nr) = self.geometry.inode_group(ino).unwrap();
        let size = usize::from(self.geometry.inode_size);
        let at = self.place(self.groups[index(group.0)].inode_table) + index(nr) * size;
        at..at + size
    }

    /// Whether an inode's bit is set.
    pub fn is_inode_used(&self, ino: Ino) -> bool {
        let (group, nr) = self.geometry.inode_group(ino).unwrap();
        let desc = &self.groups[index(group.0)];
        let is_made = desc.flags & BG_INODE_UNINIT == 0;
        is_made && self.block(desc.inode_bitmap)[index(nr) / 8] >> (nr % 8) & 1 == 1
    }

    /// What is known of an inode in use.
    pub fn known(&self, ino: Ino) -> Option<&Known> {
        let at = self.inodes.binary_search_by_key(&ino, |known| known.ino);
        Some(&self.inodes[at.ok()?])
    }

    fn know(&self, ino: Ino) -> Known {
        let raw = RawInode::parse(&self.bytes[self.inode_place(ino)], ino).unwrap();
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let file_type = FileType::from_mode(raw.i_mode.get());
        let mut known = Known {
            ino,
            raw,
            file_type,
            flags,
            nodes: Vec::new(),
            blocks: Vec::new(),
            index_nodes: Vec::new(),
        };
        if flags.contains(InodeFlags::INLINE_DATA) {
            return known;
        }
        if flags.contains(InodeFlags::EXTENTS) {
            self.walk_extents(&mut known, None);
        } else if self.has_block_numbers(&known) {
            self.walk_indirect(&mut known);
        }
        if file_type == Some(FileType::Directory) && flags.contains(InodeFlags::INDEX) {
            self.walk_index(&mut known);
        }
        known
    }

    /// Whether `i_block` is a list of block numbers.
    fn has_block_numbers(&self, known: &Known) -> bool {
        let of_attributes = match known.xattr_block() {
            Some(_) => self.geometry.block_size.bytes() << self.geometry.cluster_bits >> 9,
            None => 0,
        };
        match known.file_type {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => known.raw.i_blocks_lo.get() > of_attributes,
            Some(_) => false,
            // Reserved inodes without a mode: the list of bad blocks, the resize inode.
            None => known.raw.i_blocks_lo.get() > 0,
        }
    }

    fn walk_extents(&self, known: &mut Known, at: Option<Pblk>) {
        let root = known.raw.i_block;
        let bytes = at.map_or(&root[..], |block| self.block(block));
        let head = header(bytes).unwrap();
        known.nodes.push(Node {
            block: at,
            depth: head.eh_depth.get(),
            entries: head.eh_entries.get(),
        });
        match ExtentNode::parse(bytes, at, None).unwrap() {
            ExtentNode::Leaf(extents) => {
                for extent in extents.iter().map(|raw| raw.get()) {
                    known
                        .blocks
                        .extend((0..u32::from(extent.len)).map(|i| Mapped {
                            lblk: Lblk(extent.lblk.0 + i),
                            pblk: Pblk(extent.pblk.0 + u64::from(i)),
                            unwritten: extent.unwritten,
                        }));
                }
            }
            ExtentNode::Index { entries, .. } => {
                for child in entries {
                    self.walk_extents(known, Some(child.leaf()));
                }
            }
        }
    }

    fn walk_indirect(&self, known: &mut Known) {
        let root = known.raw.i_block;
        let mut lblk = 0;
        for (slot, number) in numbers(&root).iter().enumerate() {
            let level = (slot + 1).saturating_sub(NDIR_BLOCKS).min(LEVELS) as u16;
            self.walk_tree(known, number.get(), level, &mut lblk);
        }
    }

    /// A tree of indirect blocks of this many levels; `lblk` is the first block below it, and
    /// then the first behind it.
    fn walk_tree(&self, known: &mut Known, number: u32, level: u16, lblk: &mut u64) {
        let per_block = u64::from(self.geometry.block_size.bytes() / 4);
        if number == 0 {
            *lblk += per_block.pow(level.into());
            return;
        }
        let pblk = Pblk(number.into());
        if level == 0 {
            known.blocks.push(Mapped {
                lblk: Lblk(lo32(*lblk)),
                pblk,
                unwritten: false,
            });
            *lblk += 1;
            return;
        }
        let below = numbers(self.block(pblk));
        known.nodes.push(Node {
            block: Some(pblk),
            depth: level - 1,
            entries: below.iter().filter(|n| n.get() != 0).count() as u16,
        });
        for number in below {
            self.walk_tree(known, number.get(), level - 1, lblk);
        }
    }

    fn walk_index(&self, known: &mut Known) {
        let Some(root) = known.blocks.first() else {
            return;
        };
        let mut level = vec![root.lblk];
        let levels = self.block(root.pblk)[30];
        for _ in 0..levels {
            let below = level
                .iter()
                .flat_map(|&lblk| self.index_children(known, lblk))
                .collect::<Vec<_>>();
            known.index_nodes.extend(&below);
            level = below;
        }
    }

    /// The blocks that an inner node of an index leads to.
    fn index_children(&self, known: &Known, lblk: Lblk) -> Vec<Lblk> {
        let shape = DxShape {
            offset: entries_offset(lblk),
            summed: self.geometry.csum_seed.is_some(),
        };
        let block = known.blocks.iter().find(|mapped| mapped.lblk == lblk);
        let node = DxNode::parse(self.block(block.unwrap().pblk), shape, lblk).unwrap();
        (0..node.entries.len()).map(|i| node.block(i)).collect()
    }
}

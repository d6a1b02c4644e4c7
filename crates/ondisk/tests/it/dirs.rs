//! Reads directories of an image: tails, hash trees, and that every name lies where its hash says.

use uext4_ondisk::dir_entry::{self, DirBlock};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::hash::{HashVersion, hash_name};
use uext4_ondisk::htree::{
    self, DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET, DX_ROOT_INFO_OFFSET, DxNode, DxRootInfo,
    DxShape,
};
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::FromBytes;

use crate::image::Image;

/// One directory of an image.
pub struct Dir<'a> {
    image: &'a Image,
    ino: Ino,
    blocks: Vec<(u32, Pblk)>,
}

/// What was met in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Met {
    pub names: usize,
    pub leaves: usize,
    pub nodes: usize,
}

impl<'a> Dir<'a> {
    pub fn new(image: &'a Image, ino: Ino) -> Self {
        let blocks = image.blocks(ino).data;
        Self { image, ino, blocks }
    }

    /// Verifies everything in it.
    pub fn verify(&self) -> Met {
        let mut met = Met::default();
        let flags = InodeFlags::from_bits_retain(self.image.inode(self.ino).i_flags.get());
        if !flags.contains(InodeFlags::INDEX) {
            for &(lblk, _) in &self.blocks {
                self.leaf(Lblk(lblk), &mut met, |_| ());
            }
            return met;
        }
        let root = self.bytes(Lblk(0));
        let (info, _) = DxRootInfo::ref_from_prefix(&root[DX_ROOT_INFO_OFFSET..]).unwrap();
        assert_eq!((info.reserved_zero.get(), info.info_length), (0, 8));
        let version = HashVersion::from_disk(info.hash_version, self.image.sb.hash_sign());
        let tree = (version.unwrap(), info.indirect_levels);
        self.node(Lblk(0), tree, (0, u32::MAX), &mut met);
        assert_eq!(met.leaves + met.nodes, self.blocks.len());
        met.names += 2; // "." and ".." of the root block.
        met
    }

    fn bytes(&self, lblk: Lblk) -> &'a [u8] {
        self.image.block(self.at(lblk))
    }

    fn at(&self, lblk: Lblk) -> Pblk {
        self.blocks.iter().find(|(l, _)| *l == lblk.0).unwrap().1
    }

    /// Goes down a hash tree; the names below have hashes in `range`.
    fn node(
        &self,
        lblk: Lblk,
        (version, levels): (HashVersion, u8),
        range: (u32, u32),
        met: &mut Met,
    ) {
        met.nodes += 1;
        let bytes = self.bytes(lblk);
        let offset = match lblk {
            Lblk(0) => DX_ROOT_ENTRIES_OFFSET,
            _ => DX_NODE_ENTRIES_OFFSET,
        };
        let seed = self.image.geometry.csum_seed;
        let summed = seed.is_some();
        let node = DxNode::parse(bytes, DxShape { offset, summed }, lblk).unwrap();
        if let Some(seed) = seed {
            let generation = self.image.inode(self.ino).i_generation.get();
            let seed = seed.inode(self.ino, generation);
            let at = self.at(lblk);
            assert_eq!(htree::verify_tail(bytes, offset, lblk, at, seed), Ok(()));
            let mut copy = bytes.to_vec();
            htree::update_tail(&mut copy, offset, seed);
            assert_eq!(copy, bytes);
        }
        for i in 0..node.entries.len() {
            let from = node.hash(i).max(range.0);
            let to = match i + 1 < node.entries.len() {
                true => node.hash(i + 1),
                false => range.1,
            };
            assert_eq!(node.find(node.hash(i)), i);
            if levels > 0 {
                self.node(node.block(i), (version, levels - 1), (from, to), met);
                continue;
            }
            self.leaf(node.block(i), met, |name| {
                let hash = hash_name(version, self.image.sb.hash_seed(), name).hash;
                assert!((from & !1..=to).contains(&hash), "{}", name.escape_ascii());
            });
        }
    }

    fn leaf(&self, lblk: Lblk, met: &mut Met, check: impl Fn(&[u8])) {
        met.leaves += 1;
        let (bytes, at) = (self.bytes(lblk), self.at(lblk));
        let incompat = self.image.geometry.features.incompat;
        let filetype = incompat.contains(Incompat::FILETYPE);
        for entry in DirBlock::new(bytes, Some(at), incompat) {
            let entry = entry.unwrap();
            assert_eq!(entry.file_type.is_some(), filetype);
            check(entry.name);
            met.names += 1;
        }
        let Some(seed) = self.image.geometry.csum_seed else {
            assert!(dir_entry::tail(bytes).is_none());
            return;
        };
        let generation = self.image.inode(self.ino).i_generation.get();
        let seed = seed.inode(self.ino, generation);
        assert_eq!(dir_entry::verify_tail(bytes, at, seed), Ok(()));
        let mut copy = bytes.to_vec();
        dir_entry::update_tail(&mut copy, seed);
        assert_eq!(copy, bytes);
    }
}

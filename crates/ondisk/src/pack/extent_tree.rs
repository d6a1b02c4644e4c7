//! Extent trees of files whose extents are all known: built from the leaves up, every node full.

use crate::checksum::CsumSeed;
use crate::extent::{
    EXT_INIT_MAX_LEN, EXT_UNWRITTEN_MAX_LEN, EXT4_MAX_EXTENT_DEPTH, EXTENT_ENTRY_LEN, Extent,
    ExtentIdx, max_entries, put_index, put_leaf, update_tail,
};
use crate::inode::I_BLOCK_LEN;
use crate::num::len64;
use crate::pack::PackError;
use crate::units::{BlockSize, Lblk, Pblk};

/// Entries of the root in the inode.
pub const ROOT_ENTRIES: usize = (I_BLOCK_LEN - EXTENT_ENTRY_LEN) / EXTENT_ENTRY_LEN;
/// Physical blocks have numbers of 48 bits.
const PBLK_END: u64 = 1 << 48;

/// How the trees of one file are laid out.
#[derive(Clone, Copy, Debug)]
pub struct ExtentTree {
    /// Entries of a node in a block, at least 84.
    room: u16,
    /// The inode's, `None` where nodes get no checksum here.
    seed: Option<CsumSeed>,
}

/// A node that is to be written to a block.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    tree: ExtentTree,
    entries: Entries<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Entries<'a> {
    Extents(&'a [Extent]),
    Children(u16, &'a [ExtentIdx]),
}

impl Node<'_> {
    /// Depth: 0 for a leaf.
    pub fn depth(&self) -> u16 {
        match self.entries {
            Entries::Extents(_) => 0,
            Entries::Children(depth, _) => depth,
        }
    }

    /// Writes the node into a block of zeroes, with its checksum if there is a seed.
    pub fn write(&self, block: &mut [u8]) {
        match self.entries {
            Entries::Extents(extents) => put_leaf(block, self.tree.room, extents),
            Entries::Children(depth, all) => put_index(block, self.tree.room, depth, all),
        }
        if let Some(seed) = self.tree.seed {
            update_tail(block, seed);
        }
    }
}

impl ExtentTree {
    /// In blocks of this size; `seed` is the inode's, `None` where nodes get no checksum here.
    pub fn new(block_size: BlockSize, seed: Option<CsumSeed>) -> Self {
        Self {
            room: max_entries(block_size.len()),
            seed,
        }
    }

    /// Blocks that the tree of so many extents takes; `None` if it would be too deep.
    pub fn blocks(self, extents: u64) -> Option<u64> {
        let (mut blocks, mut entries, mut depth) = (0, extents, 0);
        while entries > len64(ROOT_ENTRIES) {
            entries = entries.div_ceil(self.room.into());
            blocks = u64::checked_add(blocks, entries)?;
            depth = u16::checked_add(depth, 1)?;
        }
        (depth <= EXT4_MAX_EXTENT_DEPTH).then_some(blocks)
    }

    /// Builds the tree of `extents`, which ascend and do not overlap, and writes its root. `place`
    /// gives each other node a block and writes it there: [`ExtentTree::blocks`] times, the leaves
    /// first, then each level above them, all in logical order. Returns that number.
    ///
    /// The bytes of the root behind its entries are left as they are.
    ///
    /// # Errors
    /// [`PackError::Extent`] and [`PackError::TooManyExtents`] before the first node is placed;
    /// those of `place`.
    pub fn pack<E: From<PackError>>(
        self,
        root: &mut [u8; I_BLOCK_LEN],
        extents: &[Extent],
        mut place: impl FnMut(&Node<'_>) -> Result<Pblk, E>,
    ) -> Result<u64, E> {
        check(extents)?;
        let count = len64(extents.len());
        let too_many = PackError::TooManyExtents { extents: count };
        let blocks = self.blocks(count).ok_or(too_many)?;
        if blocks == 0 {
            put_leaf(root, max_entries(I_BLOCK_LEN), extents);
            return Ok(0);
        }
        let mut node = |lblk: Lblk, entries: Entries<'_>| {
            let node = Node {
                tree: self,
                entries,
            };
            Ok::<_, E>(ExtentIdx::new(lblk, place(&node)?))
        };
        let mut children = Vec::new();
        for part in extents.chunks(self.room.into()) {
            children.push(node(part[0].lblk, Entries::Extents(part))?);
        }
        let mut depth = 1;
        while children.len() > ROOT_ENTRIES {
            let mut parents = Vec::new();
            for part in children.chunks(self.room.into()) {
                parents.push(node(part[0].lblk(), Entries::Children(depth, part))?);
            }
            children = parents;
            depth = u16::saturating_add(depth, 1);
        }
        put_index(root, max_entries(I_BLOCK_LEN), depth, &children);
        Ok(blocks)
    }
}

/// What a reader checks of leaves: lengths, order, and that all numbers fit.
fn check(extents: &[Extent]) -> Result<(), PackError> {
    let mut next = 0;
    for extent in extents {
        let len_max = match extent.unwritten {
            true => EXT_UNWRITTEN_MAX_LEN,
            false => EXT_INIT_MAX_LEN,
        };
        let (first, len) = (u64::from(extent.lblk.0), u64::from(extent.len));
        let end = first.saturating_add(len);
        let fits = (1..=len_max).contains(&extent.len)
            && first >= next
            && end <= u64::from(u32::MAX)
            && extent.pblk.0.saturating_add(len) <= PBLK_END;
        if !fits {
            return Err(PackError::Extent(*extent));
        }
        next = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::extent::{ExtentNode, verify_tail};

    fn extent(i: u32) -> Extent {
        Extent {
            lblk: Lblk(2 * i),
            len: 1,
            pblk: Pblk(1000 + 3 * u64::from(i)),
            unwritten: i.is_multiple_of(3),
        }
    }

    /// Reads the extents back, with the number of blocks.
    fn read(
        bytes: &[u8],
        blocks: &HashMap<u64, Vec<u8>>,
        depth: Option<u16>,
        extents: &mut Vec<Extent>,
    ) -> usize {
        match ExtentNode::parse(bytes, None, depth).unwrap() {
            ExtentNode::Leaf(leaf) => {
                extents.extend(leaf.iter().map(|raw| raw.get()));
                0
            }
            ExtentNode::Index { depth, entries } => {
                let child = |entry: &ExtentIdx| {
                    let node = &blocks[&entry.leaf().0];
                    verify_tail(node, entry.leaf(), CsumSeed(7)).unwrap();
                    let before = extents.len();
                    let count = 1 + read(node, blocks, Some(depth - 1), extents);
                    assert_eq!(extents[before].lblk, entry.lblk());
                    count
                };
                entries.iter().map(child).sum()
            }
        }
    }

    #[test]
    fn packed_entries_are_read_back() {
        let tree = ExtentTree::new(BlockSize::MIN, Some(CsumSeed(7)));
        for count in [0, 1, 4, 5, 84, 84 * 4, 84 * 4 + 1, 84 * 84 * 4 + 1] {
            let extents: Vec<_> = (0..count).map(extent).collect();
            let mut blocks = HashMap::new();
            let mut root = [0; I_BLOCK_LEN];
            let packed = tree.pack::<PackError>(&mut root, &extents, |node| {
                let mut block = vec![0; 1024];
                node.write(&mut block);
                let at = 1 + blocks.len() as u64;
                blocks.insert(at, block);
                Ok(Pblk(at))
            });
            assert_eq!(packed, Ok(blocks.len() as u64));
            assert_eq!(tree.blocks(count.into()), Some(blocks.len() as u64));
            let mut found = Vec::new();
            assert_eq!(read(&root, &blocks, None, &mut found), blocks.len());
            assert_eq!(found, extents);
        }
    }

    #[test]
    fn nodes_are_counted_level_by_level() {
        let tree = ExtentTree::new(BlockSize::MIN, None);
        assert_eq!(tree.blocks(0), Some(0));
        assert_eq!(tree.blocks(4), Some(0));
        assert_eq!(tree.blocks(5), Some(1));
        assert_eq!(tree.blocks(84 * 4), Some(4));
        assert_eq!(tree.blocks(84 * 4 + 1), Some(6));
        assert_eq!(tree.blocks(84 * 84 * 4 + 1), Some(84 * 4 + 1 + 5 + 1));
        assert_eq!(tree.blocks(u64::MAX), None);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let good = extent(5);
        let bad = [
            Extent { len: 0, ..good },
            Extent {
                len: EXT_INIT_MAX_LEN + 1,
                unwritten: false,
                ..good
            },
            Extent {
                len: EXT_INIT_MAX_LEN,
                unwritten: true,
                ..good
            },
            Extent {
                lblk: Lblk(u32::MAX),
                ..good
            },
            Extent {
                pblk: Pblk(PBLK_END),
                ..good
            },
        ];
        let tree = ExtentTree::new(BlockSize::MIN, None);
        let pack = |extents: &[Extent]| {
            tree.pack(
                &mut [0; I_BLOCK_LEN],
                extents,
                |_| -> Result<_, PackError> { panic!("placed") },
            )
        };
        for extent in bad {
            assert_eq!(pack(&[extent]), Err(PackError::Extent(extent)));
        }
        assert_eq!(pack(&[good, good]), Err(PackError::Extent(good)));
        assert_eq!(pack(&[good]), Ok(0));
    }
}

//! How the names of a directory are packed into blocks, all names known: one block, an htree with
//! full leaves, or without `dir_index` a row of full blocks.
//!
//! ```text
//! one block            ". .." and all names
//! htree                root | inner nodes, upper levels first | leaves, in the order of hashes
//! row of blocks        ". .." and names | names | names …
//! ```
//! The plan is pure: the number of blocks follows from the names alone, so that space can be
//! computed before anything exists. The bytes are filled in later, block by block.

mod hashed;
mod inline;

use std::ops::Range;

pub use hashed::HashedNames;
pub use inline::InlinePlan;

use crate::checksum::CsumSeed;
use crate::dir_block::{DOTS_LEN, DirFormat, NewEntry};
use crate::dir_entry::{EXT4_NAME_LEN, rec_len_for, update_tail};
use crate::features::Compat;
use crate::geometry::Geometry;
use crate::hash::HashVersion;
use crate::htree::{
    self, DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET, DxShape, IndexEntry, RootHead, fill_node,
    fill_root,
};
use crate::inode::FileType;
use crate::num::{index, len8, len32, len64};
use crate::pack::PackError;
use crate::superblock::SuperBlock;
use crate::units::{Ino, Lblk};

/// What the layout of directories depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirShape {
    format: DirFormat,
    /// `None`: no htrees.
    index: Option<NameHash>,
}

/// How names are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameHash {
    version: HashVersion,
    seed: [u32; 4],
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// 1 to 255 bytes.
    pub name: &'a [u8],
    /// What it names.
    pub ino: Ino,
    /// The type of that.
    pub file_type: FileType,
}

/// Where every name goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Indexes of the names in the order in which they are laid.
    order: Vec<u32>,
    /// The blocks of names.
    leaves: Vec<Leaf>,
    /// Nodes of each level of the tree below its root, the uppermost first; `None`: no tree.
    nodes: Option<Vec<u32>>,
}

/// A block of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Leaf {
    /// The place of its first name in the order of names.
    first: u32,
    /// The hash that it begins with.
    hash: u32,
}

impl DirShape {
    /// Of the file system with this superblock.
    pub fn new(sb: &SuperBlock, geometry: &Geometry) -> Self {
        let version = HashVersion::from_disk(sb.s_def_hash_version, sb.hash_sign());
        let indexed = geometry.features.compat.contains(Compat::DIR_INDEX);
        let seed = sb.hash_seed();
        Self {
            format: DirFormat::new(geometry),
            index: version
                .filter(|_| indexed)
                .map(|version| NameHash { version, seed }),
        }
    }

    /// The same without htrees, for a directory whose names cannot be hashed.
    #[must_use]
    pub fn without_index(self) -> Self {
        Self {
            index: None,
            ..self
        }
    }

    /// Plans a directory of `count` names in addition to "." and "..".
    ///
    /// # Errors
    /// [`PackError::SameName`], [`PackError::NameLength`], [`PackError::TooManyNames`].
    pub fn plan<'a>(&self, count: u32, name: impl Fn(u32) -> &'a [u8]) -> Result<Plan, PackError> {
        match self.is_indexed(count, &name)? {
            true => self.plan_indexed(vec![self.hash(0..count, &name)], name),
            false => self.plan_row(count, name),
        }
    }

    /// Checks the lengths of the names, and returns whether the directory has an htree.
    ///
    /// # Errors
    /// [`PackError::NameLength`].
    pub fn is_indexed<'a>(
        &self,
        count: u32,
        name: impl Fn(u32) -> &'a [u8],
    ) -> Result<bool, PackError> {
        let mut total = DOTS_LEN;
        for i in 0..count {
            let len = name(i).len();
            if len == 0 || len > EXT4_NAME_LEN {
                return Err(PackError::NameLength { len: len64(len) });
            }
            total = total.saturating_add(rec_len_for(len));
        }
        Ok(self.index.is_some() && total > self.format.room())
    }

    /// Plans a directory with an htree, whose names were hashed in parts: all of them, in
    /// ascending order of their indexes.
    ///
    /// # Errors
    /// [`PackError::SameName`], [`PackError::TooManyNames`].
    pub fn plan_indexed<'a>(
        &self,
        parts: Vec<HashedNames>,
        name: impl Fn(u32) -> &'a [u8],
    ) -> Result<Plan, PackError> {
        let names = HashedNames::join(parts, &name)?;
        let records = names.iter().map(|h| (rec_len_for(h.len.into()), h.hash));
        let leaves = self.pack(0, records);
        let nodes = self.levels(len64(leaves.len()))?;
        let mut order = Vec::with_capacity(index(names.count()));
        order.extend(names.iter().map(|hashed| hashed.index));
        self.checked(Plan {
            order,
            leaves,
            nodes: Some(nodes),
        })
    }

    /// Plans a directory without an htree.
    fn plan_row<'a>(&self, count: u32, name: impl Fn(u32) -> &'a [u8]) -> Result<Plan, PackError> {
        check_unique(0..count, &name)?;
        let records = (0..count).map(|i| (rec_len_for(name(i).len()), 0));
        self.checked(Plan {
            order: (0..count).collect(),
            leaves: self.pack(DOTS_LEN, records),
            nodes: None,
        })
    }

    /// The plan, unless it has more blocks than a directory may have.
    fn checked(&self, plan: Plan) -> Result<Plan, PackError> {
        if u64::from(plan.blocks()) > self.format.blocks_max() {
            return Err(PackError::TooManyNames);
        }
        Ok(plan)
    }

    /// Fills blocks one after the other; `used` bytes of the first are taken. Of each name, the
    /// length of its record and its hash.
    fn pack(&self, mut used: usize, names: impl Iterator<Item = (usize, u32)>) -> Vec<Leaf> {
        let mut leaves = vec![Leaf::default()];
        let mut previous = 0;
        for (first, (len, hash)) in (0..).zip(names) {
            if len > self.format.room().saturating_sub(used) {
                // A hash that goes on from the leaf before is marked by its lowest bit.
                let hash = hash | u32::from(hash == previous);
                leaves.push(Leaf { first, hash });
                used = 0;
            }
            used = used.saturating_add(len);
            previous = hash;
        }
        leaves
    }

    /// Nodes of each level between root and leaves, the uppermost first.
    fn levels(&self, leaves: u64) -> Result<Vec<u32>, PackError> {
        let summed = self.format.summed;
        let limit = |offset| len64(DxShape { offset, summed }.limit(self.format.block_len));
        let (root, node) = (limit(DX_ROOT_ENTRIES_OFFSET), limit(DX_NODE_ENTRIES_OFFSET));
        let mut levels = Vec::new();
        let mut entries = leaves;
        while entries > root {
            entries = entries.div_ceil(node);
            let nodes = u32::try_from(entries).map_err(|_| PackError::TooManyNames)?;
            levels.insert(0, nodes);
        }
        if levels.len() > self.format.levels_max().into() {
            return Err(PackError::TooManyNames);
        }
        Ok(levels)
    }
}

fn check_unique<'a>(
    indexes: impl Iterator<Item = u32>,
    name: &impl Fn(u32) -> &'a [u8],
) -> Result<(), PackError> {
    let mut names: Vec<&[u8]> = indexes.map(name).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(PackError::SameName);
    }
    Ok(())
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "a plan that was made has at most 2^28 blocks, and `i` is one of a level's children"
)]
impl Plan {
    /// Blocks of the directory.
    pub fn blocks(&self) -> u32 {
        let tree = match &self.nodes {
            Some(nodes) => 1 + nodes.iter().sum::<u32>(),
            None => 0,
        };
        len32(self.leaves.len()) + tree
    }

    /// True if there is an htree.
    pub fn is_indexed(&self) -> bool {
        self.nodes.is_some()
    }

    /// Indexes of the names in block `leaf` of names.
    fn names_of(&self, leaf: usize) -> &[u32] {
        let first = |leaf: &Leaf| index(leaf.first);
        let from = first(&self.leaves[leaf]);
        let end = self.leaves.get(leaf + 1).map_or(self.order.len(), first);
        &self.order[from..end]
    }

    /// The entry of the `i`th child of the nodes of `level` (0: the root's).
    fn child(&self, nodes: &[u32], level: usize, i: usize, per_node: usize) -> IndexEntry {
        let before: u32 = 1 + nodes[..level].iter().sum::<u32>();
        // The hash of a node is that of its first leaf.
        let below: usize = (level..nodes.len()).map(|_| per_node).product();
        IndexEntry {
            hash: self.leaves[i * below].hash,
            block: Lblk(before + len32(i)),
        }
    }
}

/// A directory that is to be written.
#[derive(Debug)]
pub struct Layout<'a, F> {
    /// The shape that it was planned with.
    pub shape: &'a DirShape,
    /// Where the names go.
    pub plan: &'a Plan,
    /// The directory.
    pub ino: Ino,
    /// What ".." names.
    pub parent: Ino,
    /// The directory's own, `None` without checksums.
    pub seed: Option<CsumSeed>,
    /// The names, as they were planned.
    pub name: F,
}

impl<'a, F: Fn(u32) -> Name<'a>> Layout<'_, F> {
    /// Fills logical block `lblk`, which is all zero.
    pub fn fill(&self, lblk: u32, block: &mut [u8]) {
        let Some(nodes) = &self.plan.nodes else {
            return self.leaf(index(lblk), block);
        };
        let Some(mut at) = lblk.checked_sub(1) else {
            return self.root(nodes, block);
        };
        for (level, &count) in nodes.iter().enumerate() {
            match at.checked_sub(count) {
                None => return self.node(nodes, level, index(at), block),
                Some(behind) => at = behind,
            }
        }
        self.leaf(index(at), block);
    }

    fn dots(&self) -> [NewEntry<'static>; 2] {
        self.shape.format.dots(self.ino, self.parent)
    }

    fn leaf(&self, leaf: usize, block: &mut [u8]) {
        let format = self.shape.format;
        let names = self.plan.names_of(leaf).iter().map(|&index| {
            let name = (self.name)(index);
            NewEntry {
                name: name.name,
                ino: name.ino,
                file_type: format.file_type(name.file_type),
            }
        });
        let has_dots = leaf == 0 && !self.plan.is_indexed();
        let dots = self.dots().into_iter().filter(|_| has_dots);
        format.fill(block, dots.chain(names));
        if let Some(seed) = self.seed {
            update_tail(block, seed);
        }
    }

    fn root(&self, nodes: &[u32], block: &mut [u8]) {
        let version = self.shape.index.map(|index| index.version);
        let head = RootHead {
            // OK to default: there is a tree only where names are hashed.
            hash_version: version.unwrap_or(HashVersion::HalfMd4).to_disk(),
            indirect_levels: len8(nodes.len()),
        };
        let entries = self.entries(nodes, 0, 0..self.children(nodes, 0));
        fill_root(block, self.shape.format, self.dots(), head, &entries);
        self.sum(block, DX_ROOT_ENTRIES_OFFSET);
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`at` is a node of the level, whose children are fewer than 2^28"
    )]
    fn node(&self, nodes: &[u32], level: usize, at: usize, block: &mut [u8]) {
        let per_node = self.per_node();
        let all = self.children(nodes, level + 1);
        let children = at * per_node..((at + 1) * per_node).min(all);
        let entries = self.entries(nodes, level + 1, children);
        fill_node(block, self.shape.format, &entries);
        self.sum(block, DX_NODE_ENTRIES_OFFSET);
    }

    /// All children of the nodes of a level (0: the root's).
    fn children(&self, nodes: &[u32], level: usize) -> usize {
        nodes
            .get(level)
            .map_or(self.plan.leaves.len(), |&nodes| index(nodes))
    }

    fn per_node(&self) -> usize {
        let format = self.shape.format;
        let shape = DxShape {
            offset: DX_NODE_ENTRIES_OFFSET,
            summed: format.summed,
        };
        shape.limit(format.block_len)
    }

    fn entries(&self, nodes: &[u32], level: usize, children: Range<usize>) -> Vec<IndexEntry> {
        let per_node = self.per_node();
        children
            .map(|i| self.plan.child(nodes, level, i, per_node))
            .collect()
    }

    fn sum(&self, block: &mut [u8], offset: usize) {
        if let Some(seed) = self.seed {
            htree::update_tail(block, offset, seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir_entry::{self, DirBlock};
    use crate::features::Incompat;
    use crate::htree::DxNode;
    use crate::units::Pblk;

    const SEED: CsumSeed = CsumSeed(9);

    pub(super) fn shape(index: bool, large_dir: bool) -> DirShape {
        DirShape {
            format: DirFormat::for_tests(1024, large_dir),
            index: index.then_some(NameHash {
                version: HashVersion::HalfMd4,
                seed: [1, 2, 3, 4],
            }),
        }
    }

    fn names(count: u32) -> Vec<Vec<u8>> {
        let name = |i: u32| format!("name {i:0width$}", width = 1 + i as usize % 20);
        (0..count).map(|i| name(i).into_bytes()).collect()
    }

    /// Lays a directory out and reads all its names back.
    fn round_trip(shape: &DirShape, count: u32) -> (Plan, usize) {
        let all = names(count);
        let plan = shape.plan(count, |i| &all[i as usize]).unwrap();
        let layout = Layout {
            shape,
            plan: &plan,
            ino: Ino(12),
            parent: Ino(2),
            seed: Some(SEED),
            name: |i| Name {
                name: &all[i as usize],
                ino: Ino(100 + i),
                file_type: FileType::Regular,
            },
        };
        let mut found = Vec::new();
        let mut nodes = 0;
        for lblk in 0..plan.blocks() {
            let mut block = vec![0; 1024];
            layout.fill(lblk, &mut block);
            let entries = DirBlock::new(&block, None, Incompat::FILETYPE);
            let before = found.len();
            found.extend(
                entries
                    .map(|e| e.unwrap())
                    .map(|e| (e.name.to_vec(), e.ino)),
            );
            let is_node = plan.is_indexed() && (lblk == 0 || found.len() == before);
            nodes += usize::from(is_node);
            let at = Pblk(7);
            let verified = match is_node {
                true => {
                    let offset = htree::entries_offset(Lblk(lblk));
                    let summed = true;
                    let shape = DxShape { offset, summed };
                    let node = DxNode::parse(&block, shape, Lblk(lblk)).unwrap();
                    let last = node.entry(node.entries.len() - 1);
                    assert!(last.block.0 < plan.blocks());
                    htree::verify_tail(&block, offset, Lblk(lblk), at, SEED)
                }
                false => dir_entry::verify_tail(&block, at, SEED),
            };
            assert_eq!(verified, Ok(()));
        }
        assert_eq!(
            &found[..2],
            [(b".".to_vec(), Ino(12)), (b"..".to_vec(), Ino(2))]
        );
        let mut rest = found.split_off(2);
        rest.sort_by_key(|(_, ino)| *ino);
        let expected: Vec<_> = all.into_iter().zip((100..).map(Ino)).collect();
        assert_eq!(rest, expected);
        (plan, nodes)
    }

    #[test]
    fn packed_entries_are_read_back() {
        for (index, count, levels) in [
            (true, 0, None),
            (true, 20, None),
            (true, 100, Some(0)),
            (true, 10_000, Some(1)),
            (false, 0, None),
            (false, 1000, None),
        ] {
            let (plan, nodes) = round_trip(&shape(index, false), count);
            assert_eq!(plan.nodes.as_ref().map(Vec::len), levels, "{count}");
            let expected = plan.nodes.map_or(0, |nodes| 1 + nodes.iter().sum::<u32>());
            assert_eq!(nodes, expected as usize);
        }
    }

    #[test]
    fn the_parts_in_which_names_are_hashed_do_not_change_the_plan() {
        let all = names(3000);
        let name = |i: u32| all[i as usize].as_slice();
        let shape = shape(true, false);
        let whole = shape.plan(3000, name).unwrap();
        for len in [1, 7, 1000, 2999] {
            let ranges = (0..3000).step_by(len).map(|i| i..3000.min(i + len as u32));
            let parts = ranges.map(|range| shape.hash(range, name)).collect();
            assert_eq!(shape.plan_indexed(parts, name), Ok(whole.clone()), "{len}");
        }
    }

    #[test]
    fn names_out_of_range_are_refused() {
        let plan = |names: &[&[u8]]| {
            let count = names.len() as u32;
            shape(true, false).plan(count, |i| names[i as usize])
        };
        assert_eq!(plan(&[b"a", b"b", b"a"]), Err(PackError::SameName));
        assert_eq!(plan(&[b""]), Err(PackError::NameLength { len: 0 }));
        assert_eq!(
            plan(&[&[b'a'; 256]]),
            Err(PackError::NameLength { len: 256 })
        );
        assert!(plan(&[&[b'a'; 255]]).is_ok());
        let long: Vec<_> = (0..40).map(|i| vec![b'a' + i; 200]).collect();
        let mut long: Vec<&[u8]> = long.iter().map(Vec::as_slice).collect();
        assert!(plan(&long).is_ok());
        long.push(long[7]);
        assert_eq!(plan(&long), Err(PackError::SameName));
    }

    #[test]
    fn trees_are_as_deep_as_they_may_be() {
        // Of 1 KiB with checksums: 123 entries in a root, 126 in a node.
        let leaves = 123 * 126;
        for large_dir in [false, true] {
            let shape = shape(true, large_dir);
            assert_eq!(shape.levels(123), Ok(vec![]));
            assert_eq!(shape.levels(124), Ok(vec![1]));
            assert_eq!(shape.levels(leaves), Ok(vec![123]));
            let deeper = match large_dir {
                true => Ok(vec![1, 124]),
                false => Err(PackError::TooManyNames),
            };
            assert_eq!(shape.levels(leaves + 1), deeper);
        }
    }
}

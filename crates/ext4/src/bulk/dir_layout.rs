//! How the names of a directory are packed into blocks, all names known: one block, a hash tree with
//! full leaves, or without `dir_index` a row of full blocks.
//!
//! ```text
//! one block            ". .." and all names
//! hash tree            root | inner nodes, upper levels first | leaves in the order of their hashes
//! row of blocks        ". .." and names | names | names …
//! ```
//! The plan is pure: the number of blocks follows from the names alone, so that space can be reckoned
//! before anything exists. The bytes are filled in later, block by block.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::dir_entry::{DIR_TAIL_LEN, put, rec_len_for, update_tail};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::hash::{HashVersion, hash_name};
use uext4_ondisk::htree::{
    self, DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET, node_limit, put_entries, put_root_info,
};
use uext4_ondisk::inode::FileType;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, Ino, Lblk};

use crate::base::error::{Error, Result};

/// Bytes of the "." and ".." records.
const DOTS_LEN: usize = rec_len_for(1) + rec_len_for(2);
/// Largest directory without `large_dir`, in bytes: its size has 31 bits.
const SIZE_MAX: u64 = (1 << 31) - 1;
/// Logical blocks an htree entry can name.
const HTREE_BLOCKS_MAX: u64 = 1 << 28;

/// What the layout of directories depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirShape {
    block_len: usize,
    /// Blocks end with a checksum.
    summed: bool,
    /// Entries tell the type of what they name.
    filetype: bool,
    /// Hash of names, its seed, and whether trees may have three levels; `None`: no trees.
    index: Option<(HashVersion, [u32; 4])>,
    large_dir: bool,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: Ino,
    pub(super) file_type: FileType,
}

/// Where every name goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Indexes of the names in the order in which they are laid.
    order: Vec<u32>,
    /// Of each block of names: its place in `order`, and the hash it begins with.
    leaves: Vec<(u32, u32)>,
    /// Nodes of each level of the tree below its root, the uppermost first; `None`: no tree.
    nodes: Option<Vec<u32>>,
}

impl DirShape {
    /// Of the file system with this superblock.
    pub(super) fn new(sb: &SuperBlock, geometry: &Geometry) -> Self {
        let features = geometry.features;
        let version = HashVersion::from_disk(sb.s_def_hash_version, sb.hash_sign());
        Self {
            block_len: geometry.block_size.len(),
            summed: geometry.csum_seed.is_some(),
            filetype: features.incompat.contains(Incompat::FILETYPE),
            index: version
                .filter(|_| features.compat.contains(Compat::DIR_INDEX))
                .map(|version| (version, sb.hash_seed())),
            large_dir: features.incompat.contains(Incompat::LARGEDIR),
        }
    }

    /// Bytes for records in a block of names.
    fn room(&self) -> usize {
        self.block_len - if self.summed { DIR_TAIL_LEN } else { 0 }
    }

    /// Plans a directory of `count` names beside "." and "..".
    pub(super) fn plan<'a>(&self, count: u32, name: impl Fn(u32) -> &'a [u8]) -> Result<Plan> {
        let len = |i: u32| rec_len_for(name(i).len());
        let total: usize = (0..count).map(len).sum();
        let mut order: Vec<u32> = (0..count).collect();
        let plan = match self.index {
            Some((version, seed)) if DOTS_LEN + total > self.room() => {
                let hash = |i: u32| {
                    let hash = hash_name(version, seed, name(i));
                    (hash.hash, hash.minor_hash, i)
                };
                let mut hashes: Vec<_> = (0..count).map(hash).collect();
                hashes.sort_unstable();
                check_unique_hashed(&hashes, &name)?;
                order
                    .iter_mut()
                    .zip(&hashes)
                    .for_each(|(at, &(.., i))| *at = i);
                let leaves = self.pack(0, &order, |i| {
                    (len(order[i as usize]), hashes[i as usize].0)
                });
                let nodes = self.levels(leaves.len() as u64)?;
                Plan {
                    order,
                    leaves,
                    nodes: Some(nodes),
                }
            }
            _ => {
                check_unique(&order, &name)?;
                let leaves = self.pack(DOTS_LEN, &order, |i| (len(order[i as usize]), 0));
                Plan {
                    order,
                    leaves,
                    nodes: None,
                }
            }
        };
        let bytes = u64::from(plan.blocks()) * self.block_len as u64;
        if bytes > SIZE_MAX && !self.large_dir {
            return Err(Error::FileTooBig);
        }
        Ok(plan)
    }

    /// Fills blocks one after the other; `used` bytes of the first are taken. `entry` tells the length
    /// and hash of the name at a place.
    fn pack(
        &self,
        mut used: usize,
        order: &[u32],
        entry: impl Fn(u32) -> (usize, u32),
    ) -> Vec<(u32, u32)> {
        let mut leaves = vec![(0, 0)];
        let mut previous = 0;
        for place in 0..order.len() as u32 {
            let (len, hash) = entry(place);
            if used + len > self.room() {
                // A hash that goes on from the leaf before is marked by its lowest bit.
                leaves.push((place, hash | u32::from(hash == previous)));
                used = 0;
            }
            used += len;
            previous = hash;
        }
        leaves
    }

    /// Nodes of each level between root and leaves, the uppermost first.
    fn levels(&self, leaves: u64) -> Result<Vec<u32>> {
        let root = node_limit(self.block_len, DX_ROOT_ENTRIES_OFFSET, self.summed) as u64;
        let node = node_limit(self.block_len, DX_NODE_ENTRIES_OFFSET, self.summed) as u64;
        let mut levels = Vec::new();
        let (mut entries, mut blocks) = (leaves, leaves + 1);
        while entries > root {
            entries = entries.div_ceil(node);
            blocks += entries;
            levels.insert(0, u32::try_from(entries).map_err(|_| Error::FileTooBig)?);
        }
        let levels_max = if self.large_dir { 2 } else { 1 };
        if levels.len() > levels_max || blocks > HTREE_BLOCKS_MAX {
            return Err(Error::FileTooBig);
        }
        Ok(levels)
    }
}

/// Equal names have equal hashes and lie side by side, but for names of equal hashes in between.
fn check_unique_hashed<'a>(
    hashes: &[(u32, u32, u32)],
    name: &impl Fn(u32) -> &'a [u8],
) -> Result<()> {
    for group in hashes
        .chunk_by(|a, b| (a.0, a.1) == (b.0, b.1))
        .filter(|g| g.len() > 1)
    {
        let indexes: Vec<u32> = group.iter().map(|g| g.2).collect();
        check_unique(&indexes, name)?;
    }
    Ok(())
}

fn check_unique<'a>(indexes: &[u32], name: &impl Fn(u32) -> &'a [u8]) -> Result<()> {
    let mut names: Vec<&[u8]> = indexes.iter().map(|&i| name(i)).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::Exists);
    }
    Ok(())
}

impl Plan {
    /// Blocks of the directory.
    pub(super) fn blocks(&self) -> u32 {
        let tree = match &self.nodes {
            Some(nodes) => 1 + nodes.iter().sum::<u32>(),
            None => 0,
        };
        self.leaves.len() as u32 + tree
    }

    /// True if there is a hash tree.
    pub(super) fn is_indexed(&self) -> bool {
        self.nodes.is_some()
    }

    /// Indexes of the names in block `leaf` of names.
    fn names_of(&self, leaf: usize) -> &[u32] {
        let from = self.leaves[leaf].0 as usize;
        let end = self
            .leaves
            .get(leaf + 1)
            .map_or(self.order.len(), |next| next.0 as usize);
        &self.order[from..end]
    }

    /// Logical block and beginning hash of the `i`th child of the nodes of `level` (0: the root's).
    fn child(&self, nodes: &[u32], level: usize, i: usize, per_node: usize) -> (u32, Lblk) {
        let before: u32 = 1 + nodes[..level].iter().sum::<u32>();
        // The hash of a node is that of its first leaf.
        let below: usize = (level..nodes.len()).map(|_| per_node).product();
        let hash = self.leaves[i * below].1;
        (hash, Lblk(before + i as u32))
    }
}

/// A directory about to be written.
pub(super) struct Layout<'a, F> {
    pub(super) shape: &'a DirShape,
    pub(super) plan: &'a Plan,
    pub(super) ino: Ino,
    pub(super) parent: Ino,
    /// The directory's own, `None` without checksums.
    pub(super) seed: Option<CsumSeed>,
    pub(super) name: F,
}

impl<'a, F: Fn(u32) -> Name<'a>> Layout<'_, F> {
    /// Fills logical block `lblk`, which is all zero.
    pub(super) fn fill(&self, lblk: u32, block: &mut [u8]) {
        let Some(nodes) = &self.plan.nodes else {
            return self.leaf(lblk as usize, block, lblk == 0);
        };
        if lblk == 0 {
            return self.root(nodes, block);
        }
        let mut at = lblk - 1;
        for (level, &count) in nodes.iter().enumerate() {
            if at < count {
                return self.node(nodes, level, at as usize, block);
            }
            at -= count;
        }
        self.leaf(at as usize, block, false);
    }

    fn file_type(&self, file_type: FileType) -> Option<FileType> {
        self.shape.filetype.then_some(file_type)
    }

    /// "." and "..", the latter `rec_len` bytes long.
    fn dots(&self, block: &mut [u8], rec_len: usize) {
        let directory = self.file_type(FileType::Directory);
        let dot = rec_len_for(1);
        put(block, 0, dot, self.ino, b".", directory);
        put(block, dot, rec_len, self.parent, b"..", directory);
    }

    fn leaf(&self, leaf: usize, block: &mut [u8], first: bool) {
        let names = self.plan.names_of(leaf);
        let room = self.shape.room();
        let mut at = 0;
        if first {
            let (dot, dotdot) = (rec_len_for(1), rec_len_for(2));
            self.dots(block, if names.is_empty() { room - dot } else { dotdot });
            at = DOTS_LEN;
        }
        for (i, &index) in names.iter().enumerate() {
            let name = (self.name)(index);
            let len = match i + 1 == names.len() {
                true => room - at,
                false => rec_len_for(name.name.len()),
            };
            put(
                block,
                at,
                len,
                name.ino,
                name.name,
                self.file_type(name.file_type),
            );
            at += len;
        }
        if let Some(seed) = self.seed {
            update_tail(block, seed);
        }
    }

    fn root(&self, nodes: &[u32], block: &mut [u8]) {
        self.dots(block, block.len() - rec_len_for(1));
        let (version, _) = self.shape.index.unwrap_or((HashVersion::HalfMd4, [0; 4]));
        put_root_info(block, version.to_disk(), nodes.len() as u8);
        let count = nodes
            .first()
            .map_or(self.plan.leaves.len(), |&n| n as usize);
        self.entries(nodes, 0, 0..count, DX_ROOT_ENTRIES_OFFSET, block);
    }

    fn node(&self, nodes: &[u32], level: usize, at: usize, block: &mut [u8]) {
        put(block, 0, block.len(), Ino(0), b"", None);
        let per_node = self.per_node();
        let all = nodes
            .get(level + 1)
            .map_or(self.plan.leaves.len(), |&n| n as usize);
        let children = at * per_node..((at + 1) * per_node).min(all);
        self.entries(nodes, level + 1, children, DX_NODE_ENTRIES_OFFSET, block);
    }

    fn per_node(&self) -> usize {
        node_limit(
            self.shape.block_len,
            DX_NODE_ENTRIES_OFFSET,
            self.shape.summed,
        )
    }

    fn entries(
        &self,
        nodes: &[u32],
        level: usize,
        children: std::ops::Range<usize>,
        offset: usize,
        block: &mut [u8],
    ) {
        let per_node = self.per_node();
        let entries: Vec<_> = children
            .map(|i| self.plan.child(nodes, level, i, per_node))
            .collect();
        put_entries(block, offset, self.shape.summed, &entries);
        if let Some(seed) = self.seed {
            htree::update_tail(block, offset, seed);
        }
    }
}

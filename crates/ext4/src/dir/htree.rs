//! The path from the root to a leaf in a hashed directory: root, up to two levels of inner nodes,
//! leaf.
//!
//! Entries with the same hash may continue in the next leaf; the index entry of that leaf then
//! has the hash with bit 0 set. A [`Walk`] is positioned at one leaf and advances to the
//! following ones; lookup, changes (`htree_change`) and listing in the order of hashes
//! (`readdir`) all use it. It pins the nodes of its path and reads each once.

use uext4_buffer_cache::Buffer;
use uext4_ondisk::dir_block;
use uext4_ondisk::hash::{DirHash, HashVersion, hash_name};
use uext4_ondisk::htree::{
    DX_ROOT_INFO_LEN, DX_ROOT_INFO_OFFSET, DxNode, DxRootInfo, DxShape, entries_offset,
};
use uext4_ondisk::{Damage, Ino, Lblk};
use zerocopy::FromBytes;

use crate::base::error::{Error, Result};
use crate::dir::{DirCursor, format};
use crate::inode::Inode;
use crate::journal::sbi::Sbi;

/// Maximum number of leaves with entries of one hash; no valid directory comes near.
pub(crate) const SAME_HASH_LEAVES_MAX: u32 = 4096;
/// Maximum number of nodes on the path to a leaf, the root included.
const FRAMES_MAX: usize = 3;

/// A node of the path, and the entry selected in it.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) lblk: Lblk,
    pub(crate) buffer: Buffer,
    /// Index of the selected entry.
    pub(crate) taken: usize,
    /// The block that it refers to.
    child: Lblk,
    /// Hash of the entry after it.
    next_hash: Option<u32>,
    pub(crate) count: usize,
    pub(crate) limit: usize,
}

/// Which entry of a node to select.
#[derive(Clone, Copy, Debug)]
enum Take {
    Hash(u32),
    Nth(usize),
}

impl Frame {
    fn new(sbi: &Sbi, dir: &Inode, lblk: Lblk, buffer: Buffer, take: Take) -> Result<Self> {
        let data = buffer.data();
        let summed = sbi.geometry().csum_seed.is_some();
        let offset = entries_offset(lblk);
        let node = DxNode::head(&data, DxShape { offset, summed }, lblk)?;
        let count = node.entries.len();
        let taken = match take {
            Take::Hash(hash) => node.find(hash),
            // OK to subtract: a node has at least one entry.
            Take::Nth(n) => n.min(count - 1),
        };
        let child = node.block(taken);
        if child.0 == 0 {
            let why = "an htree node refers back to the root";
            return Err(Error::Corrupt(Damage::Directory { ino: dir.ino, why }));
        }
        let next_hash = (taken + 1 < count).then(|| node.hash(taken + 1));
        let limit = usize::from(node.limit);
        drop(data);
        Ok(Self {
            lblk,
            buffer,
            taken,
            child,
            next_hash,
            count,
            limit,
        })
    }
}

/// A position at a leaf of an htree.
#[derive(Debug)]
pub(crate) struct Walk {
    cursor: DirCursor,
    pub(crate) info: DxRootInfo,
    frames: [Option<Frame>; FRAMES_MAX],
}

/// The header of an htree's root.
pub(crate) fn root_info(sbi: &Sbi, dir: &Inode) -> Result<DxRootInfo> {
    let block = DirCursor::new(sbi, dir)?.block_at(sbi, dir, Lblk(0))?;
    parse_root_info(sbi, dir, &block.data)
}

fn parse_root_info(sbi: &Sbi, dir: &Inode, block: &[u8]) -> Result<DxRootInfo> {
    let bad = |why| Error::Corrupt(Damage::Directory { ino: dir.ino, why });
    let info = block
        .get(DX_ROOT_INFO_OFFSET..)
        .and_then(|rest| DxRootInfo::read_from_prefix(rest).ok())
        .map(|(info, _)| info)
        .ok_or_else(|| bad("no room for an htree root"))?;
    if info.reserved_zero.get() != 0 || usize::from(info.info_length) != DX_ROOT_INFO_LEN {
        return Err(bad("block 0 is no htree root"));
    }
    if info.unused_flags & 1 != 0 {
        return Err(bad("unknown flags in the htree root"));
    }
    if info.indirect_levels > format(sbi).levels_max() {
        return Err(bad("the htree is too deep"));
    }
    Ok(info)
}

/// The hash function for the hash version `code` of a root or of the superblock.
pub(crate) fn hash_version(sbi: &Sbi, code: u8) -> Result<HashVersion> {
    HashVersion::from_disk(code, sbi.superblock().hash_sign()).ok_or_else(|| Error::Unsupported {
        what: format!("directory hash {code}"),
    })
}

/// The hash of a name in a tree whose root has the hash version `code`.
pub(crate) fn hash_of(sbi: &Sbi, code: u8, name: &[u8]) -> Result<DirHash> {
    let version = hash_version(sbi, code)?;
    Ok(hash_name(version, sbi.superblock().hash_seed(), name))
}

impl Walk {
    /// Goes to the first leaf for the hash that `hash` returns for the root's header.
    pub(crate) fn to(
        sbi: &Sbi,
        dir: &Inode,
        hash: impl FnOnce(&DxRootInfo) -> Result<u32>,
    ) -> Result<(Self, u32)> {
        let mut cursor = DirCursor::new(sbi, dir)?;
        let buffer = cursor.buffer_at(sbi, dir, Lblk(0))?;
        let info = parse_root_info(sbi, dir, &buffer.data())?;
        let hash = hash(&info)?;
        let root = Frame::new(sbi, dir, Lblk(0), buffer, Take::Hash(hash))?;
        let mut walk = Self {
            cursor,
            info,
            frames: [Some(root), None, None],
        };
        walk.descend(sbi, dir, 0, Take::Hash(hash))?;
        Ok((walk, hash))
    }

    /// Like [`Walk::to`], for a name; also returns its hash.
    pub(crate) fn to_name(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<(Self, u32)> {
        let hash = |info: &DxRootInfo| Ok(hash_of(sbi, info.hash_version, name)?.hash);
        Self::to(sbi, dir, hash)
    }

    /// Index of the node that refers to leaves.
    fn bottom(&self) -> usize {
        usize::from(self.info.indirect_levels).min(FRAMES_MAX - 1)
    }

    /// The nodes of the path, root first.
    pub(crate) fn frames(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frames.iter().take(self.bottom() + 1).flatten()
    }

    /// Descends from the node at depth `from`, in which an entry is selected.
    fn descend(&mut self, sbi: &Sbi, dir: &Inode, from: usize, take: Take) -> Result<()> {
        for depth in from..self.bottom() {
            let Some(child) = self.frames[depth].as_ref().map(|frame| frame.child) else {
                break;
            };
            let buffer = self.cursor.buffer_at(sbi, dir, child)?;
            let frame = Frame::new(sbi, dir, child, buffer, take)?;
            self.frames[depth + 1] = Some(frame);
        }
        Ok(())
    }

    /// The position of the leaf in the directory.
    pub(crate) fn leaf_lblk(&self) -> Lblk {
        let last = self.frames[self.bottom()].as_ref();
        // OK to fall back: all frames down to the bottom are set once the walk is created.
        last.map_or(Lblk(0), |frame| frame.child)
    }

    /// The leaf.
    pub(crate) fn leaf(&mut self, sbi: &Sbi, dir: &Inode) -> Result<(Lblk, Buffer)> {
        let lblk = self.leaf_lblk();
        Ok((lblk, self.cursor.buffer_at(sbi, dir, lblk)?))
    }

    /// The hash that the next leaf begins with; bit 0 is set if it continues the last hash of
    /// this leaf.
    pub(crate) fn next_hash(&self) -> Option<u32> {
        self.frames().rev().find_map(|frame| frame.next_hash)
    }

    /// Whether entries with `hash`, which belong to this leaf, may also be in the next one.
    pub(crate) fn goes_on(&self, hash: u32) -> bool {
        self.next_hash().is_some_and(|next| next & !1 == hash)
    }

    /// Advances to the next leaf, whose hash [`Walk::next_hash`] returned.
    pub(crate) fn advance(&mut self, sbi: &Sbi, dir: &Inode) -> Result<()> {
        let has_next =
            |frame: &Option<Frame>| frame.as_ref().is_some_and(|f| f.next_hash.is_some());
        let frames = &self.frames[..=self.bottom()];
        let Some(depth) = frames.iter().rposition(has_next) else {
            return Ok(());
        };
        if let Some(frame) = self.frames[depth].take() {
            let next = Take::Nth(frame.taken + 1);
            self.frames[depth] = Some(Frame::new(sbi, dir, frame.lblk, frame.buffer, next)?);
        }
        self.descend(sbi, dir, depth, Take::Nth(0))
    }
}

/// The damage of a hash that continues through more leaves than possible.
pub(crate) fn too_many_leaves(dir: &Inode) -> Error {
    Error::Corrupt(Damage::Directory {
        ino: dir.ino,
        why: "too many leaves of one hash",
    })
}

/// Finds a name by its hash, and the leaf that contains it. Fails with [`Error::Unsupported`] if
/// the hash is not computed from names as stored.
pub(crate) fn find(
    sbi: &Sbi,
    dir: &Inode,
    name: &[u8],
) -> Result<Option<(Lblk, Buffer, dir_block::Found)>> {
    let (mut walk, hash) = Walk::to_name(sbi, dir, name)?;
    let room = format(sbi).room();
    for _ in 0..SAME_HASH_LEAVES_MAX {
        let (lblk, buffer) = walk.leaf(sbi, dir)?;
        let found = dir_block::find(&buffer.data(), buffer.block(), room, name)?;
        if let Some(found) = found {
            return Ok(Some((lblk, buffer, found)));
        }
        if !walk.goes_on(hash) {
            return Ok(None);
        }
        walk.advance(sbi, dir)?;
    }
    Err(too_many_leaves(dir))
}

/// Looks up a name by its hash. `None` if it does not exist.
pub(crate) fn lookup(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
    Ok(find(sbi, dir, name)?.map(|(_, _, found)| found.ino))
}

//! Extent trees: from a logical block to the leaf that covers it.
//!
//! A walk goes down once per leaf, not once per block: [`Leaf`] says which part of the file it
//! covers, and answers for all of it. Nodes are validated when their block comes in; the depth
//! falls by one a level, so a cycle cannot be.

use std::sync::Arc;

use uext4_buffer_cache::Buffer;
use uext4_ondisk::extent::{ExtentNode, RawExtent, verify_tail};
use uext4_ondisk::inode::I_BLOCK_LEN;
use uext4_ondisk::{Damage, Lblk, Pblk};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::mapping::Mapping;
use crate::base::owner::{Kind, owned_tag};
use crate::inode::Inode;

/// A leaf of an extent tree and what it covers.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    node: Node,
    /// First logical block it may describe.
    from: u32,
    /// First logical block past it; up to 2³².
    until: u64,
}

#[derive(Clone, Debug)]
enum Node {
    /// Stands for the part of the file before the first child of an inner node.
    Nothing,
    Root([u8; I_BLOCK_LEN]),
    Block(Pblk, Arc<[u8]>),
}

impl Node {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::Root(bytes) => bytes,
            Self::Block(_, bytes) => bytes,
        }
    }

    fn at(&self) -> Option<Pblk> {
        match self {
            Self::Nothing | Self::Root(_) => None,
            Self::Block(block, _) => Some(*block),
        }
    }

    /// The node, which was validated when its bytes were taken.
    fn view(&self) -> Result<ExtentNode<'_>> {
        if let Self::Nothing = self {
            return Ok(ExtentNode::Leaf(&[]));
        }
        let node = ExtentNode::of_verified(self.bytes());
        Ok(node.ok_or_else(|| Damage::truncated("extent node", 0, self.bytes().len()))?)
    }
}

/// Goes down to the leaf that covers `lblk`.
pub(crate) fn find_leaf(disk: &Disk, inode: &Inode, lblk: Lblk) -> Result<Leaf> {
    ExtentNode::parse(&inode.i_block, None, None)?;
    let mut node = Node::Root(inode.i_block);
    let (mut from, mut until) = (0u32, 1u64 << 32);
    loop {
        let (child, depth) = match node.view()? {
            ExtentNode::Leaf(entries) => {
                check_within(entries, node.at(), from, until)?;
                return Ok(Leaf { node, from, until });
            }
            ExtentNode::Index { depth, entries } => {
                let after = entries.partition_point(|e| e.lblk() <= lblk);
                if let Some(next) = entries.get(after) {
                    until = until.min(next.lblk().0.into());
                }
                let Some(entry) = after.checked_sub(1).and_then(|i| entries.get(i)) else {
                    let node = Node::Nothing;
                    return Ok(Leaf { node, from, until });
                };
                if entry.lblk().0 < from {
                    return Err(out_of_order(node.at(), after - 1, entry.lblk()));
                }
                from = entry.lblk().0;
                (entry.leaf(), depth - 1)
            }
        };
        node = Node::Block(child, read_node(disk, inode, child, depth)?);
    }
}

/// Reads the node of `depth` in `block`, verified.
pub(crate) fn read_node(disk: &Disk, inode: &Inode, block: Pblk, depth: u16) -> Result<Arc<[u8]>> {
    Ok(bread_node(disk, inode, block, depth)?.data())
}

/// As [`read_node`], pinned.
pub(crate) fn bread_node(disk: &Disk, inode: &Inode, block: Pblk, depth: u16) -> Result<Buffer> {
    let tag = owned_tag(Kind::Extent, depth, inode.ino, inode.generation);
    let seed = disk.geometry().csum_seed;
    disk.bread("extent tree", block, tag, |bytes| {
        if let Some(seed) = seed {
            verify_tail(bytes, block, seed.inode(inode.ino, inode.generation))?;
        }
        ExtentNode::parse(bytes, Some(block), Some(depth)).map(|_| ())
    })
}

/// A leaf's entries must lie within what its parents say it covers.
pub(crate) fn check_within(
    entries: &[RawExtent],
    at: Option<Pblk>,
    from: u32,
    until: u64,
) -> Result<()> {
    if let Some(first) = entries.first().map(RawExtent::get)
        && first.lblk.0 < from
    {
        return Err(out_of_order(at, 0, first.lblk));
    }
    if let Some(last) = entries.last().map(RawExtent::get)
        && u64::from(last.lblk.0) + u64::from(last.len) > until
    {
        return Err(out_of_order(at, entries.len() - 1, last.lblk));
    }
    Ok(())
}

/// The damage of an entry that lies outside what its node covers.
pub(crate) fn out_of_order(block: Option<Pblk>, entry: usize, lblk: Lblk) -> Error {
    Error::Corrupt(Damage::ExtentOrder {
        block,
        entry: entry as u16,
        lblk,
    })
}

impl Leaf {
    /// Whether this leaf answers for `lblk`.
    pub(crate) fn covers(&self, lblk: Lblk) -> bool {
        lblk.0 >= self.from && u64::from(lblk.0) < self.until
    }

    /// What `lblk`, which is covered, and up to `len - 1` blocks after it are. Less may be
    /// reported than there is: never past the leaf.
    pub(crate) fn map(&self, disk: &Disk, lblk: Lblk, len: u32) -> Result<Mapping> {
        let ExtentNode::Leaf(entries) = self.node.view()? else {
            // Cannot be: `find_leaf` ends at a leaf.
            return Ok(Mapping::hole(lblk, 1));
        };
        let after = entries.partition_point(|e| e.ee_block.get() <= lblk.0);
        if let Some(raw) = after.checked_sub(1).and_then(|i| entries.get(i)) {
            let extent = raw.get();
            let mapping = Mapping::from(extent);
            if lblk.0 < mapping.end() {
                disk.check_range("extent", extent.pblk, extent.len.into())?;
                return Ok(mapping.part(lblk, len));
            }
        }
        let hole_end = entries
            .get(after)
            .map_or(self.until, |next| next.ee_block.get().into());
        let room = hole_end - u64::from(lblk.0);
        Ok(Mapping::hole(lblk, room.min(len.into()) as u32))
    }
}

impl Leaf {
    /// All that this leaf says, in order and with the holes. Ends before what lies outside the
    /// file system: a caller that asks for it gets the damage.
    pub(crate) fn whole(&self, disk: &Disk) -> Vec<Mapping> {
        let Ok(ExtentNode::Leaf(entries)) = self.node.view() else {
            return Vec::new();
        };
        let mut all = Vec::with_capacity(entries.len() * 2 + 1);
        let mut next = u64::from(self.from);
        let hole = |from: u64, until: u64| {
            let first = u32::try_from(from).ok()?;
            let len = until.checked_sub(from).filter(|len| *len > 0)?;
            Some(Mapping::hole(Lblk(first), len.min(u32::MAX.into()) as u32))
        };
        for extent in entries.iter().map(RawExtent::get) {
            let inside = disk.check_range("extent", extent.pblk, extent.len.into());
            if inside.is_err() || u64::from(extent.lblk.0) < next {
                return all;
            }
            all.extend(hole(next, extent.lblk.0.into()));
            all.push(Mapping::from(extent));
            next = u64::from(extent.lblk.0) + u64::from(extent.len);
        }
        all.extend(hole(next, self.until));
        all
    }
}

//! The walk over an extent tree.
//!
//! Each node must be what its parent says: one level lower, beginning where the index says. How
//! deep the tree is, its root says; if what the root names is not what it must be then, its blocks
//! say it, where it is proved that they are this file's. Entries that are not in order are put in
//! order, see `order`; what overlaps something before it is cut. As logical blocks ascend through
//! the whole walk, a node that is reached twice has nothing to add.

mod depth;
mod order;

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{
    EXT4_EXT_MAGIC, EXT4_MAX_EXTENT_DEPTH, EXTENT_ENTRY_LEN, Extent, ExtentHeader, ExtentIdx,
    RawExtent, entries, entry_lblk, header, max_entries, verify_tail,
};
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::{Damage, Ino, Lblk, Pblk};
use zerocopy::FromBytes;

use super::{Buffers, DEPTH_READ, MappedCluster, Spot, Visitor, is_inside};
use crate::error::Result;
use crate::problem::MappingProblem;
use crate::state::State;

/// The end of logical blocks.
const LBLK_END: u64 = u32::MAX as u64;

/// A walk.
struct Walk<'w, 's, V> {
    state: &'w State<'s>,
    seed: Option<CsumSeed>,
    buffers: &'w mut Buffers,
    visitor: &'w mut V,
    /// All logical blocks below this one are settled.
    next: u64,
    /// The end of the file in logical blocks, by its size.
    end: u64,
    /// The cluster that the last extent ended in, with `bigalloc`.
    cluster: Option<MappedCluster>,
    /// The block that the buffer of the first level holds already.
    loaded: Option<Pblk>,
    /// The visitor wants no more.
    is_over: bool,
}

/// A node that is being walked.
#[derive(Clone, Copy)]
struct Node<'n> {
    bytes: &'n [u8],
    block: Option<Pblk>,
    depth: u16,
    count: usize,
    /// First logical block behind those that it may hold.
    until: u64,
}

/// Walks the tree of an inode.
pub fn walk<V: Visitor>(
    state: &State<'_>,
    ino: Ino,
    raw: &RawInode,
    buffers: &mut Buffers,
    visitor: &mut V,
) -> Result<()> {
    let seed = state.geometry().csum_seed;
    let seed = seed.map(|seed| seed.inode(ino, raw.i_generation.get()));
    let root = &raw.i_block;
    let Some(head) = checked_header(root) else {
        visitor.problem(MappingProblem::RootHeader, Spot::default());
        return Ok(());
    };
    let stated = head.eh_depth.get();
    let mut loaded = None;
    let inode = depth::Summed { raw, seed };
    let depth = depth::true_depth(state, inode, head, buffers, &mut loaded)?;
    if depth > DEPTH_READ {
        visitor.problem(MappingProblem::RootHeader, Spot::default());
        return Ok(());
    }
    if depth != stated {
        visitor.problem(
            MappingProblem::RootDepth,
            Spot {
                found: stated.into(),
                right: depth.into(),
                ..Spot::default()
            },
        );
    } else if depth > EXT4_MAX_EXTENT_DEPTH {
        visitor.problem(
            MappingProblem::TooDeep,
            Spot {
                found: depth.into(),
                right: EXT4_MAX_EXTENT_DEPTH.into(),
                ..Spot::default()
            },
        );
    }
    if depth != 0 && head.eh_entries.get() == 0 {
        visitor.problem(MappingProblem::NodeEmpty, Spot::default());
    }
    let mut walk = Walk {
        state,
        seed,
        buffers,
        visitor,
        next: 0,
        end: blocks(state, raw),
        cluster: None,
        loaded,
        is_over: false,
    };
    walk.node(Node::root(raw, head, depth))
}

impl<'n> Node<'n> {
    /// The root of an inode's tree.
    fn root(raw: &'n RawInode, head: ExtentHeader, depth: u16) -> Self {
        Self {
            bytes: &raw.i_block,
            block: None,
            depth,
            count: head.eh_entries.get().into(),
            until: LBLK_END,
        }
    }

    /// The bytes of its entries.
    fn body(&self) -> &'n [u8] {
        let body = EXTENT_ENTRY_LEN..EXTENT_ENTRY_LEN * (self.count + 1);
        self.bytes.get(body).unwrap_or_default()
    }

    /// Its entries, if it is no leaf.
    fn children(&self) -> &'n [ExtentIdx] {
        <[ExtentIdx]>::ref_from_bytes(self.body()).unwrap_or_default()
    }
}

/// Blocks that the size of an inode needs.
fn blocks(state: &State<'_>, raw: &RawInode) -> u64 {
    let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
    state.geometry().block_size.blocks_for(size)
}

/// The header of a node, if it is one, whatever its depth. Some writers leave room for up to two
/// entries at the end.
fn checked_header(bytes: &[u8]) -> Option<ExtentHeader> {
    let head = header(bytes)?;
    let room = max_entries(bytes.len());
    let max = head.eh_max.get();
    let fits = head.eh_magic.get() == EXT4_EXT_MAGIC
        && max <= room
        && max.saturating_add(2) >= room
        && head.eh_entries.get() <= max;
    fits.then_some(head)
}

/// The first logical block of a node.
fn first_lblk(bytes: &[u8]) -> Option<Lblk> {
    entries(bytes, 1).first().map(entry_lblk)
}

impl<V: Visitor> Walk<'_, '_, V> {
    fn node(&mut self, node: Node<'_>) -> Result<()> {
        if node.depth == 0 {
            let extents = <[RawExtent]>::ref_from_bytes(node.body()).unwrap_or_default();
            self.leaf(node, extents);
            return Ok(());
        }
        let children = node.children();
        let sorted = self.sorted(node, children)?;
        let children = sorted.as_deref().unwrap_or(children);
        let mut buffer = self.buffers.take(self.state.geometry());
        let ends = children.iter().skip(1).map(|next| u64::from(next.lblk().0));
        let ends = ends.chain(std::iter::once(node.until));
        let mut result = Ok(());
        for (child, end) in children.iter().zip(ends) {
            // An index out of order says nothing about where this one ends.
            let until = match end > u64::from(child.lblk().0) {
                true => end.min(node.until),
                false => node.until,
            };
            result = self.child(node, child, until, &mut buffer);
            if result.is_err() || self.is_over {
                break;
            }
        }
        self.buffers.give(buffer);
        result
    }

    /// Shows the extents of a leaf.
    fn leaf(&mut self, node: Node<'_>, extents: &[RawExtent]) {
        let Some((wrong, before)) = order::first_wrong(extents) else {
            for (at, extent) in extents.iter().enumerate() {
                let next = extents.get(at + 1).map(|next| next.get());
                self.extent(node, extent.get(), next);
            }
            return;
        };
        let spot = Spot {
            block: node.block,
            lblk: Some(wrong),
            found: wrong.0.into(),
            right: before,
        };
        self.visitor.problem(MappingProblem::ExtentOrder, spot);
        let geometry = self.state.geometry();
        let inside = |extent: &Extent| is_inside(geometry, extent.pblk, extent.len.into());
        let extents = order::settled(extents, self.end, inside);
        for (at, extent) in extents.iter().enumerate() {
            self.extent(node, *extent, extents.get(at + 1).copied());
        }
    }

    /// The children of a node in the order of what they hold, if their index is not in order: then
    /// their own entries say where they belong.
    fn sorted(&mut self, node: Node<'_>, children: &[ExtentIdx]) -> Result<Option<Vec<ExtentIdx>>> {
        if children
            .windows(2)
            .all(|pair| pair[0].lblk() < pair[1].lblk())
        {
            return Ok(None);
        }
        let geometry = self.state.geometry();
        let mut buffer = self.buffers.take(geometry);
        let mut sorted = Vec::with_capacity(children.len());
        for child in children {
            let mut first = child.lblk();
            let block = child.leaf();
            if is_inside(geometry, block, 1) {
                self.state.volume.overlay().read_block(block, &mut buffer)?;
                let is_node = checked_header(&buffer).is_some_and(|it| it.eh_entries.get() != 0);
                first = first_lblk(&buffer).filter(|_| is_node).unwrap_or(first);
            }
            sorted.push((first, *child));
        }
        self.loaded = None;
        self.buffers.give(buffer);
        if sorted.is_sorted_by_key(|&(first, _)| first) {
            return Ok(None);
        }
        let spot = Spot {
            block: node.block,
            ..Spot::default()
        };
        self.visitor.problem(MappingProblem::IndexOrder, spot);
        sorted.sort_by_key(|&(first, _)| first);
        Ok(Some(sorted.into_iter().map(|(_, child)| child).collect()))
    }

    fn child(
        &mut self,
        parent: Node<'_>,
        child: &ExtentIdx,
        until: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let block = child.leaf();
        let mut spot = Spot {
            block: parent.block,
            lblk: Some(child.lblk()),
            found: block.0,
            right: 0,
        };
        if !is_inside(self.state.geometry(), block, 1) || self.state.is_metadata(block) {
            self.visitor.problem(MappingProblem::NodeRange, spot);
            return Ok(());
        }
        if !self.buffers.is_new(block) {
            self.visitor.problem(MappingProblem::NodeTwice, spot);
            return Ok(());
        }
        if self.loaded.take() != Some(block) {
            self.state.volume.overlay().read_block(block, buffer)?;
        }
        spot.block = Some(block);
        let Some(head) = checked_header(buffer) else {
            self.visitor.problem(MappingProblem::NodeHeader, spot);
            return Ok(());
        };
        let Some(first) = first_lblk(buffer).filter(|_| head.eh_entries.get() != 0) else {
            self.visitor.problem(MappingProblem::NodeEmpty, spot);
            return Ok(());
        };
        if let Some(seed) = self.seed {
            self.check_tail(buffer, seed, spot);
        }
        let depth = parent.depth - 1;
        if head.eh_depth.get() != depth {
            spot.found = head.eh_depth.get().into();
            spot.right = depth.into();
            self.visitor.problem(MappingProblem::NodeDepth, spot);
        }
        if u64::from(child.lblk().0) < self.next {
            spot.found = child.lblk().0.into();
            spot.right = self.next;
            self.visitor.problem(MappingProblem::IndexOrder, spot);
        } else if first != child.lblk() {
            spot.found = first.0.into();
            spot.right = child.lblk().0.into();
            self.visitor.problem(MappingProblem::IndexStart, spot);
        }
        if !self.visitor.node(block) {
            self.visitor.problem(MappingProblem::NodeTooOften, spot);
            self.is_over = true;
            return Ok(());
        }
        self.node(Node {
            bytes: buffer,
            block: Some(block),
            depth,
            count: head.eh_entries.get().into(),
            until,
        })
    }

    fn check_tail(&mut self, bytes: &[u8], seed: CsumSeed, spot: Spot) {
        let block = spot.block.unwrap_or_default();
        if let Err(Damage::BlockChecksum {
            stored, computed, ..
        }) = verify_tail(bytes, block, seed)
        {
            let spot = Spot {
                found: stored.into(),
                right: computed.into(),
                ..spot
            };
            self.visitor.problem(MappingProblem::NodeChecksum, spot);
        }
    }

    /// Shows what can be used of an extent.
    fn extent(&mut self, node: Node<'_>, extent: Extent, next: Option<Extent>) {
        let first = u64::from(extent.lblk.0);
        let end = first + u64::from(extent.len);
        let geometry = self.state.geometry();
        let is_right = extent.len != 0
            && first >= self.next
            && end <= node.until
            && is_inside(geometry, extent.pblk, extent.len.into())
            && is_aligned(geometry.cluster_bits, &extent);
        if is_right {
            self.next = end;
            self.show(node, extent);
        } else {
            self.damaged_extent(node, extent, next);
        }
    }

    fn damaged_extent(&mut self, node: Node<'_>, extent: Extent, next: Option<Extent>) {
        let first = u64::from(extent.lblk.0);
        let mut end = first + u64::from(extent.len);
        let geometry = self.state.geometry();
        let mut problem = |problem, found: u64, right: u64| {
            let spot = Spot {
                block: node.block,
                lblk: Some(extent.lblk),
                found,
                right,
            };
            self.visitor.problem(problem, spot);
        };
        if extent.len == 0 {
            return problem(MappingProblem::ExtentEmpty, 0, 0);
        }
        let is_too_long = !is_inside(geometry, extent.pblk, extent.len.into());
        if is_too_long {
            problem(MappingProblem::ExtentRange, extent.len.into(), 0);
            let next = next.map(|next| u64::from(next.lblk.0));
            let next = next.filter(|&next| next > first);
            end = end.min(next.unwrap_or(end));
        }
        if !is_inside(geometry, extent.pblk, 1) {
            return;
        }
        if !is_aligned(geometry.cluster_bits, &extent) {
            return problem(MappingProblem::ExtentCluster, 0, 0);
        }
        if first < self.next {
            problem(MappingProblem::ExtentOrder, first, self.next);
        }
        if end > node.until {
            problem(MappingProblem::ExtentBounds, end, node.until);
        }
        let inside = geometry.blocks_count.saturating_sub(extent.pblk.0);
        let from = first.max(self.next);
        let end = end.min(node.until).min(first.saturating_add(inside));
        // A length that cannot be says nothing; of the blocks to the end of the device the file
        // has those that its size needs.
        let end = if is_too_long { end.min(self.end) } else { end };
        if from < end {
            self.next = end;
            self.show(node, part(&extent, from, end));
        }
    }

    /// Shows what is used of an extent. A logical cluster has one place: it can be made so.
    fn show(&mut self, node: Node<'_>, extent: Extent) {
        let geometry = self.state.geometry();
        if geometry.cluster_bits != 0 {
            let first = MappedCluster::of_block(geometry, &extent, 0);
            let last = MappedCluster::of_end(geometry, &extent);
            let before = self.cluster.replace(last);
            if let Some(before) = before.filter(|&before| first.is_torn_from(before)) {
                let spot = Spot {
                    block: node.block,
                    lblk: Some(extent.lblk),
                    found: first.physical,
                    right: before.physical,
                };
                self.visitor.problem(MappingProblem::ClusterSplit, spot);
            }
        }
        self.visitor.extent(extent);
    }
}

/// The part of an extent between two of its logical blocks.
fn part(extent: &Extent, from: u64, end: u64) -> Extent {
    let skip = from.saturating_sub(extent.lblk.0.into());
    let len = end.saturating_sub(from);
    Extent {
        lblk: Lblk(u32::try_from(from).unwrap_or(u32::MAX)),
        len: u16::try_from(len).unwrap_or(extent.len).min(extent.len),
        pblk: Pblk(extent.pblk.0.saturating_add(skip)),
        unwritten: extent.unwritten,
    }
}

/// Whether an extent's blocks lie at the same place of logical and physical clusters.
fn is_aligned(cluster_bits: u8, extent: &Extent) -> bool {
    let mask = (1_u64 << cluster_bits) - 1;
    (u64::from(extent.lblk.0) ^ extent.pblk.0) & mask == 0
}

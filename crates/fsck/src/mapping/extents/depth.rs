//! How deep a tree is, if its root says what cannot be.

use uext4_ondisk::Pblk;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{
    EXT4_MAX_EXTENT_DEPTH, EXTENT_ENTRY_LEN, Extent, ExtentHeader, ExtentIdx, RawExtent,
    verify_tail,
};
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{InodeFlags, RawInode};
use zerocopy::FromBytes;

use super::{Node, Walk, blocks, checked_header};
use crate::error::Result;
use crate::mapping::{Buffers, ClusterCount, DEPTH_READ, Spot, Visitor, blocks_field, is_inside};
use crate::problem::MappingProblem;
use crate::state::State;

/// Nodes of a tree whose depth is to be proved by what it holds: more are not read, for any inode
/// may name the nodes of any other.
const NODES_TALLIED: u32 = 16;

/// An inode, and the seed of the checksums of its nodes.
#[derive(Clone, Copy)]
pub struct Summed<'a> {
    pub raw: &'a RawInode,
    pub seed: Option<CsumSeed>,
}

/// How deep a tree is: as its root says, or else as fits what the root names, if that is proved.
/// Notes in `loaded` which block the buffer of the first level holds then.
pub fn true_depth(
    state: &State<'_>,
    inode: Summed<'_>,
    head: ExtentHeader,
    buffers: &mut Buffers,
    loaded: &mut Option<Pblk>,
) -> Result<u16> {
    let stated = head.eh_depth.get();
    let count = usize::from(head.eh_entries.get());
    if count == 0 {
        return Ok(stated);
    }
    let root = &inode.raw.i_block;
    let others = (0..=EXT4_MAX_EXTENT_DEPTH).filter(|&depth| depth != stated);
    let mut found = None;
    for depth in std::iter::once(stated).chain(others) {
        let mut buffer = buffers.take(state.geometry());
        let fits = depth <= DEPTH_READ && fits(state, root, count, depth, &mut buffer, loaded)?;
        buffers.give(buffer);
        if fits && (depth == stated || is_proved(state, inode, head, depth, buffers)?) {
            found = Some(depth);
            break;
        }
    }
    if found != Some(stated) {
        *loaded = None;
    }
    Ok(found.unwrap_or(stated))
}

/// Whether a depth that the root does not state can be believed. An entry that is garbage may name
/// the node of another file by chance: a node's checksum says whose it is, and where there is none
/// the tree holds just what the inode says that it has.
fn is_proved(
    state: &State<'_>,
    Summed { raw, seed }: Summed<'_>,
    head: ExtentHeader,
    depth: u16,
    buffers: &mut Buffers,
) -> Result<bool> {
    let geometry = state.geometry();
    let root = Node::root(raw, head, depth);
    if let Some(seed) = seed.filter(|_| depth != 0) {
        let mut buffer = buffers.take(geometry);
        let mut is_ours = false;
        for child in root.children() {
            let block = child.leaf();
            if !is_ours && is_inside(geometry, block, 1) && !state.is_metadata(block) {
                state.volume.overlay().read_block(block, &mut buffer)?;
                is_ours = verify_tail(&buffer, block, seed).is_ok();
            }
        }
        buffers.give(buffer);
        return Ok(is_ours);
    }
    let mut tally = Tally {
        state,
        count: ClusterCount::default(),
        nodes: 0,
        end: 0,
        is_wrong: false,
    };
    let mut walk = Walk {
        state,
        seed: None,
        buffers,
        visitor: &mut tally,
        next: 0,
        end: blocks(state, raw),
        cluster: None,
        loaded: None,
        is_over: false,
    };
    walk.node(root)?;
    buffers.begin();
    let attributes = raw.i_file_acl_lo.get() != 0 || raw.i_file_acl_high.get() != 0;
    let clusters = tally.count.clusters.saturating_add(attributes.into());
    let features = geometry.features.ro_compat;
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let is_huge = features.contains(RoCompat::HUGE_FILE) && flags.contains(InodeFlags::HUGE_FILE);
    let stored = u64::from(raw.i_blocks_high.get()) << 32 | u64::from(raw.i_blocks_lo.get());
    Ok(!tally.is_wrong
        && tally.end <= blocks(state, raw)
        && blocks_field(geometry, clusters, is_huge) == stored)
}

/// What a tree holds if it has another depth than its root says.
struct Tally<'w, 's> {
    state: &'w State<'s>,
    count: ClusterCount,
    nodes: u32,
    /// The end of what was written, in logical blocks.
    end: u64,
    is_wrong: bool,
}

impl Visitor for Tally<'_, '_> {
    fn node(&mut self, _block: Pblk) -> bool {
        self.nodes += 1;
        self.count.add_node();
        self.nodes <= NODES_TALLIED
    }

    fn extent(&mut self, extent: Extent) {
        self.count.add(self.state, &extent);
        if !extent.unwritten {
            self.end = u64::from(extent.lblk.0).saturating_add(extent.len.into());
        }
    }

    fn problem(&mut self, _problem: MappingProblem, _spot: Spot) {
        self.is_wrong = true;
    }
}

/// Whether one of the entries of a root leads to what an entry of this depth does: blocks of a
/// file, or nodes down to them.
fn fits(
    state: &State<'_>,
    root: &[u8],
    count: usize,
    depth: u16,
    buffer: &mut [u8],
    loaded: &mut Option<Pblk>,
) -> Result<bool> {
    let geometry = state.geometry();
    for at in 1..=count {
        let entry = |node: &[u8], at: usize| {
            let place = EXTENT_ENTRY_LEN * at..EXTENT_ENTRY_LEN * (at + 1);
            node.get(place)
                .and_then(|entry| <[u8; 12]>::try_from(entry).ok())
        };
        let mut entry_of = entry(root, at);
        let mut level = depth;
        let mut nodes = 0;
        while let Some(bytes) = entry_of {
            if level == 0 {
                let extent = RawExtent::read_from_bytes(&bytes).map(|raw| raw.get());
                let can_be = |extent: Extent| {
                    extent.len != 0 && is_inside(geometry, extent.pblk, extent.len.into())
                };
                if extent.is_ok_and(can_be) {
                    return Ok(true);
                }
                break;
            }
            let Ok(index) = ExtentIdx::read_from_bytes(&bytes) else {
                break;
            };
            let block = index.leaf();
            if !is_inside(geometry, block, 1) || state.is_metadata(block) {
                break;
            }
            state.volume.overlay().read_block(block, buffer)?;
            *loaded = (nodes == 0 && at == 1).then_some(block);
            let head = checked_header(buffer);
            if head.is_none_or(|head| head.eh_entries.get() == 0) {
                break;
            }
            if level == 1 && nodes == 0 && head.is_some_and(|head| head.eh_depth.get() == 0) {
                // The root and its node agree: nothing more is read of a tree that is right.
                return Ok(true);
            }
            level -= 1;
            nodes += 1;
            entry_of = entry(buffer, 1);
        }
    }
    Ok(false)
}

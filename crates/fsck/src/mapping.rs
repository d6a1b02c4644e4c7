//! Block maps of inodes, whatever their form.
//!
//! There is one walk over a map, [`walk`], which is tolerant: it shows a [`Visitor`] what can be
//! used, in the order of logical blocks and without overlap, and names what cannot. The pass over
//! inodes claims what it is shown; [`read`] collects it; [`for_each_owned`] finds owners. All of
//! them see the same blocks, so what was claimed is what a repaired map will hold.
//!
//! A map that is wrong is not patched: [`store`] packs all that can be used into a new one.
//!
//! ```text
//! i_block ─┬─ header, entries ── node ── node …         walk ──▶ node(block)
//!          └─ numbers ── table ── table ── table             ├──▶ extent(lblk, pblk, len)
//!                                                            └──▶ problem(what, where)
//! ```
//!
//! Bounds: logical blocks ascend through the whole walk, a tree has at most [`DEPTH_READ`] levels,
//! no block is a node twice in one map, and nodes that another inode claimed before are walked
//! again only as often as [`crate::repeats`] allows: inodes that would need more lose their maps.

mod extents;
mod indirect;
mod store;

use rustc_hash::FxHashSet;
use uext4_ondisk::extent::Extent;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags, RawInode};
use uext4_ondisk::{Geometry, Ino, Lblk, Pblk};

use crate::error::Result;
use crate::problem::MappingProblem;
use crate::state::State;

pub use store::store;

/// Levels of a tree that are read; more than the format allows, as such trees were made.
pub const DEPTH_READ: u16 = 8;
/// The blocks of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMap {
    /// What can be used: in the order of logical blocks, without overlap, within the file system.
    pub extents: Vec<Extent>,
    /// The blocks that hold the map itself.
    pub nodes: Vec<Pblk>,
}

/// Where in a map a problem is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spot {
    /// The node or table; `None` for the inode.
    pub block: Option<Pblk>,
    /// The logical block.
    pub lblk: Option<Lblk>,
    /// The number found.
    pub found: u64,
    /// The number that should be there, or the limit.
    pub right: u64,
}

/// Sees what a walk finds.
pub trait Visitor {
    /// A block of the map itself, which is what it must be, and was not shown before. Whether to go
    /// on: otherwise the walk is over.
    fn node(&mut self, block: Pblk) -> bool;
    /// Blocks of the file; always behind those shown before.
    fn extent(&mut self, extent: Extent);
    /// What cannot be used, or is used although it is not right.
    fn problem(&mut self, problem: MappingProblem, spot: Spot);
}

/// Buffers of walks, one block for each level, to be used again.
#[derive(Debug, Default)]
pub struct Buffers {
    levels: Vec<Vec<u8>>,
    /// The nodes of the map that is being walked.
    nodes: FxHashSet<Pblk>,
}

impl Buffers {
    /// Takes a buffer of one block.
    fn take(&mut self, geometry: &Geometry) -> Vec<u8> {
        let mut buffer = self.levels.pop().unwrap_or_default();
        buffer.resize(geometry.block_size.len(), 0);
        buffer
    }

    /// Gives a buffer back.
    fn give(&mut self, buffer: Vec<u8>) {
        self.levels.push(buffer);
    }

    /// Begins a walk.
    fn begin(&mut self) {
        if !self.nodes.is_empty() {
            self.nodes.clear();
        }
    }

    /// Notes a node of the map. Whether it is the first time in this walk: a tree has no node
    /// twice, and one that names itself would be walked for ever.
    fn is_new(&mut self, block: Pblk) -> bool {
        self.nodes.insert(block)
    }
}

/// In which form an inode maps blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Not at all: inline data, a fast symbolic link, a device.
    None,
    /// An extent tree.
    Extents,
    /// Block numbers.
    Numbers,
}

/// The form in which an inode maps blocks, by its mode and flags.
pub fn form(geometry: &Geometry, ino: Ino, raw: &RawInode) -> Form {
    if ino == Ino::BAD_BLOCKS {
        // A list without a type or flags.
        return Form::Numbers;
    }
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let inline = geometry.features.incompat.contains(Incompat::INLINE_DATA)
        && flags.contains(InodeFlags::INLINE_DATA);
    let maps = match FileType::from_mode(raw.i_mode.get()) {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => !is_fast_symlink(raw),
        _ => false,
    };
    if !maps || inline {
        Form::None
    } else if flags.contains(InodeFlags::EXTENTS) {
        Form::Extents
    } else {
        Form::Numbers
    }
}

/// Whether a symbolic link's target is in `i_block`: then it is too short for a block.
pub fn is_fast_symlink(raw: &RawInode) -> bool {
    let size = join(raw.i_size_lo.get(), raw.i_size_high.get());
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    size > 0 && size < I_BLOCK_LEN as u64 && !flags.contains(InodeFlags::EXTENTS)
}

fn join(lo: u32, hi: u32) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

/// Walks the map of an inode and shows `visitor` all of it.
///
/// # Errors
/// Of the device and of the overlay.
pub fn walk<V: Visitor>(
    state: &State<'_>,
    ino: Ino,
    raw: &RawInode,
    buffers: &mut Buffers,
    visitor: &mut V,
) -> Result<()> {
    buffers.begin();
    match form(state.geometry(), ino, raw) {
        Form::None => Ok(()),
        _ if state.repeats.is_given_up(ino) => Ok(()),
        Form::Extents => extents::walk(state, ino, raw, buffers, visitor),
        Form::Numbers => indirect::walk(state, ino, raw, buffers, visitor),
    }
}

/// Reads the map of an inode: extents or indirect blocks. Inodes without a map (inline data, fast
/// symbolic links, devices) have an empty one.
///
/// # Errors
/// Of the device and of the overlay.
pub fn read(state: &State<'_>, ino: Ino, raw: &RawInode) -> Result<FileMap> {
    let mut map = FileMap::default();
    walk(state, ino, raw, &mut Buffers::default(), &mut map)?;
    Ok(map)
}

impl Visitor for FileMap {
    fn node(&mut self, block: Pblk) -> bool {
        self.nodes.push(block);
        true
    }

    fn extent(&mut self, extent: Extent) {
        self.extents.push(extent);
    }

    fn problem(&mut self, _problem: MappingProblem, _spot: Spot) {}
}

/// Blocks that an inode owns at one stretch.
#[derive(Clone, Copy, Debug)]
pub struct Owned {
    /// First block.
    pub start: Pblk,
    /// Number of blocks.
    pub len: u64,
    /// Whether they hold a part of the map.
    pub is_node: bool,
}

/// Shows `each` all blocks that the map of an inode owns: what can be used of it, nodes before
/// what they map. The block of extended attributes is not part of the map.
///
/// # Errors
/// Of the device and of the overlay.
pub fn for_each_owned(
    state: &State<'_>,
    ino: Ino,
    raw: &RawInode,
    buffers: &mut Buffers,
    each: impl FnMut(Owned),
) -> Result<()> {
    walk(state, ino, raw, buffers, &mut Owners(each))
}

struct Owners<F>(F);

impl<F: FnMut(Owned)> Visitor for Owners<F> {
    fn node(&mut self, start: Pblk) -> bool {
        (self.0)(Owned {
            start,
            len: 1,
            is_node: true,
        });
        true
    }

    fn extent(&mut self, extent: Extent) {
        (self.0)(Owned {
            start: extent.pblk,
            len: extent.len.into(),
            is_node: false,
        });
    }

    fn problem(&mut self, _problem: MappingProblem, _spot: Spot) {}
}

/// Whether blocks at this stretch may belong to a file at all.
pub fn is_inside(geometry: &Geometry, start: Pblk, len: u64) -> bool {
    start.0 > u64::from(geometry.first_data_block) && geometry.contains(start, len)
}

/// Counts clusters that an inode owns, so that neighbours in one cluster count once.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterCount {
    /// Clusters so far.
    pub clusters: u64,
    /// The cluster that the last extent ended in.
    last: Option<MappedCluster>,
}

/// A cluster of a file, and where it lies: numbers of clusters from block 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedCluster {
    pub logical: u64,
    pub physical: u64,
}

impl MappedCluster {
    /// That of the block `at` of an extent.
    pub fn of_block(geometry: &Geometry, extent: &Extent, at: u16) -> Self {
        let bits = geometry.cluster_bits;
        Self {
            logical: u64::from(extent.lblk.0).saturating_add(at.into()) >> bits,
            physical: extent.pblk.0.saturating_add(at.into()) >> bits,
        }
    }

    /// That of the last block of an extent.
    pub fn of_end(geometry: &Geometry, extent: &Extent) -> Self {
        Self::of_block(geometry, extent, extent.len.saturating_sub(1))
    }

    /// Whether the two are one logical cluster in two places.
    pub fn is_torn_from(self, other: Self) -> bool {
        self.logical == other.logical && self.physical != other.physical
    }
}

impl ClusterCount {
    /// Adds a block of the map, which has a cluster of its own.
    pub fn add_node(&mut self) {
        self.clusters = self.clusters.saturating_add(1);
    }

    /// Adds an extent; returns the clusters that those before it do not have, counted from the
    /// first data block.
    pub fn add(&mut self, state: &State<'_>, extent: &Extent) -> std::ops::Range<u64> {
        let mut clusters = state.used.of_blocks(extent.pblk, extent.len.into());
        let geometry = state.geometry();
        if geometry.cluster_bits != 0 {
            let first = MappedCluster::of_block(geometry, extent, 0);
            let last = MappedCluster::of_end(geometry, extent);
            if self.last.replace(last) == Some(first) {
                clusters.start = (clusters.start + 1).min(clusters.end);
            }
        }
        self.clusters = self
            .clusters
            .saturating_add(clusters.end.saturating_sub(clusters.start));
        clusters
    }
}

/// What `i_blocks` must say: the field's number, in units that the flag says.
pub fn blocks_field(geometry: &Geometry, clusters: u64, is_huge: bool) -> u64 {
    let blocks = clusters << geometry.cluster_bits;
    if is_huge {
        blocks
    } else {
        blocks << (geometry.block_size.log2() - 9)
    }
}

#[cfg(test)]
mod tests;

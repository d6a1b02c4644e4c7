//! Packing a map anew.

use std::borrow::Cow;

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{Extent, max_entries};
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags, NDIR_BLOCKS, RawInode};
use uext4_ondisk::num::{hi32, len32, lo16, lo32};
use uext4_ondisk::pack::PackError;
use uext4_ondisk::pack::block_map::{BlockMap, Tables};
use uext4_ondisk::pack::extent_tree::ExtentTree;
use uext4_ondisk::{Geometry, Ino, Pblk};

use super::{ClusterCount, FileMap, Form, blocks_field, form};
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::problem::MappingProblem;
use crate::report::Cause;
use crate::state::State;

/// Makes `extents` the map of an inode, in the form that its flags say: packs the nodes anew (into
/// those of `old` first, the rest is allocated or freed), and writes `i_block` and `i_blocks`.
/// `i_size` is the caller's business, and so are the data blocks' bits in `used`. Blocks of nodes
/// that another owner claims, too, are left to that one. Only once all owners are known: after
/// the pass over inodes.
///
/// # Errors
/// Of the device and of the overlay. Where no space is left for the map, what the inode can map
/// without is kept, and the rest is reported as lost.
pub fn store(
    state: &State<'_>,
    ino: Ino,
    old: &FileMap,
    extents: &[Extent],
    cause: Cause,
) -> Result<()> {
    let Some(bytes) = state.volume.read_inode(ino)? else {
        return Ok(());
    };
    let Ok(raw) = RawInode::parse(&bytes, ino) else {
        return Ok(());
    };
    let geometry = state.geometry();
    let seed = geometry
        .csum_seed
        .map(|seed| seed.inode(ino, raw.i_generation.get()));
    let goal = extents.first().map_or(Pblk(0), |extent| extent.pblk);
    let mut places = Places::new(state, old, goal, cause);
    let kind = form(geometry, ino, &raw);
    let packed = pack(&mut places, kind, seed, extents);
    let (i_block, extents) = match packed {
        Err(Failed::Other(Error::NoSpace { .. })) => {
            places.give_back();
            let few = without_nodes(kind, extents);
            let finding = Finding::new(MappingProblem::MapNoSpace, Place::inode(ino));
            state.report(finding.found(extents.len() as u64).right(few.len() as u64));
            free_others(state, extents, &few);
            (pack(&mut places, kind, seed, &few)?, Cow::Owned(few))
        }
        packed => (packed?, Cow::Borrowed(extents)),
    };
    let Some(i_block) = i_block else {
        return Ok(());
    };
    let mut count = ClusterCount::default();
    for extent in extents.iter() {
        count.add(state, extent);
    }
    (0..places.taken).for_each(|_| count.add_node());
    places.finish()?;
    let xattr_block = raw.i_file_acl_lo.get() != 0 || raw.i_file_acl_high.get() != 0;
    let clusters = count.clusters.saturating_add(xattr_block.into());
    state.volume.update_raw_inode(ino, cause, |raw| {
        raw.i_block = i_block;
        set_blocks(geometry, raw, clusters);
    })
}

/// Packs a map; `None` if the inode maps no blocks.
fn pack(
    places: &mut Places<'_, '_>,
    form: Form,
    seed: Option<CsumSeed>,
    extents: &[Extent],
) -> Result<Option<[u8; I_BLOCK_LEN]>, Failed> {
    let block_size = places.state.geometry().block_size;
    let cause = places.cause;
    match form {
        Form::None => Ok(None),
        Form::Extents => {
            let mut root = [0; I_BLOCK_LEN];
            let mut block = vec![0; block_size.len()];
            let tree = ExtentTree::new(block_size, seed);
            tree.pack::<Failed>(&mut root, extents, |node| {
                block.fill(0);
                node.write(&mut block);
                let at = places.take()?;
                let overlay = places.state.volume.overlay();
                overlay.replace(at, cause, &block)?;
                Ok(at)
            })?;
            Ok(Some(root))
        }
        Form::Numbers => {
            let mut map = BlockMap::new(block_size);
            for extent in extents {
                let len = extent.len.into();
                map.put(extent.lblk.0.into(), extent.pblk, len, places)?;
            }
            Ok(Some(map.finish(places)))
        }
    }
}

/// What of a map needs no blocks of its own.
fn without_nodes(form: Form, extents: &[Extent]) -> Vec<Extent> {
    let direct = len32(NDIR_BLOCKS);
    let few = extents.iter().take(max_entries(I_BLOCK_LEN).into());
    match form {
        Form::Numbers => extents
            .iter()
            .filter(|extent| extent.lblk.0 < direct)
            .map(|extent| Extent {
                len: extent.len.min(lo16(direct - extent.lblk.0)),
                ..*extent
            })
            .collect(),
        _ => few.copied().collect(),
    }
}

/// Frees the blocks of extents that are not among the few that are kept, unless another owner
/// claims them. In clusters of several blocks they stay until the bitmaps are compared again.
fn free_others(state: &State<'_>, extents: &[Extent], few: &[Extent]) {
    if state.geometry().cluster_bits != 0 {
        return;
    }
    let end = few
        .last()
        .map_or(0, |last| last.lblk.0.saturating_add(last.len.into()));
    for extent in extents {
        let skip = end.saturating_sub(extent.lblk.0).min(extent.len.into());
        let start = Pblk(extent.pblk.0.saturating_add(skip.into()));
        let len = u64::from(extent.len).saturating_sub(skip.into());
        state.free(state.used.of_blocks(start, len));
    }
}

/// Stores how many clusters an inode owns.
pub fn set_blocks(geometry: &Geometry, raw: &mut RawInode, clusters: u64) {
    let huge = InodeFlags::HUGE_FILE.bits();
    let allowed = geometry.features.ro_compat.contains(RoCompat::HUGE_FILE);
    let mut flags = raw.i_flags.get() & !huge;
    let mut field = blocks_field(geometry, clusters, false);
    // 48 bits hold the sectors of all but the largest files.
    if field >> 48 != 0 && allowed {
        flags |= huge;
        field = blocks_field(geometry, clusters, true);
    }
    raw.i_flags = flags.into();
    raw.i_blocks_lo = lo32(field).into();
    if allowed {
        raw.i_blocks_high = lo16(hi32(field)).into();
    }
}

/// Why a map cannot be stored.
enum Failed {
    Pack(PackError),
    Other(Error),
}

impl From<PackError> for Failed {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Other(error) => error,
            Failed::Pack(error) => Self::Refused {
                what: format!("a block map cannot be packed: {error}"),
            },
        }
    }
}

/// The blocks that nodes go to.
struct Places<'p, 's> {
    state: &'p State<'s>,
    old: &'p [Pblk],
    next: usize,
    goal: Pblk,
    cause: Cause,
    taken: u64,
    /// Blocks that were allocated.
    allocated: Vec<Pblk>,
    failed: Option<Error>,
}

impl<'p, 's> Places<'p, 's> {
    fn new(state: &'p State<'s>, old: &'p FileMap, goal: Pblk, cause: Cause) -> Self {
        Self {
            state,
            old: &old.nodes,
            next: 0,
            goal,
            cause,
            taken: 0,
            allocated: Vec::new(),
            failed: None,
        }
    }

    /// The next old block that no other owner claims.
    fn next_old(&mut self) -> Option<Pblk> {
        while let Some(&block) = self.old.get(self.next) {
            self.next += 1;
            let shared = &self.state.shared;
            if !shared.contains_any(shared.of_blocks(block, 1)) {
                return Some(block);
            }
        }
        None
    }

    fn take(&mut self) -> Result<Pblk> {
        self.taken = self.taken.saturating_add(1);
        match self.next_old() {
            Some(block) => Ok(block),
            None => {
                let block = self.state.allocate(self.goal, 1, "a block map")?;
                // The next one is looked for behind it, not from the start again.
                self.goal = block;
                self.allocated.push(block);
                Ok(block)
            }
        }
    }

    /// Frees what was allocated, and begins again.
    fn give_back(&mut self) {
        for block in self.allocated.drain(..) {
            self.state.used.remove(self.state.used.of_blocks(block, 1));
        }
        (self.next, self.taken) = (0, 0);
    }

    /// Frees the old blocks that are left.
    fn finish(mut self) -> Result<()> {
        while let Some(block) = self.next_old() {
            self.state.used.remove(self.state.used.of_blocks(block, 1));
        }
        self.failed.map_or(Ok(()), Err)
    }
}

impl Tables for Places<'_, '_> {
    type Error = Failed;

    fn take(&mut self) -> Result<Pblk, Failed> {
        let block = Places::take(self)?;
        if u32::try_from(block.0).is_err() {
            self.state.used.remove(self.state.used.of_blocks(block, 1));
            return Err(Failed::Pack(PackError::BlockNumber { block }));
        }
        Ok(block)
    }

    fn put(&mut self, at: Pblk, table: &[u8]) {
        let overlay = self.state.volume.overlay();
        if let Err(error) = overlay.replace(at, self.cause, table) {
            self.failed.get_or_insert(error);
        }
    }
}

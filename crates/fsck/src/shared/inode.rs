//! One inode that owns shared clusters: which of them it keeps, and where the others go.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use uext4_ondisk::extent::{EXT_UNWRITTEN_MAX_LEN, Extent};
use uext4_ondisk::inode::{FileType, RawInode};
use uext4_ondisk::num::{lo16, lo32};
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};

use super::claimants::{Proof, Proved};
use super::keepers::Keepers;
use crate::clusters::ClusterSet;
use crate::directory_list::Run;
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::mapping;
use crate::options::SharedBlocks;
use crate::problem::MappingProblem;
use crate::report::Cause;
use crate::state::State;
use crate::xattr;

/// Most clusters that are copied to one stretch.
const PIECE_MAX: u64 = 512;

/// The part of the free clusters that copies leave for maps and directories, and the most of it.
const KEPT_PART: u64 = 8;
const KEPT_MAX: u64 = 1 << 16;

/// Gives clusters to their owners, one inode after the other.
pub struct Assign<'a, 's> {
    state: &'a State<'s>,
    /// Shared clusters that an owner keeps.
    taken: ClusterSet,
    keepers: Keepers,
    proofs: BTreeMap<u64, Proof>,
    /// Blocks of attributes by cluster, and where those went that were moved.
    attributes: FxHashMap<u64, Pblk>,
    moved: FxHashMap<Pblk, Pblk>,
    /// Blocks of attributes that keep their place.
    kept: FxHashSet<Pblk>,
    goal: Pblk,
    /// Clusters that are looked for at one stretch: fewer once there are no longer ones; 0 when
    /// no space is left.
    piece: u64,
    /// Clusters that copies may still take: the remedies to come need some, too.
    free: u64,
}

/// What becomes of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Keep,
    Copy { other: Ino },
    Hole { problem: MappingProblem, other: Ino },
}

/// Where the blocks of a cluster are now: for extents that begin in the cluster in which the one
/// before ended.
#[derive(Clone, Copy, Debug)]
struct Last {
    logical: u64,
    cluster: u64,
    /// The first block of the cluster that holds them; `None` for a hole.
    placed: Option<Pblk>,
}

/// The map of the inode as it will be.
struct Output {
    ino: Ino,
    extents: Vec<Extent>,
    cause: Option<Cause>,
    is_directory: bool,
    last: Option<Last>,
}

impl<'a, 's> Assign<'a, 's> {
    pub fn new(state: &'a State<'s>, proofs: BTreeMap<u64, Proof>) -> Self {
        let free = state.used.clusters().saturating_sub(used(state));
        Self {
            state,
            taken: ClusterSet::new(state.geometry(), &state.scratch),
            keepers: Keepers::default(),
            proofs,
            attributes: FxHashMap::default(),
            moved: FxHashMap::default(),
            kept: FxHashSet::default(),
            goal: Pblk(0),
            piece: PIECE_MAX,
            free: free - (free / KEPT_PART).min(KEPT_MAX),
        }
    }

    /// Gives an inode what it may keep and copies of the rest. Returns the new blocks of a
    /// directory that has changed.
    pub fn inode(&mut self, ino: Ino) -> Result<Option<Vec<Run>>> {
        let bytes = self.state.volume.read_inode(ino)?;
        let Some(raw) = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok()) else {
            return Ok(None);
        };
        self.attributes(ino, &raw)?;
        let map = mapping::read(self.state, ino, &raw)?;
        let shared = &self.state.shared;
        let nodes = map.nodes.iter().map(|&node| shared.of_blocks(node, 1));
        if ino == Ino::RESIZE {
            // Its map is where descriptors will be: it stays.
            for clusters in nodes {
                self.keep(clusters, ino);
            }
            return Ok(None);
        }
        let nodes = nodes.filter(|clusters| shared.contains_any(clusters.clone()));
        let nodes = nodes.count();
        let kind = self.state.inodes.get(ino).kind;
        let mut output = Output {
            ino,
            extents: Vec::with_capacity(map.extents.len()),
            cause: None,
            is_directory: kind == Kind::File(FileType::Directory),
            last: None,
        };
        if nodes > 0 {
            let finding = Finding::new(MappingProblem::SharedNode, Place::inode(ino));
            output.cause = Some(self.state.report(finding.found(nodes as u64)));
        }
        for extent in &map.extents {
            self.extent(extent, &mut output)?;
        }
        let Some(cause) = output.cause else {
            return Ok(None);
        };
        mapping::store(self.state, ino, &map, &output.extents, cause)?;
        let runs = output.extents.iter().map(|extent| Run {
            lblk: extent.lblk,
            pblk: extent.pblk,
            len: extent.len.into(),
        });
        Ok(output.is_directory.then(|| runs.collect()))
    }

    /// Frees the clusters that no owner keeps.
    pub fn free_unowned(&self) {
        let State {
            shared,
            metadata,
            used,
            ..
        } = self.state;
        let end = shared.clusters();
        let mut at = 0;
        while at < end {
            let mut len = shared.stretch(at, end).max(1);
            if shared.contains(at) {
                len = len.min(self.taken.stretch(at, end).max(1));
                len = len.min(metadata.stretch(at, end).max(1));
                if !self.taken.contains(at) && !metadata.contains(at) {
                    used.remove(at..at + len);
                }
            }
            at += len;
        }
    }

    fn keep(&mut self, clusters: Range<u64>, ino: Ino) {
        self.taken.add(clusters.clone(), |_| ());
        self.keepers.put(clusters, ino);
    }

    /// The block of attributes keeps its place, unless the file system itself or, in the rest of
    /// the cluster, another inode is there.
    fn attributes(&mut self, ino: Ino, raw: &RawInode) -> Result<()> {
        let state = self.state;
        let block = xattr::of_inode(state, raw);
        let clusters = state.shared.of_blocks(block, 1);
        let report = |new: Pblk| {
            let finding = Finding::new(
                MappingProblem::SharedAttributes,
                Place::inode(ino).block(block),
            );
            let cause = state.report(finding.right(new.0));
            xattr::set_of_inode(state, ino, new, cause)?;
            Ok::<_, Error>(cause)
        };
        if let Some(&new) = self.moved.get(&block) {
            report(new)?;
            return Ok(());
        }
        let known = state
            .xattr_blocks
            .get(block)
            .is_some_and(|known| known.is_usable);
        if block == Pblk(0) || !known || !state.shared.contains_any(clusters.clone()) {
            return Ok(());
        }
        let first = *self.attributes.entry(clusters.start).or_insert(block);
        let is_kept = self.kept.contains(&block);
        let is_taken = self.taken.contains(clusters.start) || first != block;
        if !state.metadata.contains(clusters.start) && (is_kept || !is_taken) {
            if self.kept.insert(block) {
                self.keep(clusters, ino);
            }
            return Ok(());
        }
        let new = match state.allocate(block, 1, "a block of attributes") {
            Ok(new) => new,
            Err(Error::NoSpace { .. }) => {
                let place = Place::inode(ino).block(block);
                let finding = Finding::new(MappingProblem::SharedAttributesNoSpace, place);
                let cause = state.report(finding);
                state.xattr_blocks.uncount(block);
                return xattr::set_of_inode(state, ino, Pblk(0), cause);
            }
            Err(error) => return Err(error),
        };
        let cause = report(new)?;
        xattr::copy(state, block, new, cause)?;
        state.xattr_blocks.move_to(block, new);
        self.moved.insert(block, new);
        Ok(())
    }

    /// Goes through an extent, as many clusters at a time as fare alike.
    fn extent(&mut self, extent: &Extent, output: &mut Output) -> Result<()> {
        let shared = &self.state.shared;
        let clusters = shared.of_blocks(extent.pblk, extent.len.into());
        let bits = self.state.geometry().cluster_bits;
        let logical = u64::from(extent.lblk.0) >> bits;
        let mut at = clusters.start;
        // The cluster in which the last extent ended has been decided on.
        if let Some(last) = output.last
            && (last.logical, last.cluster) == (logical, at)
        {
            output.push_cluster(self.state, extent, at..at + 1, last.placed);
            at += 1;
        }
        while at < clusters.end {
            let Ahead { decision, len } = self.decide(at, clusters.end, output);
            let range = at..at + len;
            match decision {
                Decision::Keep => {
                    if shared.contains(at) {
                        self.keep(range.clone(), output.ino);
                    }
                    let placed = Some(shared.first_block(at));
                    output.push_cluster(self.state, extent, range.clone(), placed);
                }
                Decision::Hole { problem, other } => {
                    output.report(self.state, extent, range.clone(), problem, other);
                    output.push_cluster(self.state, extent, range.clone(), None);
                }
                Decision::Copy { other } => self.copy(extent, range.clone(), other, output)?,
            }
            at += len;
        }
        Ok(())
    }

    /// What becomes of a cluster, and of how many after it.
    fn decide(&self, at: u64, end: u64, output: &Output) -> Ahead {
        let State {
            shared, metadata, ..
        } = self.state;
        let ino = output.ino;
        let mut len = shared.stretch(at, end).max(1);
        let ahead = |decision, len| Ahead { decision, len };
        if !shared.contains(at) {
            return ahead(Decision::Keep, len);
        }
        let hole = |problem, other| Decision::Hole { problem, other };
        len = len.min(metadata.stretch(at, end).max(1));
        if metadata.contains(at) {
            return ahead(hole(MappingProblem::SharedMetadata, ino), len);
        }
        if let Some(proof) = self.proofs.get(&at) {
            let is_own = proof.ino == ino && proof.what == Proved::Directory;
            if !is_own {
                return ahead(hole(MappingProblem::SharedProved, proof.ino), 1);
            }
            len = 1;
        } else if let Some((&next, _)) = self.proofs.range(at..).next() {
            len = len.min(next - at);
        }
        len = len.min(self.taken.stretch(at, end).max(1));
        let other = self.keepers.of(at);
        if let Some(end) = self.keepers.end_of(at) {
            len = len.min(end - at);
        }
        match (self.state.options.shared_blocks, other) {
            // A directory must keep its names, whatever becomes of data.
            (SharedBlocks::Zero, other) if !output.is_directory => {
                let problem = MappingProblem::SharedGiven;
                ahead(hole(problem, other.unwrap_or(ino)), len)
            }
            (_, None) => ahead(Decision::Keep, len),
            (SharedBlocks::KeepOldest, Some(other)) => {
                ahead(hole(MappingProblem::SharedGiven, other), len)
            }
            // A bad block has no contents.
            (_, Some(other)) if ino == Ino::BAD_BLOCKS => {
                ahead(hole(MappingProblem::SharedGiven, other), len)
            }
            (_, Some(other)) => ahead(Decision::Copy { other }, len),
        }
    }

    /// Copies clusters of an extent to free ones, as many at a time as there are at one stretch.
    fn copy(
        &mut self,
        extent: &Extent,
        range: Range<u64>,
        other: Ino,
        output: &mut Output,
    ) -> Result<()> {
        let bits = self.state.geometry().cluster_bits;
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(self.piece);
            if len == 0 {
                let rest = at..range.end;
                let problem = MappingProblem::SharedNoSpace;
                output.report(self.state, extent, rest.clone(), problem, other);
                output.push_cluster(self.state, extent, rest, None);
                return Ok(());
            }
            let found = match len <= self.free {
                true => self
                    .state
                    .allocate(self.goal, len << bits, "copies of shared blocks"),
                false => Err(Error::NoSpace {
                    what: "copies of shared blocks",
                }),
            };
            let new = match found {
                Ok(new) => {
                    self.free -= len;
                    new
                }
                Err(Error::NoSpace { .. }) => {
                    self.piece = len / 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let part = at..at + len;
            let problem = MappingProblem::Shared;
            let cause = output.report(self.state, extent, part.clone(), problem, other);
            self.goal = Pblk(new.0.saturating_add(len << bits));
            // What another extent wrote may lie in the same cluster, and it goes to the same copy.
            if !extent.unwritten || bits != 0 {
                self.copy_blocks(part.start, new, len << bits, cause)?;
            }
            output.push_cluster(self.state, extent, part, Some(new));
            at += len;
        }
        Ok(())
    }

    fn copy_blocks(&self, cluster: u64, new: Pblk, blocks: u64, cause: Cause) -> Result<()> {
        let geometry = self.state.geometry();
        let old = self.state.shared.first_block(cluster);
        // The last cluster may end behind the file system.
        let left = geometry.blocks_count.saturating_sub(old.0.max(new.0));
        let overlay = self.state.volume.overlay();
        overlay.copy(old, new, blocks.min(left), cause)
    }
}

/// How many clusters are in use.
fn used(state: &State<'_>) -> u64 {
    let groups = (0..state.geometry().groups_count.get()).map(GroupNr);
    let words = groups.flat_map(|group| state.used.words(group));
    words.map(|word| u64::from(word.count_ones())).sum()
}

struct Ahead {
    decision: Decision,
    len: u64,
}

impl Output {
    /// The blocks of an extent that lie in clusters.
    fn blocks(state: &State<'_>, extent: &Extent, clusters: &Range<u64>) -> Range<u64> {
        let end = extent.pblk.0.saturating_add(extent.len.into());
        let from = state
            .shared
            .first_block(clusters.start)
            .0
            .max(extent.pblk.0);
        let to = state.shared.first_block(clusters.end).0.min(end);
        from..to.max(from)
    }

    fn report(
        &mut self,
        state: &State<'_>,
        extent: &Extent,
        clusters: Range<u64>,
        problem: MappingProblem,
        other: Ino,
    ) -> Cause {
        let blocks = Self::blocks(state, extent, &clusters);
        let skip = lo32(blocks.start.saturating_sub(extent.pblk.0));
        let place = Place::inode(self.ino)
            .lblk(Lblk(extent.lblk.0.saturating_add(skip)))
            .block(Pblk(blocks.start));
        let finding = Finding::new(problem, place).found(blocks.end - blocks.start);
        let cause = state.report(finding.right(other.0));
        *self.cause.get_or_insert(cause)
    }

    /// Adds the blocks of an extent that lie in clusters, which are now at `placed`.
    fn push_cluster(
        &mut self,
        state: &State<'_>,
        extent: &Extent,
        clusters: Range<u64>,
        placed: Option<Pblk>,
    ) {
        let blocks = Self::blocks(state, extent, &clusters);
        let bits = state.geometry().cluster_bits;
        let skip = blocks.start.saturating_sub(extent.pblk.0);
        let lblk = Lblk(extent.lblk.0.saturating_add(lo32(skip)));
        let count = blocks.end - blocks.start;
        let first = state.shared.first_block(clusters.start);
        let end = u64::from(lblk.0) + count;
        self.last = Some(Last {
            logical: end.saturating_sub(1) >> bits,
            cluster: clusters.end.saturating_sub(1),
            placed: placed.map(|placed| {
                let clusters = clusters
                    .end
                    .saturating_sub(clusters.start)
                    .saturating_sub(1);
                Pblk(placed.0.saturating_add(clusters << bits))
            }),
        });
        let Some(placed) = placed.filter(|_| count > 0) else {
            return;
        };
        let pblk = Pblk(placed.0 + (blocks.start - first.0));
        if let Some(before) = self.extents.last_mut() {
            let len = u64::from(before.len);
            let joins = before.pblk.0 + len == pblk.0
                && u64::from(before.lblk.0) + len == u64::from(lblk.0)
                && before.unwritten == extent.unwritten
                && len + count <= u64::from(EXT_UNWRITTEN_MAX_LEN);
            if joins {
                before.len += lo16(lo32(count));
                return;
            }
        }
        self.extents.push(Extent {
            lblk,
            len: lo16(lo32(count)),
            pblk,
            unwritten: extent.unwritten,
        });
    }
}

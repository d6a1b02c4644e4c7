//! Which inodes own shared clusters, and what can be proved about the contents.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::{FileType, RawInode};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino, Pblk, dir_entry, extent};

use crate::error::Result;
use crate::inode_map::Kind;
use crate::mapping::{self, Buffers};
use crate::options::SharedBlocks;
use crate::report::{Pass, Progress};
use crate::state::State;
use crate::{threads, xattr};

/// Most blocks whose contents are looked at for a proof, of all inodes together.
const LOOKED_AT_MAX: usize = 1 << 16;
/// Most bytes of an inode table that are read at a time.
const PIECE_MAX: usize = 1 << 20;

/// An inode that owns shared clusters. The order is that in which they choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant {
    is_of_files: bool,
    changed: u32,
    pub ino: Ino,
}

/// Whose metadata a cluster holds for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proof {
    pub ino: Ino,
    pub what: Proved,
}

/// What a cluster holds for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proved {
    Directory,
    Node,
    Attributes,
}

/// What the walk found.
#[derive(Debug, Default)]
pub struct Found {
    pub claimants: Vec<Claimant>,
    /// By cluster.
    pub proofs: BTreeMap<u64, Proof>,
}

struct Worker<'w> {
    /// How many blocks were looked at by all threads.
    looked: &'w AtomicUsize,
    found: Found,
    buffers: Buffers,
    table: Vec<u8>,
    block: Vec<u8>,
}

/// Walks the maps of all inodes in use.
pub fn find(state: &State<'_>) -> Result<Found> {
    let groups = u64::from(state.geometry().groups_count.get());
    let looked = AtomicUsize::new(0);
    let workers = threads::for_each(
        state.options.threads,
        groups,
        1,
        || Worker::new(&looked),
        |worker, group| {
            if group.is_multiple_of(groups.div_ceil(256)) {
                state.findings.progress(Progress {
                    pass: Pass::Shared,
                    done: group,
                    total: groups,
                })?;
            }
            worker.group(state, GroupNr(u32::try_from(group).unwrap_or(u32::MAX)))
        },
    )?;
    let mut found = Found::default();
    for worker in workers {
        found.claimants.extend(worker.found.claimants);
        for (cluster, proof) in worker.found.proofs {
            found.prove(cluster, proof);
        }
    }
    found.claimants.sort_unstable();
    Ok(found)
}

impl Found {
    /// Of several proofs the least counts, whatever thread found it first.
    fn prove(&mut self, cluster: u64, proof: Proof) {
        let known = self.proofs.entry(cluster).or_insert(proof);
        *known = proof.min(*known);
    }
}

impl<'w> Worker<'w> {
    fn new(looked: &'w AtomicUsize) -> Self {
        Self {
            looked,
            found: Found::default(),
            buffers: Buffers::default(),
            table: Vec::new(),
            block: Vec::new(),
        }
    }

    fn group(&mut self, state: &State<'_>, group: GroupNr) -> Result<()> {
        let mut table = std::mem::take(&mut self.table);
        let size = usize::from(state.geometry().inode_size);
        // The inodes that `table` holds: those from this one on.
        let mut first = Ino(0);
        table.clear();
        for (ino, known) in state.inodes.in_group(group) {
            if known.kind == Kind::Unused {
                continue;
            }
            let within = |first: Ino, table: &[u8]| {
                let at = index(ino.0.checked_sub(first.0)?).checked_mul(size)?;
                Some(at).filter(|_| first.0 != 0 && at < table.len())
            };
            let at = match within(first, &table) {
                Some(at) => at,
                None => {
                    first = ino;
                    self.read(state, group, ino, &mut table)?;
                    0
                }
            };
            if let Some(bytes) = table.get(at..at.saturating_add(size))
                && let Ok(raw) = RawInode::parse(bytes, ino)
            {
                self.inode(state, ino, &raw, known.kind)?;
            }
        }
        self.table = table;
        Ok(())
    }

    /// Reads a piece of a group's table from an inode on.
    fn read(&self, state: &State<'_>, group: GroupNr, ino: Ino, table: &mut Vec<u8>) -> Result<()> {
        table.clear();
        let geometry = state.geometry();
        let Some((block, offset)) = state.volume.inode_place(ino) else {
            return Ok(());
        };
        let after = group
            .0
            .saturating_add(1)
            .saturating_mul(geometry.inodes_per_group.get());
        let left = index(after.saturating_sub(ino.0).saturating_add(1));
        let len = left.saturating_mul(geometry.inode_size.into());
        table.resize(len.min(PIECE_MAX), 0);
        let start = (block.0 << geometry.block_size.log2()) + offset as u64;
        state.volume.overlay().read_at(start, table)
    }

    fn inode(&mut self, state: &State<'_>, ino: Ino, raw: &RawInode, kind: Kind) -> Result<()> {
        let is_directory = kind == Kind::File(FileType::Directory);
        let shared = &state.shared;
        let has_checksums = state.geometry().csum_seed.is_some();
        let mut is_claimant = false;
        let mut look = Vec::new();
        mapping::for_each_owned(state, ino, raw, &mut self.buffers, |owned| {
            let clusters = shared.of_blocks(owned.start, owned.len);
            if !shared.contains_any(clusters) {
                return;
            }
            is_claimant = true;
            // Without checksums nothing proves whose a block is.
            if has_checksums && (owned.is_node || is_directory) {
                let what = match owned.is_node {
                    true => Proved::Node,
                    false => Proved::Directory,
                };
                let blocks = (owned.start.0..owned.start.0.saturating_add(owned.len)).map(Pblk);
                let looked = self.looked.load(Ordering::Relaxed);
                let room = LOOKED_AT_MAX.saturating_sub(looked.saturating_add(look.len()));
                look.extend(blocks.take(room).map(|block| (block, what)));
            }
        })?;
        self.looked.fetch_add(look.len(), Ordering::Relaxed);
        for (block, what) in look {
            self.look(state, ino, raw, block, what)?;
        }
        let attributes = xattr::of_inode(state, raw);
        let cluster = shared.of_blocks(attributes, 1);
        let has_feature = state.geometry().features.compat.contains(Compat::EXT_ATTR);
        if attributes != Pblk(0) && has_feature && shared.contains_any(cluster.clone()) {
            is_claimant = true;
            // The pass over inodes has looked at it.
            let known = state.xattr_blocks.get(attributes);
            if known.is_some_and(|known| known.is_usable) {
                let what = Proved::Attributes;
                self.found.prove(cluster.start, Proof { ino, what });
            }
        }
        if is_claimant {
            let by_age = state.options.shared_blocks == SharedBlocks::KeepOldest;
            self.found.claimants.push(Claimant {
                is_of_files: kind != Kind::Reserved,
                changed: if by_age { raw.i_ctime.get() } else { 0 },
                ino,
            });
        }
        Ok(())
    }

    /// Whether a block of an inode's metadata carries the checksum that this inode makes.
    fn look(
        &mut self,
        state: &State<'_>,
        ino: Ino,
        raw: &RawInode,
        block: Pblk,
        what: Proved,
    ) -> Result<()> {
        let cluster = state.shared.of_blocks(block, 1).start;
        let Some(seed) = state.geometry().csum_seed else {
            return Ok(());
        };
        if !state.shared.contains(cluster) {
            return Ok(());
        }
        let seed = seed.inode(ino, raw.i_generation.get());
        self.block.resize(state.geometry().block_size.len(), 0);
        state.volume.overlay().read_block(block, &mut self.block)?;
        let agrees = match what {
            Proved::Node => extent::verify_tail(&self.block, block, seed).is_ok(),
            _ => dir_entry::verify_tail(&self.block, block, seed).is_ok(),
        };
        if agrees {
            self.found.prove(cluster, Proof { ino, what });
        }
        Ok(())
    }
}

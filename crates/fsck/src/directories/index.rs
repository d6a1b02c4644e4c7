//! The index of a directory: an htree whose root is block 0.
//!
//! The nodes are read before the blocks of names, level by level, so that each block has a role
//! when it comes: a node, or a leaf with the hashes that belong to it. A name is hashed once, and
//! the hash is also the key by which equal names are found.
//!
//! ```text
//! leaf i:  low(i) ≤ hash < low(i + 1), where bit 0 of a low hash says that it goes on from leaf i
//! ```
//! Whatever is wrong with an index, the remedy is one from the names. Only a wrong checksum with
//! nothing else wrong is computed anew.

use std::hash::Hasher;

use rustc_hash::FxHasher;
use uext4_ondisk::dir_block::DirFormat;
use uext4_ondisk::hash::{CharSign, HASH_SIPHASH, HashVersion, hash_name};
use uext4_ondisk::htree::{
    self, DX_NODE_ENTRIES_OFFSET, DX_ROOT_INFO_LEN, DX_ROOT_INFO_OFFSET, DxNode, DxRootInfo,
    DxShape,
};
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::num::{index as to_index, len64};
use uext4_ondisk::{Damage, Lblk, Pblk};
use zerocopy::FromBytes;

use super::record::header;
use super::{At, Dir};
use crate::directory_list::Run;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::DirectoryProblem;
use crate::report::Cause;
use crate::state::State;

/// What a block of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A block of names.
    Names,
    /// A block of names with hashes from `low` up to but not including `below`.
    Leaf { low: u32, below: u32 },
    /// The root of the index.
    Root,
    /// A node below the root.
    Node,
}

/// The hash of a name, and its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// `None` if the index orders names by something that cannot be computed here.
    pub hash: Option<u32>,
    /// Equal for equal names, and for few others.
    pub key: u64,
}

/// The index of one directory.
#[derive(Debug)]
pub(super) struct Index {
    /// Of each logical block; empty without an index that can be used.
    roles: Vec<Option<Role>>,
    version: Option<HashVersion>,
    seed: [u32; 4],
    /// The hashes are stored behind the names.
    is_stored: bool,
    /// The inode says that there is an index.
    is_there: bool,
    /// A problem was found: the directory is written anew.
    broken: Option<Cause>,
    /// Nodes with wrong checksums.
    sums: Vec<At>,
    /// The last block of which a hash was reported: one of each says enough.
    reported: Option<Lblk>,
}

/// A node to be read, and the hashes that belong below it.
#[derive(Clone, Copy, Debug)]
struct Below {
    lblk: Lblk,
    low: u32,
    below: u32,
}

impl Index {
    /// That of a directory without one.
    pub(super) fn none() -> Self {
        Self {
            roles: Vec::new(),
            version: None,
            seed: [0; 4],
            is_stored: false,
            is_there: false,
            broken: None,
            sums: Vec::new(),
            reported: None,
        }
    }

    /// Reads the index of a directory, if it has one.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub(super) fn read(state: &State<'_>, dir: &Dir, runs: &[Run]) -> Result<Self> {
        let mut index = Self {
            is_there: dir.has(InodeFlags::INDEX),
            ..Self::none()
        };
        if !index.is_there {
            return Ok(index);
        }
        let mapped: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
        if dir.blocks <= mapped && dir.blocks != 0 {
            index.walk(state, dir, runs)?;
        }
        // A directory with holes is written anew in any case.
        if index.broken.is_some() {
            index.roles.clear();
        }
        Ok(index)
    }

    /// Whether the inode says that there is an index.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    fn walk(&mut self, state: &State<'_>, dir: &Dir, runs: &[Run]) -> Result<()> {
        let mut bytes = vec![0; state.geometry().block_size.len()];
        let blocks = usize::try_from(dir.blocks).unwrap_or(usize::MAX);
        self.roles.resize(blocks, None);
        let Some(at) = find(runs, Lblk(0)) else {
            return Ok(());
        };
        state.volume.overlay().read_block(at.block(), &mut bytes)?;
        let Some(levels) = self.root(state, dir, at, &bytes) else {
            return Ok(());
        };
        let mut level = vec![Below {
            lblk: Lblk(0),
            low: 0,
            below: u32::MAX,
        }];
        for depth in 0..=levels {
            let mut next = Vec::new();
            for node in level {
                let Some(at) = find(runs, node.lblk) else {
                    continue;
                };
                if depth > 0 {
                    state.volume.overlay().read_block(at.block(), &mut bytes)?;
                }
                self.node(state, dir, at, &bytes, node, &mut next);
            }
            level = next;
            for child in &level {
                let role = match depth == levels {
                    true => Role::Leaf {
                        low: child.low,
                        below: child.below,
                    },
                    false => Role::Node,
                };
                self.assign(state, dir, *child, role);
            }
            // Nothing can be said of what hangs below a node that is none.
            if self.broken.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Checks the head of the root, and returns the levels between it and the leaves.
    fn root(&mut self, state: &State<'_>, dir: &Dir, at: At, bytes: &[u8]) -> Option<u8> {
        let place = dir.place(at);
        let info = bytes
            .get(DX_ROOT_INFO_OFFSET..)
            .and_then(|rest| DxRootInfo::read_from_prefix(rest).ok());
        let info = info.filter(|(info, _)| {
            htree::is_root(bytes)
                && info.reserved_zero.get() == 0
                && usize::from(info.info_length) == DX_ROOT_INFO_LEN
                && info.unused_flags & 1 == 0
        });
        let Some((info, _)) = info else {
            self.bad(state, dir, place, DirectoryProblem::IndexRoot);
            return None;
        };
        let superblock = state.volume.superblock();
        let sign: CharSign = superblock.hash_sign();
        self.is_stored = dir.has_stored_hashes();
        self.version = HashVersion::from_disk(info.hash_version, sign);
        self.seed = superblock.hash_seed();
        let is_known = match info.hash_version {
            HASH_SIPHASH => self.is_stored,
            _ => self.version.is_some() && info.hash_version <= 2,
        };
        if !is_known {
            let finding = Finding::new(DirectoryProblem::IndexHashVersion, place);
            self.report(state, dir, finding.found(info.hash_version));
            return None;
        }
        let max = DirFormat::new(state.geometry()).levels_max();
        if info.indirect_levels > max {
            let finding = Finding::new(DirectoryProblem::IndexDepth, place);
            let finding = finding.found(info.indirect_levels).right(max);
            self.report(state, dir, finding);
            return None;
        }
        if let Some(role) = self.roles.first_mut() {
            *role = Some(Role::Root);
        }
        Some(info.indirect_levels)
    }

    /// Checks the entries of a node, and adds what is below it to `next`.
    fn node(
        &mut self,
        state: &State<'_>,
        dir: &Dir,
        at: At,
        bytes: &[u8],
        range: Below,
        next: &mut Vec<Below>,
    ) {
        let offset = htree::entries_offset(at.lblk);
        let shape = DxShape {
            offset,
            summed: dir.seed.is_some(),
        };
        let place = dir.place(at);
        let is_node = header(bytes, 0).is_some_and(|h| h.ino == 0 && h.rec_len == bytes.len());
        if offset == DX_NODE_ENTRIES_OFFSET && !is_node {
            return self.bad(state, dir, place, DirectoryProblem::IndexDepth);
        }
        let node = match DxNode::head(bytes, shape, at.lblk) {
            Ok(node) => node,
            Err(damage) => return self.bad_head(state, dir, place, shape, bytes.len(), &damage),
        };
        let count = node.entries.len();
        let last = node.hash(count.saturating_sub(1));
        let in_order = (1..count).all(|i| i == 1 || node.hash(i - 1) <= node.hash(i));
        if !in_order || (count > 1 && node.hash(1) < range.low) || last > range.below {
            self.bad(state, dir, place.clone(), DirectoryProblem::IndexOrder);
        }
        for i in 0..count {
            next.push(Below {
                lblk: node.block(i),
                low: if i == 0 { range.low } else { node.hash(i) },
                below: if i + 1 < count {
                    node.hash(i + 1)
                } else {
                    range.below
                },
            });
        }
        if let Some(seed) = dir.seed {
            let sum = htree::verify_tail(bytes, offset, at.lblk, at.block(), seed);
            if matches!(
                sum,
                Err(Damage::BlockChecksum { .. } | Damage::NoChecksum { .. })
            ) {
                self.sums.push(at);
            }
        }
    }

    fn bad_head(
        &mut self,
        state: &State<'_>,
        dir: &Dir,
        place: Place,
        shape: DxShape,
        block_len: usize,
        damage: &Damage,
    ) {
        let (limit, count) = match damage {
            Damage::HtreeNode { limit, count, .. } => (*limit, *count),
            _ => (0, 0),
        };
        let right = shape.limit(block_len);
        let finding = match usize::from(limit) == right {
            false => Finding::new(DirectoryProblem::IndexLimit, place)
                .found(limit)
                .right(len64(right)),
            true => Finding::new(DirectoryProblem::IndexCount, place)
                .found(count)
                .right(limit),
        };
        self.report(state, dir, finding);
    }

    /// Gives the block below a node its role.
    fn assign(&mut self, state: &State<'_>, dir: &Dir, child: Below, role: Role) {
        let place = Place::inode(dir.ino).lblk(child.lblk);
        match self.roles.get_mut(to_index(child.lblk.0)) {
            Some(none @ None) if child.lblk.0 != 0 => *none = Some(role),
            Some(Some(_)) if child.lblk.0 != 0 => {
                self.bad(state, dir, place, DirectoryProblem::IndexTwice);
            }
            _ => {
                let place = Place::inode(dir.ino);
                let finding = Finding::new(DirectoryProblem::IndexBlock, place);
                self.report(state, dir, finding.found(child.lblk.0));
            }
        }
    }

    /// What the block is, as far as it can be said.
    pub(super) fn role(&mut self, state: &State<'_>, dir: &Dir, at: At, bytes: &[u8]) -> Role {
        if !self.is_there {
            return Role::Names;
        }
        if let Some(known) = self.roles.get(to_index(at.lblk.0)) {
            if let Some(role) = known {
                return *role;
            }
            let place = dir.place(at);
            self.bad(state, dir, place, DirectoryProblem::IndexNotReferenced);
        }
        // Without an index that can be used, what a block looks like must do.
        let is_empty = header(bytes, 0).is_some_and(|h| h.ino == 0 && h.rec_len == bytes.len());
        match at.lblk.0 {
            0 if htree::is_root(bytes) => Role::Root,
            0 => Role::Names,
            _ if is_empty => Role::Node,
            _ => Role::Names,
        }
    }

    /// The hash of a name, and its key. `suffix` is what stands behind it in its record.
    #[inline]
    pub(super) fn key(&self, dir: &Dir, name: &[u8], suffix: &[u8]) -> Key {
        let mut lower = [0; 256];
        let name = match dir.has(InodeFlags::CASEFOLD) && !dir.has(InodeFlags::ENCRYPT) {
            true if name.is_ascii() => match lower.get_mut(..name.len()) {
                Some(folded) => {
                    folded.copy_from_slice(name);
                    folded.make_ascii_lowercase();
                    &*folded
                }
                None => name,
            },
            // Other letters have cases, too, that are not known here.
            true => return unordered(name),
            false => name,
        };
        if self.is_stored {
            let at = (4 - name.len() % 4) % 4;
            let stored = suffix.get(at..).and_then(|rest| rest.first_chunk::<4>());
            return Key {
                hash: stored.map(|hash| u32::from_le_bytes(*hash) & !1),
                ..unordered(name)
            };
        }
        let Some(version) = self.version else {
            return unordered(name);
        };
        let hash = hash_name(version, self.seed, name);
        Key {
            hash: Some(hash.hash),
            key: u64::from(hash.hash) << 32 | u64::from(hash.minor_hash),
        }
    }

    /// Checks that a name is in the leaf where a look-up by its hash ends.
    #[inline]
    pub(super) fn check(&mut self, state: &State<'_>, dir: &Dir, role: Role, at: At, hash: u32) {
        let Role::Leaf { low, below } = role else {
            return;
        };
        if (hash >= low & !1 && hash < below) || self.reported == Some(at.lblk) {
            return;
        }
        self.reported = Some(at.lblk);
        if hash < low & !1 {
            let finding = Finding::new(DirectoryProblem::IndexMinHash, dir.place(at));
            self.report(state, dir, finding.found(hash).right(low));
        } else {
            let finding = Finding::new(DirectoryProblem::IndexMaxHash, dir.place(at));
            self.report(state, dir, finding.found(hash).right(below));
        }
    }

    /// After the last block: checksums, if nothing else is wrong.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub(super) fn finish(&self, state: &State<'_>, dir: &Dir) -> Result<()> {
        for at in &self.sums {
            let finding = Finding::new(DirectoryProblem::IndexChecksum, dir.place(*at));
            let cause = state.report(finding);
            let (true, Some(seed)) = (self.broken.is_none(), dir.seed) else {
                state.tree.rebuild(dir.ino, cause);
                continue;
            };
            let offset = htree::entries_offset(at.lblk);
            state.volume.overlay().update(at.block(), cause, |bytes| {
                htree::update_tail(bytes, offset, seed);
            })?;
        }
        Ok(())
    }

    #[cold]
    fn bad(&mut self, state: &State<'_>, dir: &Dir, place: Place, problem: DirectoryProblem) {
        self.report(state, dir, Finding::new(problem, place));
    }

    #[cold]
    fn report(&mut self, state: &State<'_>, dir: &Dir, finding: Finding) {
        let cause = state.report(finding);
        state.tree.rebuild(dir.ino, cause);
        self.broken.get_or_insert(cause);
    }
}

impl At {
    /// The block; that of a region is block 0, which no directory has.
    pub(super) fn block(self) -> Pblk {
        self.pblk.unwrap_or(Pblk(0))
    }
}

/// The key of a name that no index orders.
#[inline]
fn unordered(name: &[u8]) -> Key {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    Key {
        hash: None,
        key: hasher.finish(),
    }
}

/// Where a logical block of the runs, which are in order, lies.
fn find(runs: &[Run], lblk: Lblk) -> Option<At> {
    let behind = runs.partition_point(|run| run.lblk <= lblk);
    let run = runs.get(behind.checked_sub(1)?)?;
    let skip = lblk.0 - run.lblk.0;
    (skip < run.len).then(|| At {
        lblk,
        pblk: Some(Pblk(run.pblk.0.saturating_add(skip.into()))),
    })
}

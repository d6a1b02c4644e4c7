//! Maps of deleted inodes: whether one is left, and the blocks that hold it.

use std::collections::HashSet;

use uext4::{FileType, InodeFlags};
use uext4_fsck::Cause;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{ExtentNode, verify_tail};
use uext4_ondisk::indirect::{LEVELS, number_at, numbers};
use uext4_ondisk::inode::{I_BLOCK_LEN, NDIR_BLOCKS, RawInode};
use uext4_ondisk::{Ino, Pblk};

use super::{Search, failed};
use crate::failure::Failure;

/// A block of a map, by what is below it.
#[derive(Clone, Copy)]
enum Node {
    /// Extents, at this depth.
    Extents(u16),
    /// Numbers of blocks, at this level.
    Numbers(usize),
}

/// Whether an inode still has what it needs to be the file that it was: a size and a map, data
/// within it, or its kind alone.
pub fn has_any(bytes: &[u8], ino: Ino) -> bool {
    let Ok(raw) = RawInode::parse(bytes, ino) else {
        return false;
    };
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    match FileType::from_mode(raw.i_mode.get()) {
        Some(FileType::Regular | FileType::Symlink) => {
            let has_size = raw.i_size_lo.get() != 0 || raw.i_size_high.get() != 0;
            let is_mapped = match flags.contains(InodeFlags::EXTENTS) {
                true => match ExtentNode::parse(&raw.i_block, None, None) {
                    Ok(ExtentNode::Leaf(extents)) => !extents.is_empty(),
                    Ok(ExtentNode::Index { entries, .. }) => !entries.is_empty(),
                    Err(_) => false,
                },
                false => raw.i_block != [0; I_BLOCK_LEN],
            };
            has_size && (is_mapped || flags.contains(InodeFlags::INLINE_DATA))
        }
        kind => kind.is_some(),
    }
}

impl Search<'_> {
    /// The blocks that hold the map of an inode with this record, which go to the overlay as they
    /// were before the deletion; `None` if one is not what it must be.
    pub(super) fn nodes(
        &mut self,
        ino: Ino,
        record: &[u8],
        deleted_age: Option<u32>,
    ) -> Result<Option<Vec<Pblk>>, Failure> {
        let Ok(raw) = RawInode::parse(record, ino) else {
            return Ok(None);
        };
        let seed = self.fs.geometry().csum_seed;
        let seed = seed.map(|seed| seed.inode(ino, raw.i_generation.get()));
        let Some(mut open) = roots(&raw) else {
            return Ok(None);
        };
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        while let Some((block, node)) = open.pop() {
            let Some(left) = self.budget.checked_sub(1) else {
                return Ok(None);
            };
            self.budget = left;
            if !seen.insert(block) || !self.fs.geometry().contains(block, 1) {
                return Ok(None);
            }
            let Some(below) = self.node(block, node, seed, deleted_age)? else {
                return Ok(None);
            };
            found.push(block);
            open.extend(below);
        }
        Ok(Some(found))
    }

    /// What is below a block of a map, which is taken from the log if that has it.
    fn node(
        &self,
        block: Pblk,
        node: Node,
        seed: Option<CsumSeed>,
        deleted_age: Option<u32>,
    ) -> Result<Option<Vec<(Pblk, Node)>>, Failure> {
        for copy in self.copies.of(block) {
            let is_before = deleted_age.is_none_or(|deleted| copy.age > deleted);
            if is_before
                && let Some(bytes) = self.copies.content(copy)
                && let Some(below) = below(&bytes, block, node, seed)
            {
                let put = self.overlay.replace(block, Cause(0), &bytes);
                put.map_err(failed)?;
                return Ok(Some(below));
            }
        }
        let mut bytes = vec![0; self.fs.geometry().block_size.len()];
        match self.overlay.read_block(block, &mut bytes) {
            Ok(()) => Ok(below(&bytes, block, node, seed)),
            Err(_) => Ok(None),
        }
    }
}

/// The blocks right below an inode that hold its map.
fn roots(raw: &RawInode) -> Option<Vec<(Pblk, Node)>> {
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    let size = u64::from(raw.i_size_lo.get());
    match FileType::from_mode(raw.i_mode.get()) {
        _ if flags.contains(InodeFlags::INLINE_DATA) => Some(Vec::new()),
        Some(FileType::Regular | FileType::Symlink) if flags.contains(InodeFlags::EXTENTS) => {
            below_extents(&raw.i_block, None, None)
        }
        Some(FileType::Symlink) if size < I_BLOCK_LEN as u64 => Some(Vec::new()),
        Some(FileType::Regular | FileType::Symlink) => {
            let table = |level| number_at(&raw.i_block, NDIR_BLOCKS + level - 1);
            let tables = (1..=LEVELS).map(|level| (table(level), level));
            Some(
                tables
                    .filter(|&(number, _)| number != 0)
                    .map(|(number, level)| (Pblk(number.into()), Node::Numbers(level)))
                    .collect(),
            )
        }
        _ => Some(Vec::new()),
    }
}

/// The blocks of the map right below one; `None` if that is not what it must be.
fn below(
    bytes: &[u8],
    block: Pblk,
    node: Node,
    seed: Option<CsumSeed>,
) -> Option<Vec<(Pblk, Node)>> {
    match node {
        Node::Extents(depth) => {
            if let Some(seed) = seed {
                verify_tail(bytes, block, seed).ok()?;
            }
            below_extents(bytes, Some(block), Some(depth))
        }
        Node::Numbers(1) => Some(Vec::new()),
        Node::Numbers(level) => {
            let numbers = numbers(bytes).iter().map(|number| number.get());
            let tables = numbers.filter(|&number| number != 0);
            let table = |number: u32| (Pblk(number.into()), Node::Numbers(level.saturating_sub(1)));
            Some(tables.map(table).collect())
        }
    }
}

fn below_extents(bytes: &[u8], at: Option<Pblk>, depth: Option<u16>) -> Option<Vec<(Pblk, Node)>> {
    match ExtentNode::parse(bytes, at, depth).ok()? {
        ExtentNode::Leaf(_) => Some(Vec::new()),
        ExtentNode::Index { depth, entries } => {
            let below = Node::Extents(depth.checked_sub(1)?);
            Some(entries.iter().map(|entry| (entry.leaf(), below)).collect())
        }
    }
}

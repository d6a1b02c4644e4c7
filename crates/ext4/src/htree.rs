//! Look-up in hashed directories: root, up to two levels of inner nodes, leaf.
//!
//! Names whose hash is equal may go on in the next leaf; its entry then carries the hash with bit 0
//! set. Left out: changing an htree.

use std::sync::Arc;

use uext4_ondisk::features::Incompat;
use uext4_ondisk::hash::{HashVersion, hash_name};
use uext4_ondisk::htree::{
    DX_NODE_ENTRIES_OFFSET, DX_ROOT_ENTRIES_OFFSET, DX_ROOT_INFO_LEN, DX_ROOT_INFO_OFFSET, DxNode,
    DxRootInfo,
};
use uext4_ondisk::{Damage, Ino, Lblk};
use zerocopy::FromBytes;

use crate::dir::{DirCursor, records};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::sbi::Sbi;

/// Leaves that names of one hash may fill; no honest directory comes near.
const SAME_HASH_LEAVES_MAX: u32 = 4096;

/// A node on the way down and the entry taken in it.
struct Step {
    lblk: Lblk,
    data: Arc<[u8]>,
    taken: usize,
}

impl Step {
    /// The root is block 0 and starts its entries elsewhere than inner nodes.
    fn node(&self, sbi: &Sbi) -> Result<DxNode<'_>> {
        let offset = match self.lblk.0 {
            0 => DX_ROOT_ENTRIES_OFFSET,
            _ => DX_NODE_ENTRIES_OFFSET,
        };
        let tail = sbi.geometry().csum_seed.is_some();
        Ok(DxNode::parse(&self.data, offset, tail, self.lblk)?)
    }
}

/// The head of an htree's root.
///
/// # Errors
/// [`Damage::Directory`] if it is not one, damage of block 0, device errors.
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
    let large = sbi
        .geometry()
        .features
        .incompat
        .contains(Incompat::LARGEDIR);
    if info.reserved_zero.get() != 0 || usize::from(info.info_length) != DX_ROOT_INFO_LEN {
        return Err(bad("block 0 is no htree root"));
    }
    if info.unused_flags & 1 != 0 {
        return Err(bad("unknown flags in the htree root"));
    }
    if info.indirect_levels > if large { 2 } else { 1 } {
        return Err(bad("the htree is too deep"));
    }
    Ok(info)
}

/// Looks a name up by its hash. `None` if it is not there, or in place of an answer
/// [`Error::Unsupported`] if the hash is not one of names as stored.
///
/// # Errors
/// Damage on the way, device errors.
pub(crate) fn lookup(sbi: &Sbi, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
    let mut cursor = DirCursor::new(sbi, dir)?;
    let root = cursor.block_at(sbi, dir, Lblk(0))?;
    let info = parse_root_info(sbi, dir, &root.data)?;
    let superblock = sbi.superblock();
    let version =
        HashVersion::from_disk(info.hash_version, superblock.hash_signed()).ok_or_else(|| {
            Error::Unsupported {
                what: format!("directory hash {}", info.hash_version),
            }
        })?;
    let hash = hash_name(version, superblock.hash_seed(), name).hash;
    let mut path = vec![Step {
        lblk: Lblk(0),
        data: root.data,
        taken: 0,
    }];
    let levels = usize::from(info.indirect_levels);
    descend(sbi, dir, &mut cursor, &mut path, levels, Some(hash))?;
    for _ in 0..SAME_HASH_LEAVES_MAX {
        let Some(last) = path.last() else { break };
        let leaf = last.node(sbi)?.block(last.taken);
        if let Some(ino) = search_leaf(sbi, dir, &mut cursor, leaf, name)? {
            return Ok(Some(ino));
        }
        if !next_leaf(sbi, dir, &mut cursor, &mut path, levels, hash)? {
            return Ok(None);
        }
    }
    Err(Error::Corrupt(Damage::Directory {
        ino: dir.ino,
        why: "too many leaves of one hash",
    }))
}

/// Takes an entry in the last node of `path` (that of `hash`, else the one taken already) and goes
/// on down to `levels` nodes below the root, leftmost where there is no hash.
fn descend(
    sbi: &Sbi,
    dir: &Inode,
    cursor: &mut DirCursor,
    path: &mut Vec<Step>,
    levels: usize,
    hash: Option<u32>,
) -> Result<()> {
    loop {
        let depth = path.len();
        let Some(last) = path.last_mut() else {
            return Ok(());
        };
        if let Some(hash) = hash {
            last.taken = last.node(sbi)?.find(hash);
        }
        if depth > levels {
            return Ok(());
        }
        let lblk = last.node(sbi)?.block(last.taken);
        if lblk.0 == 0 {
            return Err(Error::Corrupt(Damage::Directory {
                ino: dir.ino,
                why: "an htree node refers back to the root",
            }));
        }
        let data = cursor.block_at(sbi, dir, lblk)?.data;
        path.push(Step {
            lblk,
            data,
            taken: 0,
        });
    }
}

/// Goes to the next leaf if names of `hash` may continue there.
fn next_leaf(
    sbi: &Sbi,
    dir: &Inode,
    cursor: &mut DirCursor,
    path: &mut Vec<Step>,
    levels: usize,
    hash: u32,
) -> Result<bool> {
    while let Some(last) = path.last_mut() {
        let node = last.node(sbi)?;
        let next = last.taken + 1;
        if next < node.entries.len() {
            if node.hash(next) & !1 != hash {
                return Ok(false);
            }
            last.taken = next;
            descend(sbi, dir, cursor, path, levels, None)?;
            return Ok(true);
        }
        path.pop();
    }
    Ok(false)
}

fn search_leaf(
    sbi: &Sbi,
    dir: &Inode,
    cursor: &mut DirCursor,
    leaf: Lblk,
    name: &[u8],
) -> Result<Option<Ino>> {
    let block = cursor.block_at(sbi, dir, leaf)?;
    for entry in records(sbi, dir, &block) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry.ino));
        }
    }
    Ok(None)
}

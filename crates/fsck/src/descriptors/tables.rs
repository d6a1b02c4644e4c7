//! Inode tables, known by what they hold.

use uext4_ondisk::inode::{FileType, RawInode, inode_checksum, stored_checksum};
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::weight::{begins_directory, first_block, weigh};
use crate::error::Result;
use crate::journal;
use crate::volume::{Volume, generation};

/// Most blocks that are read in the search for tables.
pub(super) const SEARCHED_MAX: u64 = 1 << 20;
/// Bytes that are read at a time in the search.
const PIECE: u64 = 1 << 20;

/// Whether no more speaks against a table at a place than for it.
pub fn holds_table(volume: &Volume, group: GroupNr, at: Pblk) -> Result<bool> {
    Ok(begins_well(volume, group, at)? || weigh(volume, group, at)?.holds())
}

/// Whether the first inodes at a place are ones: known types or zeroes, and in group 0 the root.
/// That is most tables; if not, all of a table is heard.
fn begins_well(volume: &Volume, group: GroupNr, at: Pblk) -> Result<bool> {
    let geometry = volume.geometry();
    let mut bytes = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(at, &mut bytes)?;
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let inodes = bytes.chunks_exact(geometry.inode_size.into());
    for (ino, inode) in (first.saturating_add(1)..).map(Ino).zip(inodes) {
        if inode.iter().all(|&byte| byte == 0) && ino != Ino::ROOT {
            continue;
        }
        let Ok(inode) = RawInode::parse(inode, ino) else {
            return Ok(false);
        };
        let file_type = FileType::from_mode(inode.i_mode.get());
        let right = match ino {
            Ino::ROOT => file_type == Some(FileType::Directory),
            _ => file_type.is_some() || ino.0 < geometry.first_ino,
        };
        if !right {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks for the table of a group that nothing names any more, in the blocks that its flexible
/// group may have and the journal has not. `None` if none is there for certain. `budget` is how
/// many blocks may be read.
pub(super) fn search(
    volume: &Volume,
    group: GroupNr,
    budget: &mut u64,
    may_be: impl Fn(Pblk) -> bool,
) -> Result<Option<Pblk>> {
    let geometry = volume.geometry();
    let flex = geometry.log_groups_per_flex.min(31);
    let first = GroupNr(group.0 >> flex << flex);
    let start = geometry.group_start(first).0;
    let len = u64::from(geometry.blocks_per_group.get()) << flex;
    let end = start.saturating_add(len).min(geometry.blocks_count);
    let mut at = start;
    let mut bytes = vec![0; usize::try_from(PIECE).unwrap_or(0)];
    let journal = journal::runs(volume)?;
    let is_copy = |block: Pblk| journal.iter().any(|run| run.contains(&block.0));
    while at < end && *budget > 0 {
        let blocks = (PIECE >> geometry.block_size.log2())
            .min(end - at)
            .min(*budget);
        let piece = usize::try_from(blocks << geometry.block_size.log2()).unwrap_or(0);
        let piece = bytes.get_mut(..piece).unwrap_or_default();
        volume
            .overlay()
            .read_at(at << geometry.block_size.log2(), piece)?;
        for (block, bytes) in (at..)
            .map(Pblk)
            .zip(piece.chunks_exact(geometry.block_size.len()))
        {
            if begins_table(volume, group, bytes)? && may_be(block) && !is_copy(block) {
                return Ok(Some(block));
            }
        }
        at += blocks;
        *budget -= blocks;
    }
    Ok(None)
}

/// Whether a block is the first one of a group's inode table for certain: most of its inodes have
/// the checksums of these numbers; without checksums, the root is there and leads to itself.
fn begins_table(volume: &Volume, group: GroupNr, bytes: &[u8]) -> Result<bool> {
    let geometry = volume.geometry();
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let inodes = bytes.chunks_exact(geometry.inode_size.into());
    let inodes = (first.saturating_add(1)..).map(Ino).zip(inodes);
    let Some(seed) = geometry.csum_seed else {
        return match group {
            GroupNr(0) => holds_root(volume, bytes),
            _ => Ok(false),
        };
    };
    let in_use = inodes.filter(|(_, inode)| inode.iter().any(|&byte| byte != 0));
    let (right, wrong): (Vec<_>, Vec<_>) = in_use.partition(|(ino, inode)| {
        stored_checksum(inode) == inode_checksum(inode, seed, *ino, generation(inode))
    });
    Ok(right.len() > wrong.len())
}

fn holds_root(volume: &Volume, bytes: &[u8]) -> Result<bool> {
    let geometry = volume.geometry();
    let size = usize::from(geometry.inode_size);
    let root = bytes.get(size..size * 2);
    let root = root.and_then(|root| RawInode::parse(root, Ino::ROOT).ok());
    let is_root = |root: &RawInode| {
        FileType::from_mode(root.i_mode.get()) == Some(FileType::Directory)
            && root.i_links_count.get() > 1
    };
    let Some(root) = root.filter(is_root) else {
        return Ok(false);
    };
    let Some(block) = first_block(geometry, &root) else {
        return Ok(false);
    };
    let mut names = vec![0; geometry.block_size.len()];
    volume.overlay().read_block(block, &mut names)?;
    Ok(begins_directory(&names) == Some(Ino::ROOT))
}

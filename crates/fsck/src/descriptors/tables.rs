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
/// Blocks of a table that the search knows it by: the first ones may be damaged.
const KNOWN_BY: u32 = 8;

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
            if is_copy(block) {
                continue;
            }
            if let Some(table) = table_of(volume, group, block, bytes)?
                && table.0 >= start
                && may_be(table)
            {
                return Ok(Some(table));
            }
        }
        at += blocks;
        *budget -= blocks;
    }
    Ok(None)
}

/// Where the inode table of a group begins that a block belongs to for certain: most of its inodes
/// have the checksums of the numbers that they would have there. Without checksums a table is known
/// by its first block, if the root is there and leads to itself.
fn table_of(volume: &Volume, group: GroupNr, at: Pblk, bytes: &[u8]) -> Result<Option<Pblk>> {
    let geometry = volume.geometry();
    let Some(seed) = geometry.csum_seed else {
        let is_first = group.0 == 0 && holds_root(volume, bytes)?;
        return Ok(is_first.then_some(at));
    };
    let first = group.0.saturating_mul(geometry.inodes_per_group.get());
    let per_block = geometry.block_size.bytes() / u32::from(geometry.inode_size).max(1);
    let blocks = geometry.itable_blocks().min(KNOWN_BY);
    let is_table = |skip: u32| {
        let first = first.saturating_add(skip.saturating_mul(per_block));
        let inodes = bytes.chunks_exact(geometry.inode_size.into());
        let inodes = (first.saturating_add(1)..).map(Ino).zip(inodes);
        let in_use = inodes.filter(|(_, inode)| inode.iter().any(|&byte| byte != 0));
        let more_right = in_use.fold(0_i64, |more_right, (ino, inode)| {
            let sum = inode_checksum(inode, seed, ino, generation(inode));
            more_right + if stored_checksum(inode) == sum { 1 } else { -1 }
        });
        more_right > 0
    };
    let found = (0..blocks).find(|&skip| is_table(skip));
    Ok(found
        .and_then(|skip| at.0.checked_sub(skip.into()))
        .map(Pblk))
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

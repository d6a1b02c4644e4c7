//! Extent trees of files whose extents are all known: built from the leaves up, every node full.

use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::extent::{
    EXT4_MAX_EXTENT_DEPTH, Extent, max_entries, max_entries_with_tail, put_index, put_leaf,
    update_tail,
};
use uext4_ondisk::inode::I_BLOCK_LEN;
use uext4_ondisk::{Lblk, Pblk};

use crate::base::error::{Error, Result};
use crate::journal::sbi::Sbi;

/// Entries of the root in the inode.
const ROOT_ENTRIES: usize = max_entries(I_BLOCK_LEN) as usize;

/// Blocks that the tree of `extents` extents takes beside the inode; `None` if it would be too deep.
pub(super) fn blocks(extents: u64, block_len: usize) -> Option<u64> {
    let per_node = u64::from(max_entries_with_tail(block_len));
    let (mut blocks, mut entries, mut depth) = (0, extents, 0);
    while entries > ROOT_ENTRIES as u64 {
        entries = entries.div_ceil(per_node);
        blocks += entries;
        depth += 1;
    }
    (depth <= EXT4_MAX_EXTENT_DEPTH).then_some(blocks)
}

/// Builds the tree of `extents` (ascending, not overlapping). `seed` is the inode's, `None` without
/// checksums; `take` gives a new block for each node that is not the root, [`blocks`] times.
pub(super) fn build(
    sbi: &Sbi,
    extents: &[Extent],
    seed: Option<CsumSeed>,
    mut take: impl FnMut() -> Result<Pblk>,
) -> Result<[u8; I_BLOCK_LEN]> {
    let max = max_entries_with_tail(sbi.block_len());
    let mut root = [0; I_BLOCK_LEN];
    if extents.len() <= ROOT_ENTRIES {
        put_leaf(&mut root, ROOT_ENTRIES as u16, extents);
        return Ok(root);
    }
    let mut node = |put: &dyn Fn(&mut [u8])| -> Result<Pblk> {
        let block = take()?;
        sbi.cache().getblk_zeroed(block).modify(|bytes| {
            put(bytes);
            if let Some(seed) = seed {
                update_tail(bytes, seed);
            }
        });
        Ok(block)
    };
    let mut children: Vec<(Lblk, Pblk)> = Vec::new();
    for part in extents.chunks(max.into()) {
        children.push((part[0].lblk, node(&|bytes| put_leaf(bytes, max, part))?));
    }
    let mut depth = 1;
    while children.len() > ROOT_ENTRIES {
        let mut parents = Vec::new();
        for part in children.chunks(max.into()) {
            parents.push((
                part[0].0,
                node(&|bytes| put_index(bytes, max, depth, part))?,
            ));
        }
        children = parents;
        depth += 1;
    }
    if depth > EXT4_MAX_EXTENT_DEPTH {
        return Err(Error::FileTooBig);
    }
    put_index(&mut root, ROOT_ENTRIES as u16, depth, &children);
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_level_by_level() {
        assert_eq!(blocks(0, 1024), Some(0));
        assert_eq!(blocks(4, 1024), Some(0));
        assert_eq!(blocks(5, 1024), Some(1));
        assert_eq!(blocks(84 * 4, 1024), Some(4));
        assert_eq!(blocks(84 * 4 + 1, 1024), Some(6));
        assert_eq!(blocks(84 * 84 * 4 + 1, 1024), Some(84 * 4 + 1 + 5 + 1));
        assert_eq!(blocks(u64::MAX, 1024), None);
    }
}

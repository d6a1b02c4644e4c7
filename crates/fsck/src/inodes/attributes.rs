//! What extended attributes add to the blocks of an inode: the block that holds them, claimed by
//! the first of its owners, and the clusters of values in inodes of their own.

use uext4_ondisk::Pblk;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::GOOD_OLD_INODE_SIZE;
use uext4_ondisk::xattr::{
    EXT4_XATTR_MAGIC, RawXattrEntry, XATTR_BLOCK_HEADER_LEN, XATTR_IBODY_HEADER_LEN, entry_len,
};
use zerocopy::FromBytes;

use super::subject::Subject;
use super::worker::Worker;
use crate::error::Result;
use crate::state::State;

impl Worker<'_, '_> {
    /// Claims the block of attributes; returns how many clusters they add to `i_blocks`.
    pub fn attributes(&self, subject: &Subject<'_>) -> Result<u64> {
        let block = subject.xattr_block();
        let has_block = block.0 != 0;
        if has_block {
            self.claim_xattr_block(block);
        }
        let geometry = self.state.geometry();
        if !geometry.features.incompat.contains(Incompat::EA_INODE) {
            return Ok(has_block.into());
        }
        let bits = geometry.block_size.log2() + u32::from(geometry.cluster_bits);
        let body = GOOD_OLD_INODE_SIZE + usize::from(subject.raw.i_extra_isize.get());
        let mut clusters = u64::from(has_block);
        if let Some(bytes) = subject.bytes.get(body..)
            && bytes.starts_with(&EXT4_XATTR_MAGIC.to_le_bytes())
        {
            clusters += value_clusters(bytes, XATTR_IBODY_HEADER_LEN, bits);
        }
        if has_block {
            let mut bytes = vec![0; geometry.block_size.len()];
            self.state.volume.overlay().read_block(block, &mut bytes)?;
            if bytes.starts_with(&EXT4_XATTR_MAGIC.to_le_bytes()) {
                clusters += value_clusters(&bytes, XATTR_BLOCK_HEADER_LEN, bits);
            }
        }
        Ok(clusters)
    }

    fn claim_xattr_block(&self, block: Pblk) {
        let State { used, shared, .. } = self.state;
        let mut blocks = self.state.xattr_blocks.lock();
        let count = blocks.entry(block).or_insert(0);
        *count = count.saturating_add(1);
        if *count == 1 {
            used.add(used.of_blocks(block, 1), |again| {
                shared.add(again, |_| ());
            });
        }
    }
}

/// Clusters, of 2 to the power of `bits` bytes, of the values in inodes of their own.
fn value_clusters(bytes: &[u8], first: usize, bits: u32) -> u64 {
    let mut at = first;
    let mut clusters = 0;
    while let Some(rest) = bytes.get(at..)
        && let Ok((entry, _)) = RawXattrEntry::read_from_prefix(rest)
        && rest[..4] != [0; 4]
    {
        if entry.e_value_inum.get() != 0 {
            clusters += u64::from(entry.e_value_size.get()).div_ceil(1 << bits);
        }
        at += entry_len(entry.e_name_len.into());
    }
    clusters
}

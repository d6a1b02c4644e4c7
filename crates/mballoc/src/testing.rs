//! What tests of several modules need.

use uext4_ondisk::Geometry;
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};

/// Blocks of a group of [`geometry`].
pub(crate) const PER_GROUP: u32 = 256;

/// The shape of a file system whose groups have so many blocks in all; they begin at block 1.
pub(crate) fn geometry(blocks: u32) -> Geometry {
    let groups = blocks.div_ceil(PER_GROUP);
    let mut sb = SuperBlock::zeroed();
    sb.s_magic = EXT4_SUPER_MAGIC.into();
    sb.s_rev_level = 1.into();
    sb.s_first_ino = 11.into();
    sb.s_inode_size = 128.into();
    sb.s_first_data_block = 1.into();
    sb.s_blocks_count_lo = (1 + blocks).into();
    sb.s_blocks_per_group = PER_GROUP.into();
    sb.s_clusters_per_group = PER_GROUP.into();
    sb.s_inodes_per_group = 16.into();
    sb.s_inodes_count = (16 * groups).into();
    Geometry::new(&sb).unwrap()
}

//! The blocks of metadata whose places the superblock and the descriptors say: what no file owns.

use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::{Geometry, GroupNr, Pblk};

/// What owns blocks of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetadataOwner {
    /// A group's copy of the superblock and descriptors, with what is reserved behind them; of
    /// group 0 also the boot block, if its clusters have it.
    Head(GroupNr),
    /// A group's block bitmap.
    BlockBitmap(GroupNr),
    /// A group's inode bitmap.
    InodeBitmap(GroupNr),
    /// A group's inode table.
    InodeTable(GroupNr),
}

impl MetadataOwner {
    /// The group.
    pub fn group(self) -> GroupNr {
        match self {
            Self::Head(group)
            | Self::BlockBitmap(group)
            | Self::InodeBitmap(group)
            | Self::InodeTable(group) => group,
        }
    }

    /// Whether it is a bitmap, which is worked out anew wherever it is.
    pub fn is_bitmap(self) -> bool {
        matches!(self, Self::BlockBitmap(_) | Self::InodeBitmap(_))
    }
}

/// Calls `each` with all metadata of fixed places, group by group: the owner, the first block and
/// how many. `groups` has a descriptor for each group. The block of multiple mount protection is
/// not among them: see [`crate::mmp::block`].
pub fn for_each_metadata(
    geometry: &Geometry,
    groups: &[GroupDesc],
    mut each: impl FnMut(MetadataOwner, Pblk, u64),
) {
    for (nr, desc) in (0..geometry.groups_count.get()).map(GroupNr).zip(groups) {
        for_metadata_of(geometry, nr, desc, &mut each);
    }
}

/// As [`for_each_metadata`], of one group.
pub fn for_metadata_of(
    geometry: &Geometry,
    nr: GroupNr,
    desc: &GroupDesc,
    mut each: impl FnMut(MetadataOwner, Pblk, u64),
) {
    let head = geometry.group_base_blocks(nr);
    let head = head.min(geometry.blocks_in_group(nr));
    if head != 0 {
        let start = geometry.group_start(nr);
        each(MetadataOwner::Head(nr), start, head.into());
    }
    each(MetadataOwner::BlockBitmap(nr), desc.block_bitmap, 1);
    each(MetadataOwner::InodeBitmap(nr), desc.inode_bitmap, 1);
    let table = geometry.itable_blocks().into();
    each(MetadataOwner::InodeTable(nr), desc.inode_table, table);
}

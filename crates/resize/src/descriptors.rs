//! Where the descriptors go, and their blocks.

use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr, Pblk};

use crate::Result;
use crate::changes::Changes;

/// How the table of descriptors gets the blocks that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It needs no more, or they lie in their meta groups.
    Enough,
    /// From those that are reserved behind it.
    Reserved {
        /// Blocks.
        blocks: u16,
    },
    /// In meta groups from now on; nothing is reserved any more.
    MetaGroups,
}

impl Room {
    /// Decides for a file system of the shape `old` that gets `groups` groups, and `blocks` blocks.
    pub fn choose(old: &Geometry, groups: u32, blocks: u64) -> Self {
        let lacking = groups
            .div_ceil(old.descs_per_block())
            .saturating_sub(old.gdt_blocks());
        let features = old.features;
        let has_inode = features.compat.contains(Compat::RESIZE_INODE);
        // Inode 7 has numbers of 32 bits, and names blocks of every backup.
        let is_reached = blocks <= u64::from(u32::MAX);
        if features.incompat.contains(Incompat::META_BG) && !has_inode {
            return Self::Enough;
        }
        match u16::try_from(lacking) {
            Ok(0) if is_reached || !has_inode => Self::Enough,
            Ok(blocks) if has_inode && is_reached && blocks <= old.reserved_gdt_blocks => {
                Self::Reserved { blocks }
            }
            _ => Self::MetaGroups,
        }
    }

    /// Changes what the superblock says of it.
    pub fn store(self, old: &Geometry, superblock: &mut SuperBlock) {
        match self {
            Self::Enough => {}
            Self::Reserved { blocks } => {
                let left = old.reserved_gdt_blocks.saturating_sub(blocks);
                superblock.s_reserved_gdt_blocks = left.into();
            }
            Self::MetaGroups => {
                let mut features = superblock.features();
                features.compat.remove(Compat::RESIZE_INODE);
                features.incompat.insert(Incompat::META_BG);
                superblock.set_features(features);
                superblock.s_reserved_gdt_blocks = 0.into();
                superblock.s_first_meta_bg = old.gdt_blocks().into();
            }
        }
    }
}

/// Puts the blocks of descriptors that change or are new, and their backups.
pub fn put(changes: &mut Changes<'_>) -> Result<()> {
    let geometry = changes.geometry;
    let per_block = geometry.descs_per_block();
    let old_blocks = changes.state.geometry.gdt_blocks();
    let first_new = changes.state.geometry.groups_count.get();
    let mut indexes: Vec<u32> = changes
        .descs
        .keys()
        .map(|group| group.0 / per_block)
        .collect();
    indexes.dedup();
    // New backups have all blocks.
    let is_behind = |block: &Pblk| block.0 >= geometry.group_start(GroupNr(first_new)).0;
    for index in 0..geometry.gdt_blocks() {
        let changed = indexes.binary_search(&index).is_ok();
        if !changed && !geometry.gdt_backups(index).any(|block| is_behind(&block)) {
            continue;
        }
        let mut bytes = match index < old_blocks {
            true => changes.state.block(geometry.gdt_block(index))?,
            false => vec![0; geometry.block_size.len()],
        };
        let first = index * per_block;
        let len = usize::from(geometry.desc_size);
        let of_block = GroupNr(first)..GroupNr(first.saturating_add(per_block));
        for (&group, desc) in changes.descs.range(of_block) {
            let at = (group.0 - first) as usize * len;
            desc.store(&mut bytes[at..at + len], group, geometry.desc_checksum);
        }
        let backups: Vec<Pblk> = geometry.gdt_backups(index).collect();
        let copies = backups.into_iter().filter(|b| changed || is_behind(b));
        for block in copies {
            changes.put(block, bytes.clone());
        }
        if changed {
            changes.put(geometry.gdt_block(index), bytes);
        }
    }
    Ok(())
}

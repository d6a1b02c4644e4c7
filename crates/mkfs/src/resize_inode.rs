//! Inode 7: it owns the blocks reserved after every copy of the descriptors, so that the table can
//! grow in place.
//!
//! One double indirect block; slot `i` of it is the reserved primary descriptor block `i`, which is
//! used as an indirect block and names that same block of every backup, in the order of groups.
//! Block numbers must fit 32 bits.

use uext4_ondisk::indirect::{Reach, put_numbers};
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags, NDIR_BLOCKS, S_IFREG};
use uext4_ondisk::{Geometry, Ino, Pblk};

use crate::Error;
use crate::plan::{InodeSpec, Plan};

/// The indirect blocks of inode 7, and the blocks that it owns.
#[derive(Clone, Debug)]
pub struct ResizeMap {
    /// The indirect blocks, the double one first.
    pub blocks: Vec<(Pblk, Vec<u8>)>,
    /// Blocks that the inode counts as its own, in whole clusters.
    pub owned: u64,
}

/// What inode 7 consists of in a file system of this shape, with its double indirect block at
/// `double`. All block numbers must have 32 bits.
pub fn resize_map(geometry: &Geometry, double: Pblk) -> ResizeMap {
    let reserved = u32::from(geometry.reserved_gdt_blocks);
    let per_block = geometry.block_size.bytes() / 4;
    let backups: Vec<u64> = geometry
        .backup_groups()
        // Relative to the primary copy, as the kernel reckons: the first block of group 0 is not
        // its start where clusters make the boot block part of it.
        .map(|group| u64::from(group.0) * u64::from(geometry.blocks_per_group.get()))
        .collect();
    let first = geometry.superblock_block().0;
    let block_len = geometry.block_size.len();
    let mut slots = vec![0; block_len];
    let mut tables = Vec::with_capacity(reserved as usize);
    for index in geometry.gdt_blocks()..geometry.gdt_blocks().saturating_add(reserved) {
        // Past the superblock's block.
        let offset = 1 + u64::from(index);
        let slot = (index % per_block) as usize;
        put_numbers(&mut slots, slot, [(first + offset) as u32]);
        let mut indirect = vec![0; block_len];
        let copies = backups.iter().map(|start| (start + first + offset) as u32);
        put_numbers(&mut indirect, 0, copies);
        tables.push((Pblk(first + offset), indirect));
    }
    let mut blocks = vec![(double, slots)];
    blocks.append(&mut tables);
    let owned = 1 + u64::from(reserved) * (1 + backups.len() as u64);
    ResizeMap {
        blocks,
        // Each of its blocks counts as a cluster, shared as they are.
        owned: owned << geometry.cluster_bits,
    }
}

/// Makes the inode and its indirect blocks; the data blocks belong to the groups' heads already.
pub(crate) fn create(plan: &mut Plan) -> Result<(), Error> {
    let geometry = &plan.geometry;
    let reserved = u32::from(geometry.reserved_gdt_blocks);
    // Past the metadata of the first group, were its bitmaps and table packed without gaps.
    let fixed = geometry.first_data_block + 2;
    let goal = fixed + geometry.gdt_blocks() + reserved + geometry.itable_blocks();
    let double = plan.take_block(goal.into(), "resize inode")?;
    let map = resize_map(&plan.geometry, Pblk(double));
    for (block, bytes) in map.blocks {
        plan.put(block.0, bytes);
    }
    let mut i_block = [0; I_BLOCK_LEN];
    put_numbers(&mut i_block, NDIR_BLOCKS + 1, [double as u32]);
    // All that double indirect blocks reach.
    let addressable = Reach::new(plan.geometry.block_size).first(3);
    let spec = InodeSpec {
        mode: S_IFREG | 0o600,
        owner: (0, 0),
        size: addressable * plan.block_len() as u64,
        links: 1,
        blocks: map.owned,
        flags: InodeFlags::empty(),
        i_block,
    };
    plan.put_inode(Ino::RESIZE, &spec);
    Ok(())
}

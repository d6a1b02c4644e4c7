//! Inode 7: it owns the blocks reserved after every copy of the descriptors, so that the table can
//! grow in place.
//!
//! One double indirect block; slot `i` of it is the reserved primary descriptor block `i`, which is
//! used as an indirect block and names that same block of every backup, in the order of groups.
//! Block numbers must fit 32 bits.

use uext4_ondisk::indirect::{Reach, put_numbers};
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags, NDIR_BLOCKS, S_IFREG};
use uext4_ondisk::{GroupNr, Ino};

use crate::Error;
use crate::plan::{InodeSpec, Plan};

/// Makes the inode and its indirect blocks; the data blocks belong to the groups' heads already.
pub(crate) fn create(plan: &mut Plan) -> Result<(), Error> {
    let geometry = &plan.geometry;
    let reserved = u32::from(geometry.reserved_gdt_blocks);
    let per_block = geometry.block_size.bytes() / 4;
    let backups: Vec<u64> = (1..geometry.groups_count.get())
        .map(GroupNr)
        .filter(|&group| geometry.has_super(group))
        // Relative to the primary copy, as the kernel reckons: the first block of group 0 is not
        // its start where clusters make the boot block part of it.
        .map(|group| u64::from(group.0) * u64::from(geometry.blocks_per_group.get()))
        .collect();
    let first = geometry.superblock_block().0;
    // Past the metadata of the first group, were its bitmaps and table packed without gaps.
    let fixed = geometry.first_data_block + 2;
    let goal = fixed + geometry.gdt_blocks() + reserved + geometry.itable_blocks();
    let double = plan.take_block(goal.into(), "resize inode")?;
    let mut slots = vec![0; plan.block_len()];
    for index in plan.geometry.gdt_blocks()..plan.geometry.gdt_blocks() + reserved {
        // Past the superblock's block.
        let offset = 1 + u64::from(index);
        let slot = (index % per_block) as usize;
        put_numbers(&mut slots, slot, [(first + offset) as u32]);
        let mut indirect = vec![0; plan.block_len()];
        let copies = backups.iter().map(|start| (start + first + offset) as u32);
        put_numbers(&mut indirect, 0, copies);
        plan.put(first + offset, indirect);
    }
    plan.put(double, slots);
    let mut i_block = [0; I_BLOCK_LEN];
    put_numbers(&mut i_block, NDIR_BLOCKS + 1, [double as u32]);
    // All that double indirect blocks reach.
    let addressable = Reach::new(plan.geometry.block_size).first(3);
    let spec = InodeSpec {
        mode: S_IFREG | 0o600,
        owner: (0, 0),
        size: addressable * plan.block_len() as u64,
        links: 1,
        // Each of its blocks counts as a cluster, shared as they are.
        blocks: (1 + u64::from(reserved) * (1 + backups.len() as u64)) * plan.whole_clusters(1),
        flags: InodeFlags::empty(),
        i_block,
    };
    plan.put_inode(Ino::RESIZE, &spec);
    Ok(())
}

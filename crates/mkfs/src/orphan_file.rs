//! The orphan file: slots for inodes that are deleted but open, all of them free.

use uext4_ondisk::Pblk;
use uext4_ondisk::inode::S_IFREG;
use uext4_ondisk::orphan::update_tail;

use crate::Error;
use crate::extended::size_in_blocks;
use crate::file_map::FileMap;
use crate::options::Options;
use crate::plan::{GENERATION, InodeSpec, Plan};

/// Fewest blocks when nothing was said.
const MIN_BLOCKS: u64 = 32;
/// Most blocks: the kernel mounts no more.
const MAX_BLOCKS: u64 = 512;
/// Blocks of the file system for one of the orphan file.
const RATIO: u64 = 4096;

fn length(plan: &Plan, options: &Options) -> Result<u64, Error> {
    let Some(size) = options.extended.orphan_file_size else {
        let blocks = plan.geometry.blocks_count / RATIO;
        return Ok(blocks.clamp(MIN_BLOCKS, MAX_BLOCKS));
    };
    let blocks = size_in_blocks(size, plan.geometry.block_size);
    if (1..=MAX_BLOCKS).contains(&blocks) {
        Ok(blocks)
    } else {
        Err(Error::Option {
            flag: "-E orphan_file_size",
            value: format!("{blocks} blocks"),
            why: "not from 1 to 512 blocks, the most the kernel takes",
        })
    }
}

/// Makes the file in the next free inode.
pub(crate) fn create(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    let len = length(plan, options)?;
    let ino = plan.next_inode();
    let map = FileMap::take(plan, ino, plan.goal_of(ino), len, "orphan file")?;
    let seed = plan
        .geometry
        .csum_seed
        .map(|seed| seed.inode(ino, GENERATION));
    for block in map.each_block() {
        let mut bytes = vec![0; plan.block_len()];
        update_tail(&mut bytes, Pblk(block), seed);
        plan.put(block, bytes);
    }
    let spec = InodeSpec {
        mode: S_IFREG | 0o600,
        owner: (0, 0),
        size: len * plan.block_len() as u64,
        links: 1,
        blocks: map.blocks(plan),
        flags: FileMap::flags(plan),
        i_block: map.i_block,
    };
    plan.put_inode(ino, &spec);
    plan.superblock.s_orphan_file_inum = ino.0.into();
    Ok(())
}

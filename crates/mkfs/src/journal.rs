//! The journal: how long it is, where it goes, and its superblock.

use uext4_ondisk::features::Compat;
use uext4_ondisk::inode::S_IFREG;
use uext4_ondisk::journal::{BlockType, JournalHeader, JournalSuperblock, MIN_JOURNAL_BLOCKS};
use uext4_ondisk::{GroupNr, Ino, Pblk};
use zerocopy::IntoBytes;

use crate::Error;
use crate::extended::size_in_blocks;
use crate::file_map::FileMap;
use crate::options::Options;
use crate::plan::{InodeSpec, Plan};

/// Longest journal mke2fs makes, in blocks.
const MAX_JOURNAL_BLOCKS: u64 = 10_240_000;

/// Length of the journal of a file system of this many blocks; `None` if it is too small for one.
pub(crate) fn default_blocks(blocks: u64) -> Option<u32> {
    const KI: u64 = 1024;
    const MI: u64 = 1024 * 1024;
    let table = [
        (2 * KI, 0),
        (32 * KI, 1024),
        (256 * KI, 4096),
        (512 * KI, 8192),
        (4 * MI, 16384),
        (8 * MI, 32768),
        (16 * MI, 65536),
        (32 * MI, 131_072),
    ];
    let row = table.iter().find(|&&(below, _)| blocks < below);
    let len = row.map_or(262_144, |&(_, len)| len);
    (len > 0).then_some(len)
}

/// Blocks of the ring and of the fast-commit area behind it.
fn length(plan: &Plan, options: &Options) -> Result<(u32, u32), Error> {
    let blocks_count = plan.geometry.blocks_count;
    let log2 = plan.geometry.block_size.log2();
    let in_blocks = |n: u64, unit: u32| {
        n.checked_shl(unit)
            .filter(|bytes| bytes >> unit == n)
            .map_or(u64::MAX, |bytes| bytes >> log2)
    };
    let ring = match options.journal.size_mib {
        Some(mib) => in_blocks(mib, 20),
        None => default_blocks(blocks_count).map_or(0, u64::from),
    };
    let fast = if plan.features().compat.contains(Compat::FAST_COMMIT) {
        match options.journal.fast_commit_kib {
            Some(kib) => in_blocks(kib, 10),
            // By the size of the file system, whatever was said of the ring.
            None => default_blocks(blocks_count).map_or(0, |ring| u64::from(ring / 64)),
        }
    } else {
        0
    };
    let total = ring.saturating_add(fast);
    let wrong = |why| Error::JournalSize { blocks: total, why };
    if ring < u64::from(MIN_JOURNAL_BLOCKS) {
        return Err(wrong("fewer than 1024"));
    }
    if total > MAX_JOURNAL_BLOCKS {
        return Err(wrong("more than 10240000"));
    }
    if options.journal.size_mib.is_some() && total > blocks_count / 2 {
        return Err(wrong("more than half the file system"));
    }
    // Both are at most MAX_JOURNAL_BLOCKS.
    Ok((ring as u32, fast as u32))
}

/// Makes the journal and its copy in the superblock.
pub(crate) fn create(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    let (ring, fast) = length(plan, options)?;
    let len = u64::from(ring + fast);
    let location = match options.journal.location {
        _ if options.extended.packed_meta_blocks => Some(0),
        Some(place) => Some(size_in_blocks(place, plan.geometry.block_size)),
        None => None,
    };
    let goal = match location {
        Some(block) => block,
        // Behind the tables, which are behind the contents: the middle is in use.
        None if !options.occupied.is_empty() => options.occupied.last().map_or(0, |last| last.end),
        None if plan.extents() => middle(plan),
        None => 0,
    };
    let map = FileMap::take(plan, Ino::JOURNAL, goal, len, "journal")?;
    plan.overhead += len.div_ceil(1 << plan.geometry.cluster_bits);
    put_superblock(plan, &map, ring, fast);
    let size = len * plan.block_len() as u64;
    let spec = InodeSpec {
        mode: S_IFREG | 0o600,
        owner: (0, 0),
        size,
        links: 1,
        blocks: map.blocks(plan),
        flags: FileMap::flags(plan),
        i_block: map.i_block,
    };
    plan.put_inode(Ino::JOURNAL, &spec);
    plan.superblock.s_journal_inum = Ino::JOURNAL.0.into();
    plan.superblock.back_up_journal(&map.i_block, size);
    plan.journal = map.runs;
    Ok(())
}

/// Start of the emptiest group about the middle of the file system.
fn middle(plan: &Plan) -> u64 {
    let geometry = &plan.geometry;
    let groups = geometry.groups_count.get();
    let in_groups = geometry.blocks_count - u64::from(geometry.first_data_block);
    let middle = geometry
        .group_of(Pblk(in_groups / 2))
        .map_or(0, |(group, _)| group.0);
    let free = |group: u32| {
        let start = geometry.group_start(GroupNr(group)).0;
        let len = u64::from(geometry.blocks_in_group(GroupNr(group)));
        len - plan.space.used_in(start..start + len)
    };
    let flex = 1u64 << geometry.log_groups_per_flex;
    let (start, last) = if flex > 1 && u64::from(middle) > flex {
        // The flex group's first groups are full of its tables.
        let first = (u64::from(middle) & !(flex - 1)) as u32;
        let start = (first..groups).find(|&g| free(g) > 0).unwrap_or(0);
        (start, (start + 1).min(groups - 1))
    } else {
        (middle.saturating_sub(1), (middle + 1).min(groups - 1))
    };
    let emptiest = (start..=last).reduce(|best, g| if free(g) > free(best) { g } else { best });
    geometry.group_start(GroupNr(emptiest.unwrap_or(start))).0
}

fn put_superblock(plan: &mut Plan, map: &FileMap, ring: u32, fast: u32) {
    let mut sb = JournalSuperblock::zeroed();
    sb.s_header = JournalHeader::new(BlockType::SuperblockV2, 0);
    sb.s_blocksize = plan.geometry.block_size.bytes().into();
    sb.s_maxlen = (ring + fast).into();
    sb.s_first = 1.into();
    sb.s_sequence = 1.into();
    sb.s_nr_users = 1.into();
    sb.s_uuid = plan.superblock.s_uuid;
    // The journal's own feature bit is set by the kernel that first uses the area.
    sb.s_num_fc_blks = fast.into();
    let mut bytes = vec![0; plan.block_len()];
    let raw = sb.as_bytes();
    bytes[..raw.len()].copy_from_slice(raw);
    if let Some(run) = map.runs.first() {
        plan.put(run.start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_lengths() {
        assert_eq!(default_blocks(2047), None);
        assert_eq!(default_blocks(2048), Some(1024));
        assert_eq!(default_blocks(32_767), Some(1024));
        assert_eq!(default_blocks(262_143), Some(4096));
        assert_eq!(default_blocks(262_144), Some(8192));
        assert_eq!(default_blocks(1 << 32), Some(262_144));
    }
}

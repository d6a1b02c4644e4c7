//! How much room there is, as statfs reports it.
//!
//! Blocks that hold nothing but the file system itself are counted neither as there nor as free,
//! and what is reserved for data that waits to be written is not free any more.

use uext4_ondisk::features::Compat;
use uext4_ondisk::{GroupNr, Ino};

use crate::inode::iget;
use crate::journal::sbi::Sbi;

/// Sizes and counts of a file system. Blocks are those of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks for files and directories, free or not.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Of these, what is not reserved for the superuser.
    pub available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// Counts.
pub(crate) fn statfs(sbi: &Sbi) -> Statfs {
    let geometry = sbi.geometry();
    let (superblock, free, kept) = match sbi.rw() {
        Some(rw) => {
            let reserved = rw.reserved_blocks();
            let superblock = rw.superblock();
            let free = superblock.free_blocks_count().saturating_sub(reserved);
            (superblock, free, rw.metadata_reserve())
        }
        None => (*sbi.superblock(), sbi.superblock().free_blocks_count(), 0),
    };
    let blocks = geometry.blocks_count;
    let free = free.min(blocks);
    let for_root = superblock.reserved_blocks_count().saturating_add(kept);
    Statfs {
        block_size: geometry.block_size.bytes(),
        blocks: blocks.saturating_sub(overhead(sbi)).max(free),
        free,
        available: free.saturating_sub(for_root),
        inodes: geometry.inodes_count.into(),
        free_inodes: superblock.s_free_inodes_count.get().into(),
    }
}

/// Blocks of the file system's own: as mke2fs noted, or counted.
fn overhead(sbi: &Sbi) -> u64 {
    let geometry = sbi.geometry();
    let noted = u64::from(sbi.superblock().s_overhead_clusters.get()) << geometry.cluster_bits;
    if noted > 0 && noted <= geometry.blocks_count && geometry.cluster_bits == 0 {
        return noted;
    }
    let groups = 0..geometry.groups_count.get();
    let of_group = 2 + u64::from(geometry.itable_blocks());
    let bases =
        groups.map(|group| u64::from(geometry.group_base_blocks(GroupNr(group))) + of_group);
    let has_journal = geometry.features.compat.contains(Compat::HAS_JOURNAL);
    let journal = match (has_journal, sbi.superblock().s_journal_inum.get()) {
        (true, 1..) => iget(sbi, Ino::JOURNAL).map_or(0, |inode| inode.size),
        _ => 0,
    };
    let journal = journal >> geometry.block_size.log2();
    u64::from(geometry.first_data_block)
        .saturating_add(bases.sum())
        .saturating_add(journal)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use crate::testing::{kernel_mount, mke2fs, mount, unmount_and_check};

    #[test]
    fn as_the_kernel_counts() {
        let all = [
            "-t ext4",
            "-t ext2 -b 1024",
            "-t ext3 -m 20",
            "-O ^has_journal",
        ];
        for flags in all {
            let memory = mke2fs(flags, 64 << 10);
            let sbi = mount(&memory);
            let ours = super::statfs(&sbi);
            unmount_and_check(&sbi, &memory);
            kernel_mount(&memory, |place| {
                let mut stat = Command::new("stat");
                stat.args(["-f", "-c", "%S %b %f %c %d"]).arg(place);
                let reported = String::from_utf8(stat.output().unwrap().stdout).unwrap();
                let theirs: Vec<u64> = reported
                    .split_whitespace()
                    .map(|number| number.parse().unwrap())
                    .collect();
                let size = u64::from(ours.block_size);
                let counts = [size, ours.blocks, ours.free, ours.inodes, ours.free_inodes];
                assert_eq!(theirs, counts, "{flags}");
            });
            assert!(ours.available <= ours.free, "{flags}");
        }
    }
}

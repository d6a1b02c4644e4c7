//! The whole of an empty file system as a plan: pure, nothing is written.

use std::collections::BTreeMap;

use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, BG_INODE_ZEROED, DescChecksum, GroupDesc, bitmap_checksum,
};
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};
use zerocopy::little_endian::U32;

use crate::bitmaps::{block_bitmap, inode_bitmap};
use crate::options::Options;
use crate::plan::Plan;
use crate::resolve::Parameters;
use crate::space::{Run, SpaceMap};
use crate::{Error, gdt, groups, journal, mmp, orphan_file, quota, resize_inode, root, shape};

/// What [`crate::format`] will write.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The primary superblock as it will be.
    pub superblock: SuperBlock,
    /// Its validated form.
    pub geometry: Geometry,
    /// Every descriptor as it will be, but for its own checksum.
    pub groups: Vec<GroupDesc>,
    /// The journal's blocks in the order of the log; empty without one.
    pub journal: Vec<Run>,
    /// Blocks in use.
    pub(crate) space: SpaceMap,
    /// Inodes in use.
    pub(crate) inodes: BTreeMap<u32, Vec<u8>>,
    /// Contents of single blocks, sorted, up to their last byte that is not zero.
    pub(crate) blocks: Vec<(Pblk, Vec<u8>)>,
    /// What has to be zeroed first.
    pub(crate) zeroing: Zeroing,
}

/// How blocks that must read as zeroes come to do so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeroing {
    /// They do so already.
    pub assumed: bool,
    /// The device is discarded as a whole.
    pub discard: bool,
    /// Else: what is not used yet of the inode tables is left to the kernel.
    pub lazy_tables: bool,
    /// Else: the journal is written with zeroes.
    pub journal: bool,
}

impl Layout {
    /// Bytes the file system spans.
    pub fn len_bytes(&self) -> u64 {
        self.geometry.len_bytes()
    }

    /// Free blocks after formatting, those reserved for root included.
    pub fn free_blocks(&self) -> u64 {
        self.superblock.free_blocks_count()
    }

    /// Free inodes after formatting.
    pub fn free_inodes(&self) -> u32 {
        self.superblock.s_free_inodes_count.get()
    }

    /// Blocks of the quota files, their maps included.
    pub fn quota_blocks(&self) -> u64 {
        let superblock = &self.superblock;
        let files = [
            superblock.s_usr_quota_inum,
            superblock.s_grp_quota_inum,
            superblock.s_prj_quota_inum,
        ];
        let sectors = |ino: &U32| {
            let bytes = self.inodes.get(&ino.get())?;
            let raw = RawInode::parse(bytes, Ino(ino.get())).ok()?;
            Some(u64::from(raw.i_blocks_lo.get()))
        };
        let sectors: u64 = files.iter().filter_map(sectors).sum();
        sectors >> (self.geometry.block_size.log2() - 9)
    }

    /// Runs of blocks in use, ascending.
    pub fn used_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.space.runs()
    }
}

/// Chooses everything about a file system on a device of `device_len` bytes.
///
/// # Errors
/// Every [`Error`] but those of the device: wishes that exclude each other or do not fit.
pub fn layout(options: &Options, device_len: u64) -> Result<Layout, Error> {
    let params = Parameters::new(options, device_len)?;
    let superblock = shape::superblock(&params, options)?;
    let geometry = Geometry::new(&superblock)?;
    let mut plan = Plan::new(geometry, superblock, options.time);
    groups::place(&mut plan, options)?;
    files(&mut plan, options)?;
    let zeroing = zeroing(&plan, options);
    // Lazy tables are not reported as zeroed even where nothing can be lazy, and so all are.
    let zeroed = !options.extended.lazy_itable_init || options.tables_read_as_zeroes();
    summarize(&mut plan, zeroed);
    plan.blocks.sort_by_key(|&(block, _)| block);
    Ok(Layout {
        superblock: plan.superblock,
        geometry: plan.geometry,
        groups: plan.groups,
        journal: plan.journal,
        space: plan.space,
        inodes: plan.inodes,
        blocks: plan.blocks,
        zeroing,
    })
}

/// Everything the features bring, in the order mke2fs makes it.
fn files(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    let Features {
        compat,
        incompat,
        ro_compat,
    } = plan.features();
    root::create(plan, options)?;
    if compat.contains(Compat::RESIZE_INODE) {
        resize_inode::create(plan)?;
    }
    if compat.contains(Compat::HAS_JOURNAL) {
        journal::create(plan, options)?;
    }
    if incompat.contains(Incompat::MMP) {
        mmp::create(plan, options)?;
    }
    if ro_compat.contains(RoCompat::QUOTA) {
        quota::create(plan, options)?;
    }
    if compat.contains(Compat::ORPHAN_FILE) {
        orphan_file::create(plan, options)?;
    }
    Ok(())
}

fn zeroing(plan: &Plan, options: &Options) -> Zeroing {
    let lazy_possible = plan.geometry.desc_checksum != DescChecksum::None;
    Zeroing {
        assumed: options.assume_zeroed || options.extended.assume_storage_prezeroed,
        discard: options.extended.discard,
        lazy_tables: lazy_possible && options.extended.lazy_itable_init,
        journal: !options.extended.lazy_journal_init,
    }
}

/// Fills in the counts and checksums that follow from what is in use.
fn summarize(plan: &mut Plan, tables_zeroed: bool) {
    let (mut free_clusters, mut free_inodes) = (0u64, 0u64);
    for index in 0..plan.groups.len() {
        summarize_group(plan, index, tables_zeroed);
        let desc = &plan.groups[index];
        free_clusters += u64::from(desc.free_clusters);
        free_inodes += u64::from(desc.free_inodes);
    }
    let kbytes = kbytes_written(plan);
    let sb = &mut plan.superblock;
    sb.set_free_blocks_count(free_clusters << plan.geometry.cluster_bits);
    sb.s_free_inodes_count = (free_inodes as u32).into();
    sb.s_overhead_clusters = (plan.overhead as u32).into();
    sb.s_kbytes_written = kbytes.into();
    sb.update_checksum();
}

/// The same for one group.
pub(crate) fn summarize_group(plan: &mut Plan, index: usize, table_zeroed: bool) {
    let per_group = plan.geometry.inodes_per_group.get();
    let group = GroupNr(index as u32);
    let used_inodes = used_inodes(plan, group);
    let free = free_clusters_of(plan, group);
    let desc = &mut plan.groups[index];
    desc.free_clusters = free as u32;
    desc.free_inodes = per_group - used_inodes;
    if plan.geometry.desc_checksum != DescChecksum::None {
        desc.itable_unused = per_group - used_inodes;
        if used_inodes > 0 {
            desc.flags &= !(BG_INODE_UNINIT | BG_BLOCK_UNINIT);
        }
    }
    if table_zeroed {
        desc.flags |= BG_INODE_ZEROED;
    }
    sum_bitmaps(plan, group, used_inodes);
}

/// Inodes in use in a group; they are always its first ones.
fn used_inodes(plan: &Plan, group: GroupNr) -> u32 {
    let per_group = plan.geometry.inodes_per_group.get();
    let first = group.0 * per_group + 1;
    let last = plan.inodes.range(first..=first - 1 + per_group).next_back();
    last.map_or(0, |(&ino, _)| ino + 1 - first)
}

fn free_clusters_of(plan: &Plan, group: GroupNr) -> u64 {
    let start = plan.geometry.group_start(group).0;
    let len = u64::from(plan.geometry.blocks_in_group(group));
    let used: u64 = plan
        .space
        .runs_in(start..start + len)
        .map(|run| run.len.div_ceil(1 << plan.geometry.cluster_bits))
        .sum();
    len.div_ceil(1 << plan.geometry.cluster_bits) - used
}

fn sum_bitmaps(plan: &mut Plan, group: GroupNr, used_inodes: u32) {
    let Some(seed) = plan.geometry.csum_seed else {
        return;
    };
    let desc_size = usize::from(plan.geometry.desc_size);
    let desc = &mut plan.groups[group.0 as usize];
    if desc.flags & BG_BLOCK_UNINIT == 0 {
        let bits = block_bitmap(&plan.geometry, &plan.space, group);
        let len = plan.geometry.clusters_per_group.get() as usize / 8;
        desc.block_bitmap_csum = bitmap_checksum(seed, &bits[..len], desc_size);
    }
    if desc.flags & BG_INODE_UNINIT == 0 {
        let bits = inode_bitmap(&plan.geometry, used_inodes);
        let len = plan.geometry.inodes_per_group.get() as usize / 8;
        desc.inode_bitmap_csum = bitmap_checksum(seed, &bits[..len], desc_size);
    }
}

/// KiB of metadata the format writes, zeroes apart. Only file systems with something of ext4 count.
fn kbytes_written(plan: &Plan) -> u64 {
    let counts = plan.features().incompat.contains(Incompat::FLEX_BG)
        || plan.features().ro_compat.intersects(
            RoCompat::HUGE_FILE
                | RoCompat::GDT_CSUM
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE
                | RoCompat::METADATA_CSUM,
        );
    if !counts {
        return 0;
    }
    let with_flag = |flag| {
        plan.groups
            .iter()
            .filter(|desc| desc.flags & flag == 0)
            .count()
    };
    let bitmaps = with_flag(BG_BLOCK_UNINIT) + with_flag(BG_INODE_UNINIT);
    let copies = gdt::copies(&plan.geometry)
        .map(|(_, blocks)| u64::from(blocks.end - blocks.start))
        .sum::<u64>();
    let groups = (0..plan.geometry.groups_count.get()).map(GroupNr);
    let supers = groups
        .filter(|&group| plan.geometry.has_super(group))
        .count();
    let inodes = plan.inodes.len() as u64 * u64::from(plan.geometry.inode_size);
    let inode_blocks = plan.geometry.block_size.blocks_for(inodes);
    let blocks = (bitmaps + supers + plan.blocks.len()) as u64 + copies + inode_blocks;
    blocks << (plan.geometry.block_size.log2() - 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsType;
    use crate::feature_list::parse_features;

    fn options() -> Options {
        Options::new([7; 16], [9; 16], 1_700_000_000)
    }

    #[test]
    fn one_gibibyte() {
        let layout = layout(&options(), 1 << 30).unwrap();
        assert_eq!(layout.superblock.blocks_count(), 262_144);
        assert_eq!(layout.superblock.reserved_blocks_count(), 13_107);
        assert_eq!(layout.free_blocks(), 249_189);
        assert_eq!(layout.free_inodes(), 65_525);
        let run = Run {
            start: 131_072,
            len: 8192,
        };
        assert_eq!(layout.journal, [run]);
        assert_eq!(layout.groups[7].inode_table, Pblk(3729));
        let free: u64 = layout
            .groups
            .iter()
            .map(|g| u64::from(g.free_clusters))
            .sum();
        assert_eq!(free, layout.free_blocks());
    }

    #[test]
    fn floppy_and_smaller() {
        for fs_type in [FsType::Ext2, FsType::Ext4] {
            let options = Options {
                fs_type,
                ..options()
            };
            assert!(layout(&options, 64 << 10).is_ok());
            for len in [0, 1024, 4096, 8192] {
                let err = layout(&options, len).unwrap_err();
                let small = matches!(err, Error::TooSmall { .. } | Error::NoSpace { .. });
                assert!(small, "{len}: {err}");
            }
        }
    }

    #[test]
    fn every_length_is_answered() {
        for len in (0..(40u64 << 20)).step_by((1 << 18) + 4096) {
            let Ok(layout) = layout(&options(), len) else {
                assert!(len < 64 << 10, "{len}");
                continue;
            };
            assert!(layout.len_bytes() <= len);
            assert!(layout.free_blocks() < layout.superblock.blocks_count());
        }
        for len in [u64::MAX, 1 << 63, (1 << 60) + 1] {
            let _ = layout(&options(), len);
        }
    }

    #[test]
    fn conflicting_features_are_named() {
        for (features, named) in [
            ("meta_bg", "meta_bg"),
            ("bigalloc,^extent,^64bit", "bigalloc"),
            ("^metadata_csum,metadata_csum_seed", "metadata_csum_seed"),
            ("^sparse_super", "resize_inode"),
            ("orphan_file,^has_journal", "orphan_file"),
        ] {
            let options = Options {
                features: parse_features(features).unwrap(),
                ..options()
            };
            let err = layout(&options, 1 << 30).unwrap_err();
            assert!(err.to_string().contains(named), "{features}: {err}");
        }
    }
}

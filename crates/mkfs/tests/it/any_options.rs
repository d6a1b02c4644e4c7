//! Whatever the options say, there is an answer, and an answer that is a layout holds together.

use proptest::prelude::*;
use uext4_blockdev::MemoryDevice;
use uext4_mkfs::{
    BlockSizeWish, FeatureEdit, FsType, JournalOptions, Layout, Options, QuotaTypes, Size,
    UsageType, format, layout,
};
use uext4_ondisk::features::feature_by_name;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{BlockSize, Geometry, GroupNr};

/// Those that exclude each other or cannot be made among them.
const FEATURE_NAMES: &[&str] = &[
    "has_journal",
    "resize_inode",
    "sparse_super2",
    "fast_commit",
    "orphan_file",
    "filetype",
    "extent",
    "meta_bg",
    "flex_bg",
    "mmp",
    "64bit",
    "inline_data",
    "casefold",
    "uninit_bg",
    "metadata_csum_seed",
    "large_file",
    "sparse_super",
    "bigalloc",
    "quota",
    "metadata_csum",
    "project",
    "journal_dev",
];

fn some<T: std::fmt::Debug>(s: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.1, s)
}

/// Small numbers, powers of two and their neighbours, and anything.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..100,
        (0u32..64, 0u64..3).prop_map(|(bit, off)| (1u64 << bit).wrapping_add(off).wrapping_sub(1)),
        any::<u64>(),
    ]
}

prop_compose! {
    fn shape()(
        fs_type in prop::sample::select(vec![FsType::Ext2, FsType::Ext3, FsType::Ext4]),
        usage in prop::collection::vec(prop::sample::select(vec![
            UsageType::Floppy, UsageType::Small, UsageType::LargeFile, UsageType::Hurd]), 0..2),
        size in some(number()),
        block_size in some((any::<bool>(), 10u32..17)),
        cluster_size in some(number()),
        blocks_per_group in some(prop_oneof![(0u32..8192).prop_map(|n| n * 8), any::<u32>()]),
        groups_per_flex in some((0u32..32).prop_map(|bit| 1 << bit)),
        inode_ratio in some(number()),
        inode_size in some((7u32..13).prop_map(|bit| 1u16 << bit)),
        inodes in some(number()),
        reserved_percent in prop_oneof![30 => 0.0..50.0, 1 => any::<f64>()],
    ) -> Options {
        let mut options = Options::new([1; 16], [2; 16], u32::MAX);
        options.fs_type = fs_type;
        options.usage = usage;
        options.size = size;
        options.block_size = block_size.map(|(exactly, log2)| {
            let size = BlockSize::from_log2(log2).unwrap();
            if exactly { BlockSizeWish::Exactly(size) } else { BlockSizeWish::AtLeast(size) }
        });
        options.cluster_size = cluster_size;
        options.blocks_per_group = blocks_per_group;
        options.groups_per_flex = groups_per_flex;
        options.inode_ratio = inode_ratio;
        options.inode_size = inode_size;
        options.inodes = inodes;
        options.reserved_percent = reserved_percent;
        options
    }
}

prop_compose! {
    fn wishes()(
        mut options in shape(),
        edits in prop::collection::vec(
            (prop::sample::select(FEATURE_NAMES.to_vec()), any::<bool>()), 0..5),
        size_mib in some(number()),
        location in some(number()),
        fast_commit_kib in some(number()),
        resize in some(number()),
        orphan in some(number()),
        stride in some(any::<u32>()),
        (packed, lazy) in any::<(bool, bool)>(),
        quota in some(any::<(bool, bool, bool)>()),
        owner in any::<(u32, u32)>(),
        mmp in any::<u16>(),
    ) -> Options {
        let set = |(name, on): (&str, bool)| {
            FeatureEdit::Set(feature_by_name(name).unwrap().bit, on)
        };
        options.features = edits.into_iter().map(set).collect();
        options.journal = JournalOptions {
            size_mib,
            location: location.map(Size::Plain),
            fast_commit_kib,
            ..JournalOptions::default()
        };
        let extended = &mut options.extended;
        extended.resize = resize.map(Size::Plain);
        extended.orphan_file_size = orphan.map(Size::Bytes);
        extended.stride = stride.unwrap_or(0);
        extended.packed_meta_blocks = packed;
        extended.lazy_itable_init = lazy;
        extended.quota_types = quota.map(|(user, group, project)| QuotaTypes {
            user,
            group,
            project,
        });
        extended.root_owner = owner;
        extended.mmp_update_interval = mmp;
        options
    }
}

fn check(layout: &Layout, device_len: u64) {
    assert_eq!(Geometry::new(&layout.superblock).unwrap(), layout.geometry);
    assert!(layout.len_bytes() <= device_len);
    let clusters: u64 = layout
        .groups
        .iter()
        .map(|g| u64::from(g.free_clusters))
        .sum();
    assert_eq!(
        clusters << layout.geometry.cluster_bits,
        layout.free_blocks()
    );
    let table = u64::from(layout.geometry.itable_blocks());
    for desc in &layout.groups {
        assert!(layout.geometry.contains(desc.inode_table, table));
        assert!(layout.geometry.contains(desc.block_bitmap, 1));
        assert!(layout.geometry.contains(desc.inode_bitmap, 1));
    }
    assert!(layout.geometry.has_super(GroupNr(0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_wish_is_answered(options in wishes(), len in 0u64..1 << 36) {
        if let Ok(layout) = layout(&options, len) {
            check(&layout, len);
        }
    }

    #[test]
    fn small_ones_can_be_written(options in wishes(), len in 0u64..16 << 20) {
        if let Ok(layout) = layout(&options, len) {
            let device = MemoryDevice::new(len);
            format(&layout, &device).unwrap();
            let sb = SuperBlock::parse(&device.to_bytes()[1024..]).unwrap();
            prop_assert_eq!(Geometry::new(&sb).unwrap(), layout.geometry);
        }
    }
}

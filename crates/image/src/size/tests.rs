//! The smallest size is found, whatever the shape.

use proptest::prelude::*;

use super::*;

fn options() -> Options {
    let mut options = Options::new([1; 16], [2; 16], 0);
    options.reserved_percent = 0.0;
    options
}

fn need(blocks: u64, inodes: u64) -> impl FnMut(&Layout) -> Result<Need, Error> {
    move |_| {
        Ok(Need {
            blocks,
            slack: 0,
            inodes,
        })
    }
}

fn chosen(options: &Options, size: Size, blocks: u64, inodes: u64) -> Layout {
    choose(options, size, None, &mut need(blocks, inodes)).unwrap()
}

#[test]
fn no_smaller_size_would_do() {
    for (blocks, inodes) in [
        (0, 0),
        (1, 1),
        (100, 5),
        (1500, 20),
        (32_000, 9),
        (40_000, 5000),
    ] {
        let options = options();
        let least = chosen(&options, Size::Min, blocks, inodes);
        assert!(least.free_blocks() >= blocks && u64::from(least.free_inodes()) >= inodes);
        let count = least.geometry.blocks_count;
        let mut smaller = with_defaults(&options);
        smaller.inodes = Some(least.geometry.inodes_count.into());
        for fewer in 1..=count.min(3000) {
            smaller.size = Some((count - fewer) * 4096);
            let enough =
                |l: &Layout| l.free_blocks() >= blocks && u64::from(l.free_inodes()) >= inodes;
            let found = layout(&smaller, u64::MAX);
            assert!(
                !found.is_ok_and(|l| enough(&l)),
                "{blocks} blocks fit {fewer} fewer"
            );
        }
    }
}

#[test]
fn free_space_is_what_df_shows_to_users() {
    let mut options = options();
    options.reserved_percent = 5.0;
    let bytes = 100 << 20;
    let layout = chosen(&options, Size::Free(bytes), 10_000, 500);
    let reserved = layout.superblock.reserved_blocks_count();
    let kept = layout.geometry.blocks_count / 50;
    let free = layout.free_blocks() - 10_000 - reserved - kept;
    assert!(free * 4096 >= bytes && free * 4096 < bytes + (1 << 20));
    assert!(reserved > 0);
    // Inodes in proportion: one for 16 KiB.
    assert!(u64::from(layout.free_inodes()) > layout.len_bytes() / 20_000);
}

#[test]
fn exact_sizes_are_taken_as_they_are() {
    let layout = chosen(&options(), Size::Exact(50 << 20), 1000, 100);
    assert_eq!(layout.len_bytes(), 50 << 20);
    assert_eq!(layout.geometry.block_size.bytes(), 1024);
    let small = choose(&options(), Size::Exact(1 << 20), None, &mut need(5000, 1));
    let error = small.unwrap_err().to_string();
    assert!(error.contains("needs 5120000 bytes"), "{error}");
    // As many inodes as it takes, unless a thread said how many.
    let many = chosen(&options(), Size::Exact(50 << 20), 1000, 20_000);
    assert!(many.free_inodes() >= 20_000);
    let mut few = options();
    few.inodes = Some(500);
    for size in [Size::Exact(50 << 20), Size::Min, Size::Free(0), Size::Auto] {
        let error = choose(&few, size, None, &mut need(1000, 20_000)).unwrap_err();
        assert!(error.to_string().contains("needs 20000 inodes"), "{error}");
    }
}

#[test]
fn inodes_without_blocks_do_not_make_it_huge() {
    let layout = chosen(&options(), Size::Min, 30_000, 1_000_000);
    assert!(u64::from(layout.free_inodes()) >= 1_000_000 && layout.free_blocks() >= 30_000);
    // The inode tables alone are 62,500 blocks, a journal 4,096.
    let blocks = layout.geometry.blocks_count;
    assert!(blocks < 115_000, "{blocks} blocks");
}

#[test]
fn a_tenth_more_in_whole_mebibytes() {
    let small = chosen(&options(), Size::Auto, 10, 10);
    assert!(small.free_blocks() >= 10 + (16 << 20) / 4096);
    assert!(small.len_bytes().is_multiple_of(1 << 20) && small.len_bytes() < 32 << 20);
    let large = chosen(&options(), Size::Auto, 1 << 20, 10);
    let free = large.free_blocks() - (1 << 20);
    assert!((104_857..160_000).contains(&free), "{free}");
}

#[test]
fn devices_are_filled_or_too_small() {
    let device_len = Some(100 << 20);
    let auto = choose(&options(), Size::Auto, device_len, &mut need(10, 10)).unwrap();
    assert_eq!(auto.len_bytes(), 100 << 20);
    let min = choose(&options(), Size::Min, device_len, &mut need(10, 10)).unwrap();
    assert!(min.len_bytes() < 1 << 20);
    let large = choose(&options(), Size::Min, device_len, &mut need(50_000, 10));
    assert!(matches!(
        large,
        Err(Error::Mkfs(uext4_mkfs::Error::DeviceTooSmall { .. }))
    ));
}

proptest! {
    #[test]
    fn enough_and_hardly_more(
        blocks in 0u64..3_000_000,
        blocks_an_inode in 2u64..50,
        log2 in 10u32..=16,
        journal in any::<bool>(),
    ) {
        let mut options = options();
        options.block_size = BlockSize::from_log2(log2).map(BlockSizeWish::Exactly);
        if !journal {
            options.features = uext4_mkfs::parse_features("^has_journal").unwrap();
        }
        let inodes = blocks / blocks_an_inode;
        let layout = chosen(&options, Size::Min, blocks, inodes);
        prop_assert!(layout.free_blocks() >= blocks);
        prop_assert!(u64::from(layout.free_inodes()) >= inodes);
        // A last group is made only if it has fifty blocks more than its metadata; with one group
        // more, all inode tables become shorter, by steps of eight inodes.
        let spare = layout.free_blocks() - blocks;
        let groups = u64::from(layout.geometry.groups_count.get());
        let slack = 64 + u64::from(layout.geometry.itable_blocks()) + 2 * groups;
        prop_assert!(spare <= slack, "{spare} blocks too many");
    }
}

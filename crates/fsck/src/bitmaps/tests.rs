//! Bitmaps and counts that debugfs has changed.

use crate::tests::TestImage;

const KINDS: &[&str] = &[
    "-t ext2 -b 1024",
    "-t ext4",
    "-t ext4 -O ^metadata_csum,uninit_bg -g 4096",
    "-t ext4 -O bigalloc",
    // Reserved inodes lie in more than one group.
    "-t ext4 -b 1024 -g 1024 -N 64 -O ^metadata_csum,^has_journal",
];

#[test]
fn clean_images_are_clean() {
    for kind in KINDS {
        assert_eq!(TestImage::new(kind, "16M").found(), [""; 0], "{kind}");
    }
}

#[test]
fn bits_that_differ_are_mended() {
    for kind in KINDS {
        let image = TestImage::new(kind, "16M");
        image.file("f", &[7; 200_000]);
        image.debugfs(&["freei <2>", "seti <15>", "setb 12000"]);
        let found = image.repair();
        for name in ["inode-bitmap-not-marked", "block-bitmap-marked"] {
            assert!(found.contains(&name), "{kind}: {found:?}");
        }
    }
}

#[test]
fn counts_that_differ_are_mended() {
    let image = TestImage::new("-t ext4", "16M");
    image.debugfs(&[
        "ssv free_blocks_count 1",
        "ssv free_inodes_count 2",
        "set_bg 0 free_blocks_count 3",
        "set_bg 0 free_inodes_count 4",
        "set_bg 0 used_dirs_count 5",
        "set_bg 0 checksum calc",
    ]);
    let expected = [
        "superblock-free-blocks",
        "superblock-free-inodes",
        "group-free-blocks",
        "group-free-inodes",
        "group-used-directories",
    ];
    let found = image.repair();
    for name in expected {
        assert!(found.contains(&name), "{name}: {found:?}");
    }
}

//! Nothing is found where nothing is wrong.

use super::*;

#[test]
fn nothing_is_found_in_new_file_systems_of_any_shape() {
    for (options, size) in [
        ("-t ext2 -b 1024", "8M"),
        ("-t ext2 -r 0 -O none", "8M"),
        ("-t ext2 -b 1024 -O ^sparse_super,^resize_inode", "40M"),
        ("-t ext3 -b 1024", "20M"),
        ("-t ext3 -b 4096 -I 128", "20M"),
        ("-t ext4 -b 1024", "40M"),
        ("-t ext4 -b 2048 -O ^64bit", "40M"),
        ("-t ext4 -b 65536", "160M"),
        ("-t ext4 -O ^metadata_csum,uninit_bg", "40M"),
        ("-t ext4 -O ^metadata_csum,^uninit_bg", "40M"),
        ("-t ext4 -O meta_bg,^resize_inode -b 1024", "300M"),
        ("-t ext4 -O sparse_super2,^resize_inode -b 1024", "60M"),
        ("-t ext4 -O bigalloc -C 16384 -b 1024", "60M"),
        ("-t ext4 -O bigalloc -b 4096", "200M"),
        ("-t ext4 -O ^flex_bg -b 1024", "60M"),
        ("-t ext4 -G 4 -b 1024 -g 2048", "60M"),
        ("-t ext4 -O orphan_file,metadata_csum_seed", "40M"),
        ("-t ext4 -O fast_commit", "40M"),
        ("-t ext4 -O ^has_journal", "40M"),
        ("-t ext4 -O quota,project,mmp,inline_data,large_dir", "40M"),
        (
            "-t ext4 -O casefold,encrypt,verity,ea_inode,stable_inodes",
            "40M",
        ),
        ("-t ext4 -E packed_meta_blocks=1", "160M"),
        (
            "-t ext4 -E stride=5,stripe-width=9 -O ^flex_bg -b 1024",
            "60M",
        ),
        ("-t ext4 -E resize=100000000", "40M"),
        ("-t ext4 -N 16", "40M"),
    ] {
        let found = opened(&made(options, size), &now());
        found
            .result
            .unwrap_or_else(|error| panic!("{options}: {error}"));
        assert_eq!(found.texts, [""; 0], "{options}");
    }
}

//! Files that debugfs gave the blocks of others.

use uext4_testkit::e2fsprogs::debugfs;

use crate::SharedBlocks;
use crate::tests::TestImage;

const OLD: &str = "-t ext2 -b 1024";

/// Two files of three blocks; the second one's middle block is the first one's.
fn shared() -> TestImage {
    let image = TestImage::new(OLD, "8M");
    image.file("a", &[b'a'; 3072]);
    image.file("b", &[b'b'; 3072]);
    let block = debugfs(image.path(), "bmap a 1");
    image.debugfs(&[&format!("sif b block[1] {}", block.trim())]);
    image
}

#[test]
fn each_owner_gets_a_copy() {
    let image = shared();
    assert!(image.repair().contains(&"blocks-shared"));
    let (a, b) = ("a".repeat(1024), "b".repeat(1024));
    assert_eq!(debugfs(image.path(), "cat a"), a.repeat(3));
    assert_eq!(debugfs(image.path(), "cat b"), [&b[..], &a, &b].concat());
}

#[test]
fn the_first_keeps_them_if_that_is_asked_for() {
    let mut image = shared();
    image.options.shared_blocks = SharedBlocks::KeepOldest;
    assert!(image.repair().contains(&"blocks-shared-given"));
    let (b, hole) = ("b".repeat(1024), "\0".repeat(1024));
    assert_eq!(debugfs(image.path(), "cat b"), [&b[..], &hole, &b].concat());
}

#[test]
fn one_file_that_has_a_block_twice_gets_two() {
    let image = TestImage::new(OLD, "8M");
    image.file("a", &[b'a'; 3072]);
    let block = debugfs(image.path(), "bmap a 0");
    image.debugfs(&[&format!("sif a block[2] {}", block.trim())]);
    assert!(image.repair().contains(&"blocks-shared"));
    assert_eq!(debugfs(image.path(), "cat a"), "a".repeat(3072));
}

#[test]
fn metadata_of_the_file_system_wins() {
    let image = TestImage::new(OLD, "8M");
    image.file("a", &[b'a'; 3072]);
    image.debugfs(&["sif a block[1] 3"]);
    let found = image.repair();
    assert!(found.iter().any(|name| name.contains("block")), "{found:?}");
    assert!(debugfs(image.path(), "cat a").starts_with(&"a".repeat(1024)));
}

/// `count` small files that have the table of the file `a`, with its 300 blocks, as theirs.
fn with_sharers(count: u32) -> TestImage {
    let image = TestImage::new("-t ext2 -b 1024 -N 256", "8M");
    image.file("a", &[b'a'; 268 * 1024]);
    let table = debugfs(image.path(), "stat a");
    let (_, table) = table.split_once("(IND):").unwrap();
    let table = table.split(',').next().unwrap().trim().to_owned();
    for i in 0..count {
        image.file(&format!("f{i}"), b"f");
        image.debugfs(&[&format!("sif f{i} block[IND] {table}")]);
    }
    image
}

#[test]
fn copies_end_before_the_space_does_and_the_rest_is_given_up() {
    let image = with_sharers(60);
    let found = image.repair();
    assert!(found.contains(&"blocks-shared"));
    assert!(found.contains(&"blocks-shared-no-space"));
    assert_eq!(debugfs(image.path(), "cat a"), "a".repeat(268 * 1024));
    assert!(debugfs(image.path(), "cat f59").starts_with('f'));
}

#[test]
fn maps_that_find_no_space_keep_what_the_inode_can_map() {
    let image = with_sharers(120);
    let text = debugfs(image.path(), "stats");
    let (_, free) = text.split_once("Free blocks:").unwrap();
    let free: usize = free.split_whitespace().next().unwrap().parse().unwrap();
    image.file("full", &vec![b'x'; (free - free / 200 - 5) * 1024]);
    let found = image.repair();
    assert!(found.contains(&"map-no-space"), "{found:?}");
    assert_eq!(debugfs(image.path(), "cat a"), "a".repeat(268 * 1024));
    assert!(debugfs(image.path(), "cat f119").starts_with('f'));
}

#[test]
fn a_cluster_that_is_written_in_part_is_copied_whole() {
    let image = TestImage::new("-t ext4 -b 1024 -C 4096 -O bigalloc,^metadata_csum", "16M");
    image.file("a", &[b'a'; 2048]);
    image.file("b", &[b'b'; 2048]);
    let block: u32 = debugfs(image.path(), "bmap a 0").trim().parse().unwrap();
    let text = debugfs(image.path(), "imap b");
    let (_, place) = text.split_once("located at block ").unwrap();
    let (at, offset) = place.trim().split_once(", offset 0x").unwrap();
    let at = at.parse::<usize>().unwrap() * 1024 + usize::from_str_radix(offset, 16).unwrap();
    image.change(|bytes| {
        // Two extents: a block that was never written, and the one behind it.
        let map = &mut bytes[at + 40..at + 100];
        map[2] = 2;
        for (i, len) in [(0, 0x8001_u16), (1, 1)] {
            let extent = &mut map[12 + i as usize * 12..][..12];
            extent.fill(0);
            extent[..4].copy_from_slice(&u32::to_le_bytes(i));
            extent[4..6].copy_from_slice(&len.to_le_bytes());
            extent[8..].copy_from_slice(&(block + i).to_le_bytes());
        }
    });
    assert!(image.repair().contains(&"blocks-shared"));
    let read = debugfs(image.path(), "cat b");
    assert_eq!(read, ["\0".repeat(1024), "a".repeat(1024)].concat());
    assert_eq!(debugfs(image.path(), "cat a"), "a".repeat(2048));
}

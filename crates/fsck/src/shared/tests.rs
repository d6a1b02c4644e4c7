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

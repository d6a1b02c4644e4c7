//! Maps whose blocks are nodes of themselves, or of too many.

use std::time::{Duration, Instant};

use uext4_testkit::e2fsprogs::debugfs;

use crate::tests::TestImage;

/// No walk over an image this small takes longer.
const LONG: Duration = Duration::from_secs(10);

/// An image with the file `a` of one block, and the number of that.
fn one_file(options: &str) -> (TestImage, u32) {
    let image = TestImage::new(options, "8M");
    image.file("a", &[b'a'; 1024]);
    let block = debugfs(image.path(), "bmap a 0").trim().parse().unwrap();
    (image, block)
}

/// Where an inode begins, by what debugfs says.
fn place(image: &TestImage, name: &str) -> usize {
    let text = debugfs(image.path(), &format!("imap {name}"));
    let (_, place) = text.split_once("located at block ").unwrap();
    let (block, offset) = place.trim().split_once(", offset 0x").unwrap();
    let offset = usize::from_str_radix(offset, 16).unwrap();
    block.parse::<usize>().unwrap() * 1024 + offset
}

/// A node whose entries are all the same index.
fn node(depth: u16, entries: u16, leaf: u32) -> Vec<u8> {
    let head = [0xF30A, entries, entries, depth, 0, 0];
    let mut bytes: Vec<u8> = head.iter().flat_map(|n: &u16| n.to_le_bytes()).collect();
    for _ in 0..entries {
        for number in [0, leaf, 0] {
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn a_node_that_names_itself_is_walked_once() {
    let (image, block) = one_file("-t ext4 -b 1024 -O ^metadata_csum,^has_journal");
    let inode = place(&image, "a");
    image.change(|bytes| {
        bytes[inode + 40..inode + 40 + 60].copy_from_slice(&node(5, 4, block));
        let at = block as usize * 1024;
        bytes[at..at + 1020].copy_from_slice(&node(4, 84, block));
    });
    let start = Instant::now();
    assert!(image.repair().contains(&"map-node-twice"));
    assert!(start.elapsed() < LONG);
}

#[test]
fn a_table_that_names_itself_is_walked_once() {
    let (image, block) = one_file("-t ext2 -b 1024");
    image.change(|bytes| {
        let at = block as usize * 1024;
        bytes[at..at + 1024].copy_from_slice(&block.to_le_bytes().repeat(256));
    });
    for slot in ["IND", "DIND", "TIND"] {
        image.debugfs(&[&format!("sif a block[{slot}] {block}")]);
    }
    let start = Instant::now();
    assert!(image.repair().contains(&"map-node-twice"));
    assert!(start.elapsed() < LONG);
}

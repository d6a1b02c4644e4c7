//! Maps whose blocks are nodes of themselves, or of too many, and trees that one wrong number makes
//! look like another.

use std::fs;
use std::time::{Duration, Instant};

use uext4_testkit::e2fsprogs::{debugfs, debugfs_write};

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

/// A file of 40 extents of one block, with a hole after each, in a tree of one leaf.
struct Fragments {
    image: TestImage,
    contents: Vec<u8>,
    leaf: usize,
}

impl Fragments {
    fn new() -> Self {
        Self::with("-t ext4 -b 1024 -O ^metadata_csum,^has_journal")
    }

    fn with(options: &str) -> Self {
        let image = TestImage::new(options, "8M");
        let mut contents = vec![0; 79 * 1024];
        for at in (0..79).step_by(2) {
            contents[at * 1024..][..1024].fill(u8::try_from(at).unwrap() + 1);
        }
        image.file("f", &contents);
        let shown = debugfs(image.path(), "ex f");
        // Level, entries, logical blocks, then the block of the leaf and the length.
        let root = shown.lines().find(|line| line.contains("0/ 1")).unwrap();
        let leaf = root.split_whitespace().rev().nth(1).unwrap();
        let leaf = leaf.parse::<usize>().unwrap() * 1024;
        Self {
            image,
            contents,
            leaf,
        }
    }

    /// Changes bytes of the leaf.
    fn change(&self, change: impl FnOnce(&mut [u8])) {
        self.image
            .change(|bytes| change(&mut bytes[self.leaf..][..1024]));
    }

    /// Repairs the image. The file holds what it did, but for these blocks, which are holes now.
    #[track_caller]
    fn assert_kept(&self, wanted: &str, holes: &[usize]) {
        let found = self.image.repair();
        assert!(found.contains(&wanted), "{found:?}");
        let mut contents = self.contents.clone();
        for &hole in holes {
            contents[hole * 1024..][..1024].fill(0);
        }
        let kept = dumped(&self.image, "f");
        let blocks = kept.chunks(1024).zip(contents.chunks(1024));
        let wrong = (0..).zip(blocks).filter(|(_, (a, b))| a != b);
        let wrong: Vec<usize> = wrong.map(|(at, _)| at).collect();
        assert_eq!(
            (kept.len(), wrong),
            (contents.len(), Vec::new()),
            "{found:?}"
        );
    }
}

/// What a file holds, by debugfs.
fn dumped(image: &TestImage, name: &str) -> Vec<u8> {
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump {name} {}", out.display())]);
    fs::read(out).unwrap()
}

/// Where an entry of a leaf begins.
fn entry(at: usize) -> usize {
    12 * (at + 1)
}

#[test]
fn extents_in_the_wrong_order_are_all_kept() {
    let file = Fragments::new();
    file.change(|leaf| {
        for byte in 0..12 {
            leaf.swap(entry(3) + byte, entry(30) + byte);
        }
    });
    file.assert_kept("extent-order", &[]);
}

#[test]
fn an_extent_that_jumped_ahead_costs_no_other() {
    for lblk in [1000_u32, 0xFFFF_FFF0] {
        let file = Fragments::new();
        file.change(|leaf| leaf[entry(5)..][..4].copy_from_slice(&lblk.to_le_bytes()));
        file.assert_kept("extent-order", &[10]);
    }
}

#[test]
fn an_extent_that_is_too_long_costs_nothing() {
    for (at, problem) in [(5, "extent-order"), (39, "inode-blocks-past-end")] {
        let file = Fragments::new();
        file.change(|leaf| leaf[entry(at) + 4..][..2].copy_from_slice(&500_u16.to_le_bytes()));
        file.assert_kept(problem, &[]);
    }
}

#[test]
fn a_tree_whose_root_lies_about_its_depth_is_read_as_it_is() {
    // `eh_max` and `eh_depth`.
    for root in ["0x4", "0x20004", "0x50004", "0x90004", "0xffff0004"] {
        for features in ["^metadata_csum,^has_journal", "^has_journal"] {
            let file = Fragments::with(&format!("-t ext4 -b 1024 -O {features}"));
            file.image.debugfs(&[&format!("sif f block[1] {root}")]);
            file.assert_kept("extent-root-depth", &[]);
        }
    }
}

/// An extent of garbage that reads as an index of the other file's leaf.
#[test]
fn an_entry_that_is_garbage_does_not_give_a_file_the_tree_of_another() {
    for features in ["^metadata_csum,^has_journal", "^has_journal"] {
        let file = Fragments::with(&format!("-t ext4 -b 1024 -O {features}"));
        file.image.file("a", &[b'a'; 1024]);
        file.image.debugfs(&[
            "sif a block[3] 0",
            &format!("sif a block[4] {}", file.leaf / 1024),
            "sif a block[5] 0x7fff0000",
        ]);
        file.assert_kept("extent-range", &[]);
        assert_eq!(dumped(&file.image, "a"), [0; 1024], "{features}");
    }
}

#[test]
fn extents_in_a_root_that_says_it_names_nodes_are_kept() {
    let image = TestImage::new("-t ext4 -b 1024", "8M");
    let contents: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    image.file("f", &contents);
    image.debugfs(&["mkdir d", "mkdir d/sub"]);
    image.debugfs(&["sif f block[1] 0x10004", "sif d block[1] 0x30004"]);
    let found = image.repair();
    assert!(found.contains(&"extent-root-depth"), "{found:?}");
    assert_eq!(dumped(&image, "f"), contents);
    assert!(debugfs(image.path(), "ls d").contains("sub"));
}

#[test]
fn a_leaf_with_a_depth_that_cannot_be_is_read_as_its_parent_says() {
    for depth in [1_u16, 9, u16::MAX] {
        let file = Fragments::new();
        file.change(|leaf| leaf[6..8].copy_from_slice(&depth.to_le_bytes()));
        file.assert_kept("extent-node-depth", &[]);
    }
}

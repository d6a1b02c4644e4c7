//! Orphans whose maps name what is not theirs, on images by mke2fs that debugfs damages.

use std::fs;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::xattr::{self, XattrBlockHeader};
use uext4_ondisk::{Geometry, Pblk};
use uext4_testkit::e2fsprogs::{debugfs, debugfs_write};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::overlay::Overlay;
use crate::superblock;
use crate::tests::TestImage;

/// Extents in the inode, extents in a node, block numbers, and tables of them.
const MAPS: [(&str, usize); 4] = [
    ("-t ext4 -b 1024 -O ^orphan_file", 10_000),
    ("-t ext4 -b 1024 -O ^orphan_file,^metadata_csum", 10_000),
    ("-t ext2 -b 1024 -I 128", 10_000),
    ("-t ext2 -b 1024 -I 128", 600_000),
];

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

/// An image with the file `f` in inode 12 and the empty files `a` and `b` in 13 and 14.
fn files(options: &str, len: usize) -> TestImage {
    let image = TestImage::new(options, "16M");
    image.file("f", &contents(len));
    image.file("a", b"");
    image.file("b", b"");
    image
}

/// Makes deleted orphans of some of the inodes 13 and 14.
fn delete(image: &TestImage, inodes: &[u32]) {
    let mut next = 0;
    for &ino in inodes {
        let name = if ino == 13 { "a" } else { "b" };
        image.debugfs(&[
            &format!("sif <{ino}> links_count 0"),
            &format!("sif <{ino}> dtime @{next}"),
            &format!("ssv last_orphan {ino}"),
            &format!("unlink {name}"),
        ]);
        next = ino;
    }
}

#[track_caller]
fn assert_damage(image: &TestImage, wanted: &str, what: &str) {
    let found = image.found();
    assert!(
        found.contains(&wanted) && !image.is_clean(),
        "{what}: {found:?}"
    );
}

/// Repairs the image: `f` holds what it did, and all its blocks are in use.
#[track_caller]
fn assert_f_is_kept(image: &TestImage, len: usize) {
    image.repair();
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump f {}", out.display())]);
    assert!(fs::read(out).unwrap() == contents(len));
}

#[test]
fn blocks_of_an_orphan_that_a_file_has_are_damage_and_stay_the_files() {
    for (options, len) in MAPS {
        for is_deleted in [true, false] {
            let image = files(options, len);
            image.debugfs(&["copy_inode <12> <13>"]);
            match is_deleted {
                true => delete(&image, &[13]),
                false => image.debugfs(&["sif <13> size 0", "ssv last_orphan 13"]),
            }
            let what = format!("{options} {len} {is_deleted}");
            assert_damage(&image, "orphan-blocks-shared", &what);
            assert_f_is_kept(&image, len);
        }
    }
}

/// A tree that is another file's, as its checksum shows, is not cut for an orphan.
#[test]
fn a_node_of_a_file_is_not_cut_for_an_orphan() {
    let image = TestImage::new("-t ext4 -b 1024 -O ^orphan_file", "16M");
    let mut fragments = contents(80_000);
    for hole in (1..78).step_by(2) {
        fragments[hole * 1024..][..1024].fill(0);
    }
    image.file("f", &fragments);
    image.file("a", b"");
    let requests = [
        "copy_inode <12> <13>",
        "sif <13> size 20000",
        "ssv last_orphan 13",
    ];
    image.debugfs(&requests);
    assert!(!image.is_clean());
    image.repair();
    let out = image.path().with_file_name("out");
    debugfs_write(image.path(), [format!("dump f {}", out.display())]);
    assert!(fs::read(out).unwrap() == fragments);
}

#[test]
fn blocks_of_two_orphans_are_damage() {
    for (options, len) in MAPS {
        let image = files(options, len);
        image.debugfs(&["copy_inode <12> <13>", "copy_inode <12> <14>", "rm f"]);
        delete(&image, &[13, 14]);
        assert_damage(&image, "orphan-blocks-shared", options);
        image.repair();
    }
}

#[test]
fn metadata_in_the_map_of_an_orphan_is_damage() {
    for block in ["1", "4", "30", "70"] {
        let image = files("-t ext2 -b 1024 -I 128", 10_000);
        let used = debugfs(image.path(), &format!("testb {block}"));
        assert!(used.contains("marked in use"), "{used}");
        let set = format!("sif <13> block[0] {block}");
        image.debugfs(&[&set, "sif <13> blocks 2", "sif <13> size 1024"]);
        delete(&image, &[13]);
        assert_damage(&image, "orphan-blocks-shared", block);
        assert_f_is_kept(&image, 10_000);
    }
}

#[test]
fn blocks_of_an_orphan_that_are_free_or_nowhere_are_damage() {
    for (request, wanted) in [
        ("freeb BLOCK", "orphan-blocks-free"),
        ("sif <13> block[1] 99999999", "orphan-block-range"),
        ("sif <13> block[IND] 99999999", "orphan-block-range"),
    ] {
        let image = TestImage::new("-t ext2 -b 1024 -I 128", "16M");
        image.file("f", &contents(10_000));
        image.file("a", &[b'a'; 1024]);
        let block = debugfs(image.path(), "bmap a 0");
        let request = request.replace("BLOCK", block.trim());
        delete(&image, &[13]);
        assert!(image.is_clean(), "{:?}", image.found());
        image.debugfs(&[&request]);
        assert_damage(&image, wanted, &request);
        assert_f_is_kept(&image, 10_000);
    }
}

/// Clusters that neighbouring extents of an orphan share are its own.
#[test]
fn an_orphan_that_has_a_cluster_in_parts_is_clean() {
    let image = TestImage::new("-t ext4 -b 1024 -O bigalloc,^orphan_file -C 16384", "16M");
    let mut bytes = contents(60_000);
    bytes[2048..6144].fill(0);
    bytes[20_480..24_576].fill(0);
    image.file("a", &bytes);
    let blocks = debugfs(image.path(), "ex a");
    assert!(blocks.lines().count() > 3, "{blocks}");
    image.debugfs(&["ssv last_orphan 12", "sif <12> links_count 0", "unlink a"]);
    assert!(image.is_clean(), "{:?}", image.found());
    image.repair();
}

/// Each node is read once, however many orphans name it.
#[test]
fn a_tree_that_many_orphans_name_is_read_once() {
    let image = TestImage::new("-t ext2 -b 1024 -I 128", "16M");
    image.file("f", &contents(600_000));
    for ino in 13..43 {
        image.file(&format!("o{ino}"), b"");
        image.debugfs(&[
            &format!("copy_inode <12> <{ino}>"),
            &format!("sif <{ino}> links_count 0"),
            &format!("sif <{ino}> dtime @{}", if ino == 13 { 0 } else { ino - 1 }),
            &format!("unlink o{ino}"),
        ]);
    }
    image.debugfs(&["ssv last_orphan 42"]);
    let bytes = fs::read(image.path()).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes));
    let size = superblock::block_size(&device, &image.options).unwrap();
    let findings = Findings::new(&(), 1000);
    let overlay = Overlay::new(device, size, u64::MAX);
    let opened = superblock::open(overlay, &image.options, &findings).unwrap();
    let held = opened.held;
    assert_eq!(held.inodes.len(), 30);
    // A table, and one with two more.
    assert_eq!(Held::default().node_bytes - held.node_bytes, 4 * 1024);
    let clusters = held.clusters().unwrap();
    let all: u32 = (0..opened.volume.geometry().groups_count.get())
        .flat_map(|group| clusters.words(uext4_ondisk::GroupNr(group)))
        .map(u64::count_ones)
        .sum();
    assert_eq!(all, 586 + 4);
}

/// An image whose files 12 and 13 have one block of attributes, and where that is.
fn with_attributes() -> (TestImage, usize) {
    let image = files("-t ext4 -b 1024 -I 128 -O ^orphan_file", 10_000);
    image.debugfs(&[&format!("ea_set <12> user.long {}", "v".repeat(200))]);
    let text = debugfs(image.path(), "stat <12>");
    let (_, block) = text.split_once("File ACL: ").unwrap();
    let block: u64 = block.split_whitespace().next().unwrap().parse().unwrap();
    image.debugfs(&[&format!("sif <13> file_acl {block}"), "sif <13> blocks 2"]);
    let at = usize::try_from(block).unwrap() * 1024;
    image.change(|bytes| {
        let superblock = SuperBlock::parse(&bytes[1024..2048]).unwrap();
        let seed = Geometry::new(&superblock).unwrap().csum_seed.unwrap();
        let attributes = &mut bytes[at..at + 1024];
        let (mut header, _) = XattrBlockHeader::read_from_prefix(attributes).unwrap();
        header.h_refcount = 2.into();
        header.write_to_prefix(attributes).unwrap();
        xattr::update_checksum(attributes, Pblk(block), seed);
    });
    assert!(image.is_clean(), "{:?}", image.found());
    (image, at)
}

#[test]
fn damage_of_a_block_of_attributes_is_found_although_an_orphan_has_it_too() {
    for has_orphan in [false, true] {
        let (image, at) = with_attributes();
        if has_orphan {
            delete(&image, &[13]);
            assert!(image.is_clean(), "{:?}", image.found());
        }
        // Between entries and values.
        image.change(|bytes| bytes[at + 400] ^= 1);
        assert_damage(&image, "xattr-block-checksum", &format!("{has_orphan}"));
        image.repair();
    }
}

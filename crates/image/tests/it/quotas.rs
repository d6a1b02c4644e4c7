//! Quota files of built images count what e2fsprogs counts, and are stored in the same bytes.

use std::path::Path;

use uext4_image::{BuildOptions, Builder, Report, Size};
use uext4_mkfs::{BlockSizeWish, parse_extended, parse_features};
use uext4_ondisk::BlockSize;
use uext4_testkit::{assert_clean, debugfs, run, scratch};

use crate::fixture::tar_member;

/// Files, directories and links of very many owners, so that there are several leaves and trees.
fn archive() -> Vec<u8> {
    let mut tar = Vec::new();
    for i in 0..40u32 {
        let (uid, gid) = (1 << (i % 21) | i, 7 * (i % 18));
        let contents = vec![b'x'; (i * 700) as usize];
        tar.extend(tar_member(
            &format!("f{i}"),
            b'0',
            (uid, gid),
            "",
            &contents,
        ));
        let target = "t".repeat(40 + i as usize);
        tar.extend(tar_member(&format!("l{i}"), b'2', (uid, 3), &target, b""));
        tar.extend(tar_member(&format!("d{i}/"), b'5', (5, gid), "", b""));
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn made(image: &Path, features: &str, block_size: u32, size: Size) -> Report {
    let mut options = BuildOptions {
        size,
        ..BuildOptions::default()
    };
    options.mkfs.features = parse_features(features).unwrap();
    let block_size = BlockSize::from_bytes(block_size).unwrap();
    options.mkfs.block_size = Some(BlockSizeWish::Exactly(block_size));
    let mut builder = Builder::new(options);
    builder.archive("x.tar", std::io::Cursor::new(archive()));
    let report = builder.build(image, &()).unwrap();
    // e2fsck counts what every owner has.
    assert_clean(image);
    report
}

/// The bytes of the quota files.
fn files(image: &Path, inos: &[u32]) -> Vec<Vec<u8>> {
    let out = image.with_extension("out");
    let dump = |ino: &u32| {
        debugfs(image, &format!("dump <{ino}> {}", out.display()));
        std::fs::read(&out).unwrap()
    };
    inos.iter().map(dump).collect()
}

#[test]
fn files_are_those_that_tune2fs_makes() {
    let dir = scratch();
    let image = dir.path().join("image");
    for features in [
        "quota",
        "quota,inline_data",
        "quota,^extent,^64bit,^metadata_csum",
    ] {
        for block_size in [1024, 4096] {
            made(&image, features, block_size, Size::Free(1 << 20));
            let ours = files(&image, &[3, 4]);
            assert!(ours.iter().all(|file| file.len() > 6 * 1024), "{features}");
            run("tune2fs", ["-O", "^quota", image.to_str().unwrap()]);
            run("tune2fs", ["-O", "quota", image.to_str().unwrap()]);
            assert!(ours == files(&image, &[3, 4]), "{features} {block_size}");
        }
    }
}

#[test]
fn the_smallest_image_has_room_for_them_and_no_more() {
    let dir = scratch();
    let image = dir.path().join("image");
    for features in ["quota", "quota,project"] {
        for block_size in [1024, 4096] {
            let report = made(&image, features, block_size, Size::Min);
            let free = report.summary.free_blocks;
            assert!(free <= 6, "{features} {block_size}: {free} blocks are free");
        }
    }
}

#[test]
fn types_that_were_not_asked_for_have_none() {
    let dir = scratch();
    let image = dir.path().join("image");
    let mut options = BuildOptions::default();
    options.mkfs.features = parse_features("quota").unwrap();
    parse_extended("quotatype=grpquota", &mut options.mkfs.extended).unwrap();
    let mut builder = Builder::new(options);
    builder.archive("x.tar", std::io::Cursor::new(archive()));
    builder.build(&image, &()).unwrap();
    assert_clean(&image);
    assert!(debugfs(&image, "list_quota group").lines().count() > 15);
    assert!(!uext4_testkit::dumpe2fs(&image).contains("User quota inode"));
}

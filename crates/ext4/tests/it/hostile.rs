//! Damaged images of every kind neither panic nor hang the engine.
//!
//! Small images of the real mke2fs are changed at random, most of all where metadata is, and then
//! read from end to end. The fuzzer does the same with more patience.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uext4_blockdev::{MemoryDevice, SplitMix64};

use crate::exercise::exercise;
use crate::mke2fs::mke2fs;

/// Images made from each seed image.
fn rounds() -> u64 {
    if std::env::var_os("UEXT4_LONG").is_some() {
        20_000
    } else {
        150
    }
}

/// A little of everything, so that a small image has many structures.
fn fill(root: &Path) {
    std::fs::create_dir_all(root.join("d/e/f")).unwrap();
    for i in 0..60 {
        std::fs::write(
            root.join(format!("d/a longer name for more blocks {i}")),
            [i; 300],
        )
        .unwrap();
    }
    std::fs::write(root.join("d/file"), vec![1; 40_000]).unwrap();
    std::os::unix::fs::symlink("d/file", root.join("link")).unwrap();
    std::os::unix::fs::symlink("x/".repeat(100), root.join("long")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(root.join("d/file"), "user.big", &[7; 600], flags).unwrap();
}

fn hammer(flags: &[&str], size: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    fill(&source);
    mke2fs(&image, flags, Some(&source), size);
    // The kernel would have hashed the directory: so does e2fsck -D.
    let _ = Command::new("e2fsck").args(["-fyD"]).arg(&image).output();
    let good = std::fs::read(&image).unwrap();
    let mut random = SplitMix64::new(good.len() as u64);
    for _ in 0..rounds() {
        let mut bytes = good.clone();
        for _ in 0..1 + random.next_u64() % 12 {
            mutate(&mut bytes, &mut random);
        }
        exercise(Arc::new(MemoryDevice::from_bytes(bytes)));
    }
}

/// Changes a few bytes somewhere that was not empty.
fn mutate(bytes: &mut [u8], random: &mut SplitMix64) {
    for _ in 0..1000 {
        let at = random.next_u64() as usize % bytes.len();
        if bytes[at] == 0 && !random.next_u64().is_multiple_of(16) {
            continue;
        }
        let interesting = [0, 1, 0x7F, 0x80, 0xFF, random.next_u64() as u8];
        for byte in bytes
            .iter_mut()
            .skip(at)
            .take(1 + random.next_u64() as usize % 4)
        {
            *byte = interesting[random.next_u64() as usize % interesting.len()];
        }
        return;
    }
}

#[test]
fn extents_without_checksums() {
    hammer(
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^has_journal,dir_index",
            "-N",
            "128",
        ],
        "512K",
    );
}

#[test]
fn indirect_blocks() {
    hammer(&["-t", "ext2", "-b", "1024", "-N", "128"], "512K");
}

#[test]
fn inline_data_and_large_inodes() {
    let features = "^metadata_csum,^has_journal,inline_data,ea_inode";
    hammer(
        &[
            "-t", "ext4", "-b", "1024", "-I", "512", "-O", features, "-N", "128",
        ],
        "768K",
    );
}

#[test]
fn clusters() {
    hammer(
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-C",
            "4096",
            "-O",
            "^metadata_csum,^has_journal,bigalloc",
            "-N",
            "128",
        ],
        "2M",
    );
}

#[test]
fn with_checksums() {
    hammer(
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^has_journal,metadata_csum",
            "-N",
            "128",
        ],
        "512K",
    );
}

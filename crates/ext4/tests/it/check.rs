//! The check calls images of the real mke2fs clean, and names what debugfs broke in them.

use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use uext4::check::Issue;
use uext4::{Creation, Image, NewInode, OpenOptions, Volume};
use uext4_blockdev::{MemoryDevice, SystemClock};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_testkit::debugfs_write;

use crate::mke2fs::{make_source, mke2fs};
use crate::tree::open;

fn issues(image: &Path) -> Vec<Issue> {
    let mut issues = Vec::new();
    let summary = open(image).check(&mut |issue| issues.push(issue)).unwrap();
    assert_eq!(summary.issues, issues.len() as u64);
    issues
}

#[test]
fn images_of_mke2fs_are_clean() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    make_source(&source);
    let flags: &[&[&str]] = &[
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg"],
        &["-t", "ext4", "-O", "^flex_bg,^resize_inode,meta_bg"],
        &["-t", "ext4", "-O", "bigalloc", "-C", "65536"],
        &["-t", "ext4", "-O", "inline_data"],
        &[
            "-t",
            "ext4",
            "-O",
            "sparse_super2,orphan_file,metadata_csum_seed",
        ],
        &["-t", "ext4", "-O", "quota,project"],
        &["-t", "ext4", "-O", "mmp"],
        &["-t", "ext3"],
        &["-t", "ext2", "-b", "1024", "-I", "128"],
    ];
    for flags in flags {
        let _ = std::fs::remove_file(&image);
        mke2fs(&image, flags, Some(&source), "160M");
        assert_eq!(issues(&image), [], "{flags:?}");
    }
}

#[test]
fn an_mmp_block_that_is_free_or_elsewhere_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    mke2fs(
        &image,
        &["-t", "ext4", "-O", "mmp,^metadata_csum"],
        None,
        "64M",
    );
    let block = open(&image).superblock().s_mmp_block.get();
    let kinds = || issues(&image).iter().map(Issue::kind).collect::<Vec<_>>();
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    let at = SUPERBLOCK_OFFSET + offset_of!(SuperBlock, s_mmp_block) as u64;
    for (place, expected) in [
        (99_999_999, Some("damage")),
        (1, Some("shared-block")),
        (block, None),
    ] {
        file.write_all_at(&place.to_le_bytes(), at).unwrap();
        assert_eq!(kinds().first().copied(), expected);
    }
    debugfs_write(&image, [format!("freeb {block}")]);
    assert_eq!(kinds(), ["blocks-not-marked"]);
}

/// Breaks a fresh image with debugfs commands and reports the kinds of issues found.
fn kinds_after(commands: &[&str]) -> Vec<&'static str> {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::create_dir_all(source.join("d/e")).unwrap();
    std::fs::write(source.join("d/file"), vec![7; 50_000]).unwrap();
    mke2fs(&image, &["-t", "ext4"], Some(&source), "64M");
    debugfs_write(&image, commands);
    let mut kinds: Vec<_> = issues(&image).iter().map(Issue::kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn what_debugfs_breaks_is_named() {
    let cases: &[(&str, &[&str])] = &[
        ("sif d/file links_count 5", &["link-count"]),
        ("sif d/file blocks 2", &["inode-blocks"]),
        ("sif d/file size 1", &["inode-size"]),
        (
            "sif d/file mode 040644",
            &["damage", "group-count", "inode-size", "name-type"],
        ),
        ("unlink d/file", &["unreachable"]),
        (
            "clri d/file",
            &["blocks-unowned", "damage", "dangling-name", "group-count"],
        ),
        ("freei d/file", &["group-count", "inode-bitmap"]),
        ("link d/e f", &["second-parent"]),
        ("set_super_value last_orphan 8", &["orphan"]),
        ("link <8> journal", &["reserved-name"]),
        ("link / d/root", &["second-parent"]),
    ];
    for (command, expected) in cases {
        let kinds = kinds_after(&[command]);
        for kind in *expected {
            assert!(
                kinds.contains(kind),
                "{command}: {kind} is not among {kinds:?}"
            );
        }
    }
}

#[test]
fn inodes_that_wait_for_their_deletion_are_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    for flags in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "orphan_file"]] {
        let _ = std::fs::remove_file(&image);
        mke2fs(&image, flags, None, "64M");
        let device = uext4_testkit::loaded(&image);
        let options = OpenOptions::default();
        let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
        let root = fs.root().unwrap();
        let creation = Creation {
            mode: 0o755,
            ..Creation::default()
        };
        let parent = root.create(b"p", NewInode::Directory, &creation).unwrap();
        let removed = parent.create(b"d", NewInode::Directory, &creation).unwrap();
        let file = parent.create(b"f", NewInode::File, &creation).unwrap();
        file.write_at(0, &[7; 50_000]).unwrap();
        let unnamed = parent.create_unnamed(NewInode::File, &creation).unwrap();
        parent.rmdir(b"d").unwrap();
        parent.unlink(b"f").unwrap();
        fs.sync().unwrap();
        // As the medium is after a crash.
        let crashed = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
        drop((removed, file, unnamed));
        let mut issues = Vec::new();
        let crashed = Image::open(crashed, &options).unwrap();
        let summary = crashed.check(&mut |issue| issues.push(issue)).unwrap();
        assert_eq!((issues, summary.orphans), (vec![], 3), "{flags:?}");
    }
}

#[test]
fn a_file_that_waits_to_be_cut_is_no_damage() {
    let cut = ["sif d/file size 1", "set_super_value last_orphan 14"];
    assert_eq!(kinds_after(&cut), [""; 0]);
    assert_eq!(kinds_after(&cut[..1]), ["inode-size"]);
}

#[test]
fn names_that_no_path_can_contain_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("slashed"), b"1").unwrap();
    std::fs::write(source.join("zeroed"), b"2").unwrap();
    mke2fs(&image, &["-t", "ext2"], Some(&source), "4M");
    let mut bytes = std::fs::read(&image).unwrap();
    for (name, illegal) in [(b"slashed", b"s/ashed"), (b"zeroed\0", b"zer\0ed\0")] {
        let at = bytes.windows(7).position(|w| w == name).unwrap();
        bytes[at..at + 7].copy_from_slice(illegal);
    }
    std::fs::write(&image, bytes).unwrap();
    let kinds: Vec<_> = issues(&image).iter().map(Issue::kind).collect();
    assert_eq!(kinds, ["illegal-name"; 2]);
}

#[test]
fn a_table_that_names_itself_does_not_make_a_small_image_endless() {
    use std::os::unix::fs::FileExt;

    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), [7; 1024]).unwrap();
    mke2fs(&image, &["-t", "ext2", "-b", "1024"], Some(&source), "4M");
    let file = |fs: &Image| fs.resolve(b"file", uext4::FollowLast::No).unwrap();
    let fs = open(&image);
    let block = fs.map(&file(&fs), uext4_ondisk::Lblk(0), 1).unwrap().pblk.0;
    let table = (block as u32).to_le_bytes().repeat(256);
    let raw = std::fs::File::options().write(true).open(&image).unwrap();
    raw.write_all_at(&table, block * 1024).unwrap();
    let point = format!("sif file block[TIND] {block}");
    debugfs_write(&image, [point.as_str(), "sif file size 17000000000"]);
    let fs = open(&image);
    let ranges: Vec<_> = fs.data_ranges(&file(&fs)).unwrap().collect();
    assert!(ranges.last().unwrap().is_err());
    assert!(ranges.len() < 5000);
    assert!(issues(&image).iter().any(|i| i.kind() == "shared-block"));
}

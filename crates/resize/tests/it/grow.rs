//! File systems of many shapes grow, and e2fsck finds nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use uext4_blockdev::{Access, BlockDevice, Clock, FileDevice, SubDevice, SystemClock};
use uext4_resize::{Error, Examination, Resized, Size, SmallerSize, grow, shrink};
use uext4_testkit::e2fsprogs::{
    assert_clean, assert_e2fsck, debugfs, debugfs_write, dumpe2fs, mke2fs,
};
use uext4_testkit::has_tool;

/// Options of mke2fs, sizes before and after in MiB.
pub const SHAPES: &[(&str, u64, u64)] = &[
    ("-t ext4", 64, 65),
    ("-t ext4", 64, 900),
    ("-t ext4", 130, 4100),
    ("-t ext4", 512, 20_000),
    ("-t ext4 -b 1024", 20, 333),
    ("-t ext4 -b 1024", 9, 1000),
    ("-t ext4 -b 2048", 33, 700),
    ("-t ext4 -O ^metadata_csum", 100, 1000),
    ("-t ext4 -O ^metadata_csum,^uninit_bg", 100, 500),
    ("-t ext4 -O ^64bit", 100, 9000),
    ("-t ext4 -O ^flex_bg", 100, 1000),
    ("-t ext4 -O ^flex_bg -b 1024", 31, 200),
    ("-t ext4 -O ^resize_inode", 100, 1000),
    ("-t ext4 -O ^resize_inode", 300, 20_000),
    ("-t ext4 -O ^resize_inode -b 1024", 60, 2000),
    ("-t ext4 -O ^resize_inode,sparse_super2", 300, 20_000),
    ("-t ext4 -O ^resize_inode,meta_bg", 300, 20_000),
    ("-t ext4 -O ^resize_inode,meta_bg -b 1024", 60, 900),
    ("-t ext4 -b 4096 -E resize=40000", 100, 16_400),
    ("-t ext4 -b 1024 -E resize=300000", 100, 2000),
    ("-t ext4 -O bigalloc -C 65536", 200, 5000),
    ("-t ext4 -O bigalloc -C 16384 -b 1024", 50, 1000),
    ("-t ext4 -O bigalloc,^resize_inode", 200, 20_000),
    ("-t ext4 -O inline_data,quota,project", 100, 700),
    ("-t ext4 -O metadata_csum_seed,orphan_file", 100, 700),
    ("-t ext4 -G 4", 100, 2000),
    ("-t ext4 -g 8192", 100, 700),
    ("-t ext4 -N 2000", 100, 3000),
    ("-t ext4 -O ^has_journal", 100, 3000),
    ("-t ext3", 50, 1000),
    ("-t ext2", 50, 1000),
    ("-t ext2 -b 1024", 5, 100),
    ("-t ext2 -O ^resize_inode,^sparse_super", 50, 1000),
    ("-t ext4 -I 128 -m 10", 100, 900),
];

/// An image file with a directory of files.
pub fn image(dir: &TempDir, options: &str, mib: u64) -> PathBuf {
    let image = dir.path().join("image");
    _ = fs::remove_file(&image);
    let tree = dir.path().join("tree");
    if !tree.exists() {
        fs::create_dir_all(tree.join("sub")).unwrap();
        for nr in 0..40 {
            let bytes = vec![nr as u8; 100 + nr * 777];
            fs::write(tree.join(format!("sub/{nr}")), bytes).unwrap();
        }
    }
    let with_tree = options
        .split(' ')
        .chain(["-d", tree.to_str().unwrap()])
        .collect::<Vec<_>>();
    mke2fs(&image, with_tree, &format!("{mib}M"));
    // mke2fs counts no quotas.
    assert_e2fsck(&image, "-fy", 1);
    image
}

pub fn grow_file(image: &Path, size: Size, extended: u64) -> Result<Resized, Error> {
    let file = File::options().write(true).open(image).unwrap();
    let before = file.metadata().unwrap().len();
    file.set_len(before.max(extended)).unwrap();
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    grow(&device, &clock, size, before, Examination::First(&()))
}

/// A field of dumpe2fs's heading.
pub fn field(image: &Path, name: &str) -> Option<String> {
    let head = dumpe2fs(image);
    let line = head.lines().find_map(|line| line.strip_prefix(name));
    line.map(|value| value.trim_start_matches(':').trim().to_owned())
}

/// What resize2fs makes of a copy.
fn by_resize2fs(image: &Path, mib: u64) -> Option<PathBuf> {
    let copy = image.with_extension("resize2fs");
    fs::copy(image, &copy).unwrap();
    let size = format!("{mib}M");
    let done = Command::new("resize2fs")
        .arg(&copy)
        .arg(&size)
        .output()
        .unwrap();
    done.status.success().then_some(copy)
}

#[test]
fn every_shape_grows_as_by_resize2fs() {
    if !has_tool("mke2fs") || !has_tool("resize2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    for &(options, from, to) in SHAPES {
        let image = image(&dir, options, from);
        let theirs = by_resize2fs(&image, to);
        let grown = grow_file(&image, Size::Bytes(to << 20), to << 20)
            .unwrap_or_else(|error| panic!("{options} {from} {to}: {error}"));
        println!("{options} {from} {to}: {grown:?}");
        assert_clean(&image);
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
        let found = uext4_fsck::findings(&device).unwrap();
        assert!(found.is_empty(), "{options} {from} {to}: {found:?}");
        let names = debugfs(&image, "ls -l sub");
        assert!(names.contains("30403"), "{options}: {names}");
        if let Some(theirs) = theirs {
            for name in ["Block count", "Inode count", "Reserved block count"] {
                let what = format!("{options} {from} {to}: {name}");
                assert_eq!(field(&image, name), field(&theirs, name), "{what}");
            }
            fs::remove_file(theirs).unwrap();
        }
    }
}

#[test]
fn growing_again_and_again_is_clean() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    for options in [
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -O ^resize_inode",
        "-t ext4 -b 1024 -O bigalloc,^flex_bg",
        "-t ext2 -b 1024",
    ] {
        let image = image(&dir, options, 12);
        let mut size = 12u64 << 20;
        for step in 0..14u64 {
            size += (1 << 20) + step * step * (777 << 10);
            grow_file(&image, Size::Bytes(size), size).unwrap();
            assert_clean(&image);
        }
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = image(&dir, "-t ext4 -O ^64bit", 64);
    let before = fs::read(&image).unwrap();
    let smaller = grow_file(&image, Size::Bytes(32 << 20), 0).unwrap_err();
    assert!(smaller.to_string().contains("65536 blocks"), "{smaller}");
    let whole = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
    let len = whole.len();
    let window: Arc<dyn BlockDevice> = Arc::new(SubDevice::new(whole, 0, len).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    for size in [Size::Bytes(128 << 20), Size::More(64 << 20)] {
        let short = grow(&window, &clock, size, len, Examination::First(&())).unwrap_err();
        assert!(matches!(short, Error::DeviceTooSmall { .. }), "{short}");
    }
    drop(window);
    let large = grow_file(&image, Size::Bytes(17 << 40), 0).unwrap_err();
    assert!(large.to_string().contains("64bit"), "{large}");
    let same = grow_file(&image, Size::Device, 0).unwrap();
    assert_eq!(same.before, same.after);
    assert_eq!(fs::read(&image).unwrap().len(), before.len());
    assert_clean(&image);
}

#[test]
fn a_damaged_file_system_does_not_grow_and_is_not_written() {
    if !has_tool("debugfs") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = image(&dir, "-t ext4 -b 1024", 64);
    debugfs_write(&image, ["feature -flex_bg"]);
    let before = fs::read(&image).unwrap();
    let refused = grow_file(&image, Size::Bytes(128 << 20), 0).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    assert!(fs::read(&image).unwrap() == before);
    // Nothing is to be done, so that nothing is examined.
    let same = grow_file(&image, Size::Device, 0).unwrap();
    assert_eq!(same.before, same.after);
    // Another bit, which leads nowhere.
    debugfs_write(&image, ["feature flex_bg", "sif sub/3 mode 0170644"]);
    let refused = grow_file(&image, Size::Bytes(128 << 20), 0).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    let file: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (size, len) = (Size::Bytes(128 << 20), file.len());
    let grown = grow(&file, &clock, size, len, Examination::Skipped).unwrap();
    assert!(grown.after > grown.before);
}

#[test]
fn what_must_be_repaired_first_is_refused() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = image(&dir, "-t ext4 -b 1024", 64);
    let whole = fs::read(&image).unwrap();
    let refused = |change: &dyn Fn(&mut Vec<u8>), said: &str| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(&image, &bytes).unwrap();
        let error = grow_file(&image, Size::Device, 0).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert!(fs::read(&image).unwrap() == bytes, "{said}");
    };
    refused(
        &|bytes| bytes.truncate(40 << 20),
        "67108864 bytes are needed",
    );
    refused(
        &|bytes| bytes[1024 + 0x78] ^= 1,
        "the superblock is damaged",
    );
    fs::write(&image, &whole).unwrap();
    debugfs_write(&image, ["ssv state 3"]);
    let marked = fs::read(&image).unwrap();
    refused(&|bytes| bytes.clone_from(&marked), "errors are recorded");
    fs::write(&image, &whole).unwrap();
    let stat = debugfs(&image, "stat <7>");
    let double = stat.split("(DIND):").nth(1).unwrap();
    let double: usize = double
        .split([',', '\n'])
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let mut bytes = whole.clone();
    bytes[double * 1024 + 4 * 40] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let error = grow_file(&image, Size::Device, 128 << 20).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    // One that is made longer for it gets its old length.
    fs::write(&image, &bytes).unwrap();
    grow_file(&image, Size::More(64 << 20), 0).unwrap_err();
    assert!(fs::read(&image).unwrap() == bytes);
}

#[test]
fn a_journal_on_another_device_is_named() {
    if !has_tool("mke2fs") || !has_tool("debugfs") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = image(&dir, "-t ext4 -O ^has_journal -b 1024", 64);
    debugfs_write(&image, ["feature has_journal", "ssv journal_dev 0x0701"]);
    let bytes = fs::read(&image).unwrap();
    let error = grow_file(&image, Size::More(64 << 20), 0).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("another device"), "{error}");
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(&image, Access::ReadWrite).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (least, first) = (SmallerSize::Least, Examination::First(&()));
    let error = shrink(&device, &clock, least, first, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(fs::read(&image).unwrap() == bytes);
}

#[test]
fn a_file_becomes_longer_with_the_file_system_in_it() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = image(&dir, "-t ext4", 64);
    for (size, mib) in [(Size::More(64 << 20), 128), (Size::Bytes(900 << 20), 900)] {
        grow_file(&image, size, 0).unwrap();
        assert_eq!(fs::metadata(&image).unwrap().len(), mib << 20);
        assert_clean(&image);
    }
}

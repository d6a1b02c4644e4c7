//! File systems of many shapes shrink, keep all that they hold, and e2fsck finds nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use uext4_blockdev::{Access, BlockDevice, Clock, FileDevice, SystemClock};
use uext4_resize::{Error, Examination, Resized, SmallerSize, shrink};
use uext4_testkit::e2fsprogs::{assert_clean, debugfs_write, mke2fs};
use uext4_testkit::has_tool;
use uext4_testkit::loops::{Mount, can_mount};

use crate::grow::field;
use crate::tree::{contents, fill};

/// Options of mke2fs, and MiB.
const SHAPES: &[(&str, u64)] = &[
    ("-t ext4 -b 4096 -g 8192", 300),
    ("-t ext4 -b 1024 -O metadata_csum_seed,orphan_file", 80),
    ("-t ext4 -b 1024 -O quota,project -I 256", 80),
    ("-t ext4 -b 1024 -O ea_inode", 80),
    ("-t ext4 -b 1024 -O ^resize_inode,sparse_super2", 80),
    ("-t ext4 -O bigalloc -C 16384 -b 1024 -g 8192", 80),
    ("-t ext4 -b 1024 -O inline_data -I 256", 80),
    ("-t ext3 -b 1024", 80),
    ("-t ext4 -b 1024", 120),
    ("-t ext4 -b 2048 -G 4", 200),
    ("-t ext4 -b 1024 -O ^metadata_csum", 120),
    ("-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg", 120),
    ("-t ext4 -b 1024 -O ^64bit", 120),
    ("-t ext4 -b 1024 -O ^flex_bg", 120),
    ("-t ext4 -b 1024 -O ^resize_inode", 120),
    ("-t ext4 -b 1024 -O ^resize_inode,meta_bg", 120),
    ("-t ext4 -O bigalloc -C 4096 -b 1024", 120),
    ("-t ext4 -b 1024 -O ^has_journal", 120),
    ("-t ext2 -b 1024", 120),
    ("-t ext4 -I 128 -b 1024", 120),
];
/// As many of them are enough for the quick mode.
const QUICK: usize = 8;

fn open(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap())
}

fn shrink_file(image: &Path, size: SmallerSize) -> Result<Resized, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let examination = Examination::First(&());
    let resized = shrink(&open(image), &clock, size, examination, &mut |_| Ok(()))?;
    let len = resized.after * u64::from(resized.block_size);
    File::options()
        .write(true)
        .open(image)
        .unwrap()
        .set_len(len)
        .unwrap();
    Ok(resized)
}

fn filled(dir: &TempDir, options: &str, mib: u64) -> PathBuf {
    let image = dir.path().join("image");
    _ = fs::remove_file(&image);
    let size = format!("{mib}M");
    if options.contains("bigalloc") {
        // The engine does not write to these.
        let tree = dir.path().join("tree");
        for nr in 0..40 {
            fs::create_dir_all(tree.join(format!("d{nr}"))).unwrap();
            for file in 0..4 {
                let path = tree.join(format!("d{nr}/f{file}"));
                fs::write(path, vec![nr; 100_000 * (file + 1)]).unwrap();
            }
        }
        let with_tree = options.split(' ').chain(["-d", tree.to_str().unwrap()]);
        mke2fs(&image, with_tree.collect::<Vec<_>>(), &size);
        let gone = (0..100).filter(|nr| nr % 9 != 0);
        let gone: Vec<String> = gone
            .map(|nr| format!("rm d{}/f{}", nr / 4, nr % 4))
            .collect();
        debugfs_write(&image, gone.iter().map(String::as_str));
    } else {
        mke2fs(&image, options.split(' '), &size);
        fill(&open(&image), 40, 300_000 >> (2 * u32::from(mib < 200)));
    }
    assert_clean(&image);
    image
}

/// Blocks that resize2fs leaves of a copy.
fn by_resize2fs(image: &Path) -> Option<u64> {
    let copy = image.with_extension("resize2fs");
    fs::copy(image, &copy).unwrap();
    let done = Command::new("resize2fs")
        .args(["-f", "-M"])
        .arg(&copy)
        .output()
        .unwrap();
    if !done.status.success() {
        return None;
    }
    field(&copy, "Block count")?.parse().ok()
}

fn assert_whole(image: &Path, before: &BTreeMap<String, String>, what: &str) {
    assert_clean(image);
    let device = open(image);
    let found = uext4_fsck::findings(&device).unwrap();
    assert!(found.is_empty(), "{what}: {found:?}");
    assert!(contents(&device) == *before, "{what}");
}

#[test]
fn a_directory_with_a_damaged_mode_is_not_moved() {
    if !has_tool("debugfs") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = filled(&dir, "-t ext4 -b 1024", 64);
    debugfs_write(&image, ["sif lost+found mode 0100644"]);
    let before = fs::read(&image).unwrap();
    let refused = shrink_file(&image, SmallerSize::Least).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn every_shape_shrinks_and_keeps_its_files() {
    if !has_tool("mke2fs") || !has_tool("resize2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    let count = match std::env::var_os("UEXT4_LONG") {
        Some(_) => SHAPES.len(),
        None => QUICK,
    };
    for &(options, mib) in &SHAPES[..count] {
        let image = filled(&dir, options, mib);
        let before = contents(&open(&image));
        let theirs = by_resize2fs(&image);
        let half = shrink_file(&image, SmallerSize::Bytes((mib << 20) * 2 / 3))
            .unwrap_or_else(|error| panic!("{options}: {error}"));
        assert!(half.after < half.before, "{options}: {half:?}");
        assert_whole(&image, &before, options);
        let least = shrink_file(&image, SmallerSize::Least)
            .unwrap_or_else(|error| panic!("{options}, least: {error}"));
        println!("{options}: {half:?}, {least:?}, resize2fs -M {theirs:?}");
        assert_whole(&image, &before, options);
        if let Some(theirs) = theirs {
            assert!(
                least.after <= theirs,
                "{options}: {least:?}, resize2fs {theirs}"
            );
        }
        let again = shrink_file(&image, SmallerSize::Least).unwrap();
        assert!(again.after <= least.after, "{options}: {again:?}");
        assert_whole(&image, &before, options);
    }
}

#[test]
fn the_kernel_mounts_what_shrank() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    for &(options, mib) in &SHAPES[5..QUICK] {
        let image = filled(&dir, options, mib);
        shrink_file(&image, SmallerSize::Bytes((mib << 20) / 2)).unwrap();
        {
            let mount = Mount::new(&image, "");
            let tar = Command::new("tar")
                .arg("-cf/dev/null")
                .arg(mount.path())
                .status()
                .unwrap();
            assert!(tar.success(), "{options}");
            let full = fs::write(mount.path().join("full"), vec![1; (mib << 20) as usize]);
            assert!(full.is_err(), "{options}");
        }
        assert_clean(&image);
    }
}

#[test]
fn the_bitmap_of_a_last_group_that_was_never_used_is_written() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("image");
    let options = "-t ext4 -b 2048 -g 2048 -O ^resize_inode,sparse_super2";
    mke2fs(&image, options.split(' '), "18M");
    let shrunk = shrink_file(&image, SmallerSize::Bytes(16 << 20)).unwrap();
    assert_eq!(shrunk.after, 4 * 2048);
    assert_whole(&image, &contents(&open(&image)), options);
}

#[test]
fn metadata_that_lies_elsewhere_is_not_cut_off() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let dir = TempDir::new().unwrap();
    // The tables of a group lie anywhere in it; heads and bitmaps share clusters.
    for (options, mib, sizes) in [
        (
            "-t ext3 -b 1024 -E stride=64",
            256,
            [173_033, 166_000, 172_100],
        ),
        (
            "-b 1024 -O extent,bigalloc,^resize_inode -C 2048 -N 2048",
            2048,
            [614_400, 307_200, 0],
        ),
    ] {
        let image = dir.path().join("image");
        _ = fs::remove_file(&image);
        mke2fs(&image, options.split(' '), &format!("{mib}M"));
        for kib in sizes {
            match shrink_file(&image, SmallerSize::Bytes(kib << 10)) {
                Ok(_) | Err(Error::TooSmall { .. }) => assert_clean(&image),
                Err(error) => panic!("{options}, {kib}: {error}"),
            }
        }
    }
}

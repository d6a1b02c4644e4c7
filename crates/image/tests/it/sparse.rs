//! Blocks of zeroes as holes, whatever the source is; holes as they are; and none.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Cursor, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use uext4::{FollowLast, Image};
use uext4_blockdev::{Access, FileDevice};
use uext4_image::walk::{Order, Step, Walk};
use uext4_image::{BuildOptions, Builder, Limits, Report, Size, Source, SourceOptions, Sparse};
use uext4_mkfs::BlockSizeWish;
use uext4_ondisk::BlockSize;
use uext4_testkit::{assert_clean, has_tool};

use crate::building::Place;
use crate::fixture::{pattern, run, set_time};

const BLOCK: usize = 4096;

/// Bytes without a block of zeroes, but for these ranges.
fn with_zeroes(len: usize, zeroes: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = pattern(len);
    bytes.iter_mut().step_by(64).for_each(|byte| *byte |= 1);
    for &(from, to) in zeroes {
        bytes[from..to].fill(0);
    }
    bytes
}

/// Files with zeroes in every place.
fn files() -> BTreeMap<&'static str, Vec<u8>> {
    let alternating: Vec<_> = (0..600)
        .map(|i| (2 * i * BLOCK, (2 * i + 1) * BLOCK))
        .collect();
    let mut nearly = vec![0; 40 * BLOCK];
    nearly
        .iter_mut()
        .skip(BLOCK - 1)
        .step_by(BLOCK)
        .for_each(|byte| *byte = 1);
    BTreeMap::from([
        ("all", vec![0; (1 << 20) + 5]),
        ("all-blocks", vec![0; 9 * BLOCK]),
        ("alternating", with_zeroes(1200 * BLOCK, &alternating)),
        ("begin", with_zeroes(10 * BLOCK + 7, &[(0, 8 * BLOCK)])),
        ("end", with_zeroes(60_000, &[(5000, 60_000)])),
        (
            "large",
            with_zeroes(5 << 20, &[(1_000_000, 1_200_000), (2_097_152, 4_000_001)]),
        ),
        (
            "middle",
            with_zeroes(30 * BLOCK, &[(3 * BLOCK, 13 * BLOCK)]),
        ),
        ("nearly", nearly),
        ("none", with_zeroes(70_001, &[])),
        ("short", vec![0; 100]),
        ("unaligned", with_zeroes(20_000, &[(2000, 9000)])),
        (
            "z-holes",
            with_zeroes(300 * BLOCK, &[(BLOCK + 512, 200 * BLOCK - 512)]),
        ),
    ])
}

fn make_tree(place: &Place) {
    fs::create_dir(place.tree().join("sub")).unwrap();
    for (name, bytes) in files() {
        let path = place.tree().join("sub").join(name);
        match name {
            "z-holes" => {
                let file = File::create(&path).unwrap();
                file.set_len(bytes.len() as u64).unwrap();
                let end = 200 * BLOCK - 512;
                file.write_all_at(&bytes[..BLOCK + 512], 0).unwrap();
                file.write_all_at(&bytes[end..], end as u64).unwrap();
            }
            _ => fs::write(&path, bytes).unwrap(),
        }
        set_time(&path, 1_000_000_000, 0);
    }
    set_time(&place.tree().join("sub"), 1_000_000_000, 0);
    set_time(&place.tree(), 1_000_000_000, 0);
}

/// An archive of the tree, as a list of what the same image is made of.
fn archive(place: &Place, options: &[&str]) -> PathBuf {
    let path = place.path().join(format!("{}.tar", options.len()));
    let name = path.to_str().unwrap();
    let common = [
        "tar",
        "-C",
        "tree",
        "--sort=name",
        "--numeric-owner",
        "--format=posix",
    ];
    let times = ["--pax-option=delete=atime,delete=ctime", "-cf", name, "."];
    run(place.path(), &[&common[..], options, &times].concat());
    path
}

fn gzip(path: &Path) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&fs::read(path).unwrap()).unwrap();
    gzip.finish().unwrap()
}

/// Builds of every form of the tree: they must be equal.
fn build_all(place: &Place, options: &BuildOptions) -> Report {
    let plain = archive(place, &[]);
    let sparse = archive(place, &["--sparse"]);
    let raw = archive(place, &["--sparse", "--hole-detection=raw"]);
    let mut images = Vec::new();
    let mut build = |add: &dyn Fn(&mut Builder)| {
        let mut builder = Builder::new(options.clone());
        add(&mut builder);
        let report = builder.build(&place.image(), &()).unwrap();
        images.push(fs::read(place.image()).unwrap());
        report
    };
    for archive in [&raw, &sparse, &plain] {
        build(&|builder| {
            builder.source(Source::TarFile(archive.clone()));
        });
        build(&|builder| {
            builder.archive("gzip", Cursor::new(gzip(archive)));
        });
    }
    let report = build(&|builder| {
        builder.source(Source::Directory(place.tree()));
    });
    let are_equal: Vec<bool> = images.windows(2).map(|pair| pair[0] == pair[1]).collect();
    assert_eq!(are_equal, [true; 6], "{options:?}");
    report
}

/// The files of an image: contents, and bytes in blocks.
fn files_of(image: &Path) -> BTreeMap<String, (Vec<u8>, u64)> {
    let device = FileDevice::open(image, Access::ReadOnly).unwrap();
    let image = Image::open(Arc::new(device), &Default::default()).unwrap();
    let root = image.resolve("/sub", FollowLast::Yes).unwrap();
    let mut walk = Walk::new(&image, root, Order::Nested);
    let mut all = BTreeMap::new();
    while let Some(step) = walk.step() {
        let Step::Entry(entry) = step else { continue };
        let inode = entry.inode.unwrap();
        if inode.file_type == uext4::FileType::Regular {
            let mut bytes = vec![0; inode.size as usize];
            image.read_at(&inode, 0, &mut bytes).unwrap();
            let ranges = image.data_ranges(&inode).unwrap();
            let in_blocks = ranges.map(|r| r.unwrap()).map(|r| r.end - r.start);
            all.insert(walk.text_path().to_owned(), (bytes, in_blocks.sum()));
        }
    }
    all
}

/// Compares contents, and the bytes in blocks with what `in_blocks` says of them.
fn assert_files(image: &Path, in_blocks: impl Fn(&[u8]) -> u64) {
    assert_clean(image);
    let found = files_of(image);
    assert_eq!(found.len(), files().len());
    for (name, bytes) in files() {
        let (read, blocks) = &found[name];
        assert!(*read == bytes, "contents of {name}");
        assert_eq!(*blocks, in_blocks(&bytes), "blocks of {name}");
    }
}

/// Bytes of blocks with something in them.
fn of_data(block: usize) -> impl Fn(&[u8]) -> u64 {
    move |bytes| {
        let is_data = |part: &&[u8]| part.iter().any(|&byte| byte != 0);
        let blocks = bytes.chunks(block).filter(is_data);
        blocks.map(|part| part.len() as u64).sum()
    }
}

fn of_all(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

fn options(size: Size, sparse: Option<Sparse>) -> BuildOptions {
    BuildOptions {
        size,
        sparse,
        ..BuildOptions::default()
    }
}

#[test]
fn blocks_of_zeroes_are_holes_whatever_the_source_is() {
    let place = Place::new();
    make_tree(&place);
    let always = Some(Sparse::Always);
    for (size, sparse) in [
        (Size::Min, None),
        (Size::Auto, always),
        (Size::Free(1 << 20), always),
    ] {
        let report = build_all(&place, &options(size, sparse));
        assert_files(&place.image(), of_data(BLOCK));
        assert!(size != Size::Min || report.summary.free_blocks <= 4);
    }
    // A small file system, with blocks of 1 KiB.
    build_all(&place, &options(Size::Exact(40 << 20), always));
    assert_files(&place.image(), of_data(1024));
}

#[test]
fn holes_stay_and_zeroes_stay_unless_stated() {
    let place = Place::new();
    make_tree(&place);
    for (size, sparse) in [(Size::Auto, None), (Size::Min, Some(Sparse::Auto))] {
        let mut builder = Builder::new(options(size, sparse));
        builder.source(Source::Directory(place.tree()));
        builder.build(&place.image(), &()).unwrap();
        assert_files(&place.image(), |bytes| match bytes.len() == 300 * BLOCK {
            true => of_data(BLOCK)(bytes),
            false => of_all(bytes),
        });
    }
}

#[test]
fn no_hole_is_left_with_never() {
    let place = Place::new();
    make_tree(&place);
    for size in [Size::Auto, Size::Min] {
        build_all(&place, &options(size, Some(Sparse::Never)));
        assert_files(&place.image(), of_all);
    }
    // Nor of another image with holes.
    let base = place.path().join("base.img");
    let mut builder = Builder::new(options(Size::Min, None));
    builder.source(Source::Directory(place.tree()));
    builder.build(&base, &()).unwrap();
    for (sparse, size) in [
        (Sparse::Never, Size::Auto),
        (Sparse::Never, Size::Min),
        (Sparse::Always, Size::Auto),
        (Sparse::Always, Size::Min),
    ] {
        let mut builder = Builder::new(options(size, Some(sparse)));
        builder.source(Source::Image(base.clone()));
        builder.build(&place.image(), &()).unwrap();
        match sparse {
            Sparse::Never => assert_files(&place.image(), of_all),
            _ => assert_files(&place.image(), of_data(BLOCK)),
        }
    }
}

#[test]
fn holes_that_are_filled_count_for_the_limit() {
    let place = Place::new();
    let file = File::create(place.tree().join("hole")).unwrap();
    file.set_len(1 << 40).unwrap();
    let archive = archive(&place, &["--sparse"]);
    for size in [Size::Auto, Size::Min] {
        let mut builder = Builder::new(BuildOptions {
            source: SourceOptions {
                limits: Limits {
                    bytes: 1 << 30,
                    ..Limits::default()
                },
                ..SourceOptions::default()
            },
            ..options(size, Some(Sparse::Never))
        });
        builder.source(Source::TarFile(archive.clone()));
        let error = builder.build(&place.image(), &()).unwrap_err();
        assert!(error.to_string().contains("bytes of contents"), "{error}");
    }
}

/// Bytes of what `mke2fs -d` makes and `resize2fs -M` makes smaller.
fn resized(place: &Place, block: u32) -> u64 {
    let path = place.path().join("mke2fs.img");
    let image = path.to_str().unwrap();
    let block = block.to_string();
    let mke2fs = [
        "mke2fs", "-q", "-t", "ext4", "-b", &block, "-m", "0", "-d", "tree", image, "64M",
    ];
    run(place.path(), &mke2fs);
    // It says with code 1 that it has changed something.
    let checked = Command::new("e2fsck")
        .args(["-fy", image])
        .output()
        .unwrap();
    assert!(checked.status.code().is_some_and(|code| code <= 1));
    run(place.path(), &["resize2fs", "-M", image]);
    let len = fs::metadata(&path).unwrap().len();
    fs::remove_file(&path).unwrap();
    len
}

#[test]
fn the_smallest_image_is_not_larger_than_what_resize2fs_makes() {
    if !has_tool("mke2fs") || !has_tool("resize2fs") {
        eprintln!("skipped: needs mke2fs and resize2fs");
        return;
    }
    let place = Place::new();
    make_tree(&place);
    for block in [1024, 4096] {
        let mut options = options(Size::Min, None);
        let size = BlockSize::from_bytes(block).unwrap();
        options.mkfs.block_size = Some(BlockSizeWish::Exactly(size));
        let report = place.build(&options);
        assert_files_only(&place);
        let theirs = resized(&place, block);
        assert!(
            report.image_bytes <= theirs,
            "{} bytes here, {theirs} with resize2fs",
            report.image_bytes
        );
    }
}

fn assert_files_only(place: &Place) {
    assert_clean(&place.image());
    for (name, (read, _)) in files_of(&place.image()) {
        assert!(files()[&*name] == read, "contents of {name}");
    }
}

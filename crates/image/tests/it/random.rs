//! Random trees in images of the smallest size: what was counted is what it takes.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use uext4_image::{BuildOptions, Size, Source, Sparse, build};
use uext4_mkfs::{BlockSizeWish, parse_features};
use uext4_ondisk::BlockSize;

use uext4_testkit::assert_clean;

#[derive(Debug, Clone)]
enum Kind {
    Directory(Vec<(String, Kind)>),
    File(u32),
    Holes(Vec<(u16, u16)>),
    Link(u16),
    Many(u16, u8),
}

fn kind() -> impl Strategy<Value = Kind> {
    let leaf = prop_oneof![
        4 => (0u32..20_000).prop_map(Kind::File),
        1 => (0u32..3_000_000).prop_map(Kind::File),
        1 => proptest::collection::vec((1u16..300, 1u16..9000), 0..30).prop_map(Kind::Holes),
        1 => (1u16..1000).prop_map(Kind::Link),
        1 => (0u16..600, 1u8..200).prop_map(|(count, len)| Kind::Many(count, len)),
    ];
    leaf.prop_recursive(3, 40, 8, |inner| {
        proptest::collection::vec(("[a-z]{1,60}", inner), 0..8).prop_map(Kind::Directory)
    })
}

/// A tar of it. Every other part of what sparse files hold is zeroes.
fn archive(name: &str, kind: &Kind, tar: &mut Vec<u8>) {
    let member = |tar: &mut Vec<u8>, kind: u8, name: &str, data: &[u8], link: &str| {
        let mut pax = String::new();
        for (key, value) in [("path", name), ("linkpath", link)] {
            let rest = key.len() + value.len() + 3;
            let len = (rest..).find(|len| len - len.to_string().len() == rest);
            writeln!(pax, "{} {key}={value}", len.unwrap()).unwrap();
        }
        block(tar, b'x', pax.as_bytes());
        block(tar, kind, data);
    };
    match kind {
        Kind::Directory(entries) => {
            member(tar, b'5', name, b"", "x");
            for (i, (inner, kind)) in entries.iter().enumerate() {
                // No name twice: what comes again replaces, or cannot.
                archive(&format!("{name}/{i}{inner}"), kind, tar);
            }
        }
        Kind::File(size) => member(tar, b'0', name, &vec![1; *size as usize], "x"),
        Kind::Holes(pieces) => {
            let (mut map, mut at, mut stored) = (String::new(), 0u64, 0);
            for &(gap, len) in pieces {
                // Pieces of whole blocks of tar: of others, readers have different contents.
                let len = usize::from(len).next_multiple_of(512);
                at += u64::from(gap) * 1024;
                writeln!(map, "{at}\n{len}").unwrap();
                at += len as u64;
                stored += len;
            }
            let mut data = format!("{}\n{map}", pieces.len()).into_bytes();
            data.resize(data.len().next_multiple_of(512), 0);
            data.extend((0..stored).map(|i| (i / 3000 % 2) as u8));
            let mut pax = String::new();
            for (key, value) in [
                ("GNU.sparse.major", "1"),
                ("GNU.sparse.realsize", &at.to_string()),
                ("path", name),
            ] {
                let rest = key.len() + value.len() + 3;
                let len = (rest..).find(|len| len - len.to_string().len() == rest);
                writeln!(pax, "{} {key}={value}", len.unwrap()).unwrap();
            }
            block(tar, b'x', pax.as_bytes());
            block(tar, b'0', &data);
        }
        Kind::Link(len) => member(tar, b'2', name, b"", &"l".repeat((*len).into())),
        Kind::Many(count, len) => {
            for i in 0..*count {
                let inner = format!("{name}/{i:0width$}", width = usize::from(*len));
                member(tar, b'0', &inner, b"", "x");
            }
        }
    }
}

fn block(tar: &mut Vec<u8>, kind: u8, data: &[u8]) {
    let mut block = [0; 512];
    block[0] = b'-';
    block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    block[148..156].fill(b' ');
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&block);
    tar.extend_from_slice(data);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

#[test]
fn files_without_contents_do_not_make_it_huge() {
    let mut tar = Vec::new();
    archive("many", &Kind::Many(40_000, 6), &mut tar);
    tar.resize(tar.len() + 1024, 0);
    let dir = tempfile::tempdir().unwrap();
    let (archive, image) = (dir.path().join("a.tar"), dir.path().join("x.img"));
    std::fs::write(&archive, tar).unwrap();
    let mut options = BuildOptions {
        size: Size::Min,
        ..BuildOptions::default()
    };
    options.mkfs.block_size = Some(BlockSizeWish::Exactly(BlockSize::MIN));
    let report = build(&Source::TarFile(archive), &image, &options, &()).unwrap();
    assert_clean(&image);
    // Inode tables of 10 MiB, a directory of one, a journal of one: more than a bitmap of 1 KiB
    // can count, so that there are several groups.
    assert!(report.image_bytes < 16 << 20, "{}", report.image_bytes);
}

/// Each case is a file system: a tenth of the usual number.
#[test]
fn the_smallest_size_is_enough() {
    let mut config = ProptestConfig::with_source_file(file!());
    config.cases /= 10;
    let entries = proptest::collection::vec(("[a-z]{1,60}", kind()), 0..8);
    let features = prop_oneof![
        Just(""),
        Just("^extent,^64bit"),
        Just("^dir_index"),
        Just("^has_journal"),
        Just("^flex_bg,^metadata_csum")
    ];
    TestRunner::new(config)
        .run(
            &(entries, 10u32..=13, features),
            |(entries, log2, features)| smallest(entries, log2, features),
        )
        .unwrap();
}

fn smallest(entries: Vec<(String, Kind)>, log2: u32, features: &str) -> TestCaseResult {
    let mut tar = Vec::new();
    archive("top", &Kind::Directory(entries), &mut tar);
    tar.resize(tar.len() + 1024, 0);
    let dir = tempfile::tempdir().unwrap();
    let (archive, image) = (dir.path().join("a.tar"), dir.path().join("x.img"));
    std::fs::write(&archive, tar).unwrap();
    let mut options = BuildOptions {
        size: Size::Min,
        sparse: Some(Sparse::Auto),
        ..BuildOptions::default()
    };
    options.mkfs.block_size = BlockSize::from_log2(log2).map(BlockSizeWish::Exactly);
    if !features.is_empty() {
        options.mkfs.features = parse_features(features).unwrap();
    }
    check_spare(&archive, &image, &options)?;
    options.sparse = Some(Sparse::Always);
    check_spare(&archive, &image, &options)?;
    // And with contents written as they come, where the features allow that.
    options.size = Size::Auto;
    for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
        options.sparse = Some(sparse);
        build(&Source::TarFile(archive.clone()), &image, &options, &()).unwrap();
        assert_clean(&image);
    }
    Ok(())
}

/// Builds the smallest image, and looks that it has nothing to spare.
fn check_spare(archive: &Path, image: &Path, options: &BuildOptions) -> TestCaseResult {
    let source = Source::TarFile(archive.to_path_buf());
    let report = build(&source, image, options, &()).unwrap();
    assert_clean(image);
    let spare = report.summary.free_blocks;
    // A short last group is left out; the blocks for it must hold an inode table and fifty more.
    let tables = u64::from(report.summary.inodes) * 256 / u64::from(report.block_size);
    prop_assert!(
        spare <= 64 + tables,
        "{spare} too many of {}",
        report.summary.blocks
    );
    Ok(())
}

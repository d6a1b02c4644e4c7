//! `grow`: sizes as they are asked for, the file that holds the image, and what is refused.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;

use crate::checking::ended;
use crate::host::{assert_clean, dumpe2fs, has_tool, mke2fs, run, scratch, text, uext4_ok};

fn blocks(image: &Path) -> String {
    let head = dumpe2fs(image);
    let line = head.lines().find(|line| line.starts_with("Block count:"));
    line.unwrap().split_whitespace().last().unwrap().to_owned()
}

#[test]
fn sizes_are_of_the_file_system_and_the_file_follows() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-b", "4096"], 16);
    let printed = uext4_ok(&["grow", text(&image), "64M"]);
    assert!(String::from_utf8_lossy(&printed).contains("16384 blocks"));
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
    let printed = uext4_ok(&["grow", "--json", text(&image), "+16M"]);
    let json: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(
        (json["blocks_before"].as_u64(), json["blocks"].as_u64()),
        (Some(16_384), Some(20_480))
    );
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(200 << 20)
        .unwrap();
    uext4_ok(&["grow", text(&image)]);
    assert_eq!(blocks(&image), "51200");
    let again = uext4_ok(&["grow", text(&image), "max"]);
    assert!(String::from_utf8_lossy(&again).contains("already"));
    assert_clean(&image);
}

#[test]
fn a_file_system_within_a_file_grows_to_its_end_or_beyond_with_the_file() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let plain = scratch.path().join("plain");
    mke2fs(&plain, &["-t", "ext4", "-b", "4096"], 16);
    let image = scratch.path().join("image");
    let mut bytes = vec![0xA5; 1 << 20];
    bytes.extend(fs::read(&plain).unwrap());
    fs::write(&image, bytes).unwrap();
    uext4_ok(&["grow", "--offset", "1M", text(&image), "32M"]);
    let bytes = fs::read(&image).unwrap();
    assert_eq!(bytes.len(), 33 << 20);
    assert!(bytes[..1 << 20].iter().all(|&byte| byte == 0xA5));
    fs::write(&plain, &bytes[1 << 20..]).unwrap();
    assert_eq!(blocks(&plain), "8192");
    assert_clean(&plain);
}

#[test]
fn what_cannot_grow_keeps_its_file() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-O", "^64bit", "-b", "4096"], 16);
    let before = fs::read(&image).unwrap();
    for (size, said) in [
        ("8M", "4096 blocks of 4096 bytes already"),
        ("17T", "64bit"),
        ("1x", "suffix"),
    ] {
        let (code, printed) = ended(&["grow", text(&image), size]);
        assert_eq!(code, Some(if size == "1x" { 2 } else { 8 }), "{printed}");
        assert!(printed.contains(said), "{size}: {printed}");
        assert!(fs::read(&image).unwrap() == before, "{size}");
    }
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let (code, printed) = ended(&["grow", text(&image), "2M"]);
    assert_eq!(code, Some(8), "{printed}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 1 << 20);
}

#[test]
fn the_last_partition_grows_with_its_disk() {
    if !has_tool("sfdisk") {
        return;
    }
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&[
        "build",
        text(&source),
        "-o",
        text(&image),
        "--gpt",
        "--size",
        "32M",
    ]);
    uext4_ok(&["grow", "--with-partition", text(&image), "96M"]);
    let verified = run("sfdisk", &["--verify", text(&image)]);
    assert!(
        String::from_utf8_lossy(&verified).contains("No errors"),
        "{verified:?}"
    );
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(200 << 20)
        .unwrap();
    uext4_ok(&["grow", "--with-partition", text(&image)]);
    run("sfdisk", &["--verify", text(&image)]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 200 << 20);
    assert_eq!(uext4_ok(&["cat", text(&image), "/file"]), b"contents");
    // The partition begins at 1 MiB.
    let inner = scratch.path().join("inner");
    fs::write(&inner, &fs::read(&image).unwrap()[1 << 20..]).unwrap();
    assert_clean(&inner);
    let count: u64 = blocks(&inner).parse().unwrap();
    assert!(count * 4096 > 198 << 20, "{count} blocks");
}

#[test]
fn the_file_becomes_shorter_with_the_file_system() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext4", "-b", "4096"], 300);
    let printed = uext4_ok(&["shrink", text(&image), "64M"]);
    assert!(String::from_utf8_lossy(&printed).contains("16384 blocks"));
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
    let printed = uext4_ok(&["shrink", "--json", "--min", text(&image)]);
    let json: Value = serde_json::from_slice(&printed).unwrap();
    let blocks = json["blocks"].as_u64().unwrap();
    assert!(blocks < 16_384);
    assert_eq!(fs::metadata(&image).unwrap().len(), blocks * 4096);
    let (code, complaint) = ended(&["shrink", text(&image), "1M"]);
    assert_eq!(code, Some(8), "{complaint}");
    assert!(complaint.contains(" are the least"), "{complaint}");
    assert_clean(&image);
    // What lies behind the file system stays.
    let mut with_trailer = fs::read(&image).unwrap();
    with_trailer.extend([0xA5; 8192]);
    fs::write(&image, &with_trailer).unwrap();
    uext4_ok(&["shrink", text(&image), "1G"]);
    assert!(fs::read(&image).unwrap() == with_trailer);
}

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
        ("1x", "unknown unit"),
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

/// A disk whose last partition holds a file system of 32 MiB from byte 9 MiB on.
fn disk(dir: &Path, table: &str) -> std::path::PathBuf {
    let (plain, image) = (dir.join("plain"), dir.join("disk"));
    mke2fs(&plain, &["-t", "ext4", "-b", "4096"], 32);
    let file = File::create(&image).unwrap();
    file.set_len(64 << 20).unwrap();
    crate::in_disk::partition(&image, table);
    let bytes = fs::read(&plain).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 9 << 20).unwrap();
    image
}

/// First sector and sectors of partition 2.
fn second(image: &Path) -> (u64, u64) {
    let json: Value = serde_json::from_slice(&run("sfdisk", &["-J", text(image)])).unwrap();
    let part = &json["partitiontable"]["partitions"][1];
    let number = |key: &str| part[key].as_u64().unwrap();
    (number("start"), number("size"))
}

/// The file system in partition 2, which is clean.
fn inner(image: &Path) -> u64 {
    let (start, size) = second(image);
    let bytes = fs::read(image).unwrap();
    let inner = image.with_extension("inner");
    fs::write(
        &inner,
        &bytes[start as usize * 512..][..size as usize * 512],
    )
    .unwrap();
    assert_clean(&inner);
    blocks(&inner).parse().unwrap()
}

#[test]
fn partitions_of_both_tables_grow_and_shrink_with_their_file_systems() {
    if !has_tool("sfdisk") || !has_tool("mke2fs") {
        return;
    }
    for label in ["gpt", "dos"] {
        let scratch = scratch();
        let table = format!("label: {label}\nstart=2048, size=8MiB\nsize=32MiB\n");
        let image = disk(scratch.path(), &table);
        let head = fs::read(&image).unwrap()[1 << 20..9 << 20].to_vec();
        uext4_ok(&["grow", "--with-partition", text(&image), "100M"]);
        assert_eq!(inner(&image), 25_600, "{label}");
        assert_eq!(second(&image), (18_432, 204_800));
        File::options()
            .write(true)
            .open(&image)
            .unwrap()
            .set_len(150 << 20)
            .unwrap();
        let printed = uext4_ok(&["grow", text(&image)]);
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("partition 2 ends here"), "{printed}");
        assert!(printed.contains("--with-partition"), "{printed}");
        let (_, said) = ended(&["grow", text(&image), "+10M"]);
        assert!(said.contains("--with-partition"), "{said}");
        let printed = uext4_ok(&["shrink", text(&image), "64M"]);
        let printed = String::from_utf8(printed).unwrap();
        assert!(
            printed.contains("partition 2 keeps its 100.0 MiB"),
            "{printed}"
        );
        assert_eq!(second(&image), (18_432, 204_800));
        let printed = uext4_ok(&["shrink", "--with-partition", text(&image), "40M"]);
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("40.0 MiB now"), "{printed}");
        assert_eq!(second(&image), (18_432, 81_920));
        assert_eq!(inner(&image), 10_240);
        run("sfdisk", &["--verify", text(&image)]);
        uext4_ok(&["grow", "--with-partition", text(&image)]);
        inner(&image);
        assert!(fs::read(&image).unwrap()[1 << 20..9 << 20] == head);
    }
}

#[test]
fn partitions_that_cannot_grow_are_named() {
    if !has_tool("sfdisk") || !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let table = "label: dos\nstart=2048, size=7MiB\ntype=5\nstart=18432, size=32MiB\n";
    let image = disk(scratch.path(), table);
    let before = fs::read(&image).unwrap();
    let (code, said) = ended(&["grow", "--with-partition", text(&image), "50M"]);
    assert_eq!(code, Some(8));
    assert!(said.contains("partition 5 is a logical one"), "{said}");
    assert!(fs::read(&image).unwrap() == before);
    // Before the file system is smaller.
    let shrink = [
        "shrink",
        "--with-partition",
        "--partition",
        "5",
        text(&image),
        "20M",
    ];
    let (code, said) = ended(&shrink);
    assert_eq!(code, Some(8));
    assert!(said.contains("partition 5 is a logical one"), "{said}");
    assert!(fs::read(&image).unwrap() == before);
    let (code, said) = ended(&["grow", "--with-partition", "--partition", "1", text(&image)]);
    assert_eq!(code, Some(8));
    assert!(said.contains("partition 1: "), "{said}");

    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    let verified = scratch.path().join("verified");
    let build = [
        "build",
        text(&source),
        "--gpt",
        "--gpt-type",
        "root-x86-64",
        "--verity",
    ];
    uext4_ok(&[&build[..], &["-o", text(&verified)]].concat());
    let before = fs::read(&verified).unwrap();
    let grow = ["grow", "--with-partition", "--drop-verity", text(&verified)];
    let (_, said) = ended(&grow);
    let follows = "partition 1 cannot grow: partition 2 follows it";
    assert!(said.contains(follows), "{said}");
    let named = [&grow[..], &["--partition", "2"]].concat();
    let (_, said) = ended(&named);
    assert!(said.contains("partition 2: "), "{said}");
    assert!(said.contains("a dm-verity hash tree"), "{said}");
    // Nothing that protects it was given up for what cannot be done.
    assert!(fs::read(&verified).unwrap() == before);
}

/// A disk that also has partitions in its MBR, which the entry for the GPT must not meet.
#[test]
fn a_disk_with_both_tables_keeps_the_other_one() {
    if !has_tool("sfdisk") || !has_tool("mke2fs") || !has_tool("sgdisk") {
        return;
    }
    let scratch = scratch();
    let image = disk(
        scratch.path(),
        "label: gpt\nstart=2048, size=8MiB\nsize=32MiB\n",
    );
    let name = text(&image);
    let verified = || {
        let said = run("sgdisk", &["-v", name]);
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("No problems found"), "{said}");
    };
    run("sgdisk", &["-h", "1:EE", name]);
    verified();
    let table = fs::read(&image).unwrap()[..512].to_vec();
    uext4_ok(&["grow", "--with-partition", name, "100M"]);
    assert!(fs::read(&image).unwrap()[..512] == table);
    verified();
    assert_eq!(inner(&image), 25_600);
}

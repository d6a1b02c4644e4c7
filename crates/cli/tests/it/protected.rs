//! What a dm-verity hash tree covers, or a table marks as read-only: is it changed by accident?

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::host::{assert_clean, has_tool, run, scratch, text, uext4, uext4_ok};
use crate::in_disk::partition;
use crate::served::{Served, can_serve};

fn source(dir: &Path) -> PathBuf {
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("hello"), "hello\n").unwrap();
    source
}

fn build(dir: &Path, more: &[&str]) -> (PathBuf, String) {
    let image = dir.join("image");
    let source = source(dir);
    let mut command = vec![
        "build",
        "--json",
        "--verity",
        text(&source),
        "-o",
        text(&image),
    ];
    command.extend(more);
    let made: Value = serde_json::from_slice(&uext4_ok(&command)).unwrap();
    let hash = made["root_hash"].as_str().unwrap().to_owned();
    (image, hash)
}

/// Each command that would change an image refuses it, and reading works.
fn is_refused(image: &Path, hello: &Path, hash: &str, words: &str) {
    let name = text(image);
    let before = fs::read(image).unwrap();
    let commands: [&[&str]; 9] = [
        &["put", name, text(hello), "/new"],
        &["mkdir", name, "/new"],
        &["rm", name, "/hello"],
        &["tune", "-L", "label", name],
        &["grow", name, "+10M"],
        &["grow", "--with-partition", name, "+10M"],
        &["shrink", "--min", name],
        &["trim", name],
        &["quota", name, "--set", "user:1000", "1M", "2M"],
    ];
    for command in commands {
        let output = uext4(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{command:?}: {said}");
        assert!(fs::read(image).unwrap() == before, "{command:?}");
        if ["put", "tune", "shrink"].contains(&command[0]) {
            assert!(said.contains(words), "{command:?}: {said}");
            assert!(said.contains("--drop-verity"), "{command:?}: {said}");
        }
    }
    for command in [
        &["ls", name, "/"][..],
        &["check", name],
        &["tar", name, "/"],
        // There is nothing to repair.
        &["repair", "-y", name],
        &["repair", "-p", name],
        &["repair", "-y", "--drop-verity", name],
        &["fsck", "-y", "-f", name],
        &["fsck", "-p", name],
        &["sync", name],
    ] {
        uext4_ok(command);
        assert!(fs::read(image).unwrap() == before, "{command:?}");
    }
    for reader in [
        &["ls", name][..],
        &["cat", name, "/hello"],
        &["check", name],
        &["info", name],
        &["tar", name, "/"],
        &["manifest", name],
        &["salvage", name, "-o", "never-made"],
        &["repair", "--plan", name],
    ] {
        let output = uext4(&[reader, &["--drop-verity"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let code = if reader[0] == "repair" { 16 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{reader:?}: {said}");
        assert!(said.contains("--drop-verity"), "{reader:?}: {said}");
        assert!(fs::read(image).unwrap() == before, "{reader:?}");
    }
    is_repaired_only_on_demand(image, words);
    fs::write(image, &before).unwrap();
    let info: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", name])).unwrap();
    assert_eq!(info["verity_root_hash"].as_str(), Some(hash));
    let copy = image.with_extension("copy");
    let cloned = uext4(&["clone", name, text(&copy)]);
    assert!(!cloned.status.success() && !copy.exists());
    uext4_ok(&["clone", "--keep-uuid", name, text(&copy)]);
    assert!(fs::read(&copy).unwrap() == before);
}

/// Where there is something to repair, that is refused before a question, and done on demand.
fn is_repaired_only_on_demand(image: &Path, words: &str) {
    let name = text(image);
    let mut damaged = fs::read(image).unwrap();
    let at = superblock_in(&damaged);
    // The count of free inodes; then also the checksum that covers it.
    damaged[at + 0x10] ^= 1;
    fs::write(image, &damaged).unwrap();
    uext4(&["check", name]);
    for command in [&["repair", "-y", name][..], &["fsck", "-y", "-f", name]] {
        let output = uext4(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{command:?}: {said}");
        assert!(said.contains(words), "{command:?}: {said}");
        assert!(said.contains("--drop-verity"), "{command:?}: {said}");
        assert!(fs::read(image).unwrap() == damaged, "{command:?}");
    }
    let output = uext4(&["repair", "--drop-verity", name]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no question can be asked"), "{said}");
    assert!(
        fs::read(image).unwrap() == damaged,
        "nothing goes before that"
    );
    let output = uext4(&["repair", "-y", "--drop-verity", name]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is given up"), "{said}");
    uext4_ok(&["check", name]);
    uext4_ok(&["mkdir", name, "/later"]);
}

/// Where the superblock lies, alone or in the first partition.
fn superblock_in(image: &[u8]) -> usize {
    let has_magic = |&at: &usize| image[at + 0x38..at + 0x3A] == [0x53, 0xEF];
    [1024, (1 << 20) + 1024]
        .into_iter()
        .find(has_magic)
        .unwrap()
}

#[test]
fn a_tree_behind_a_file_system_is_given_up_only_on_demand() {
    let scratch = scratch();
    let (image, hash) = build(scratch.path(), &[]);
    let hello = scratch.path().join("source/hello");
    is_refused(&image, &hello, &hash, "a dm-verity hash tree at byte");
    uext4_ok(&["put", "--drop-verity", text(&image), text(&hello), "/new"]);
    uext4_ok(&["mkdir", text(&image), "/more"]);
    let info: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", text(&image)])).unwrap();
    assert!(info["verity_root_hash"].is_null());
    uext4_ok(&["check", text(&image)]);
}

#[test]
fn a_partition_with_a_tree_is_given_up_only_on_demand() {
    let scratch = scratch();
    let (image, hash) = build(scratch.path(), &["--gpt", "--gpt-type", "root-x86-64"]);
    let hello = scratch.path().join("source/hello");
    is_refused(
        &image,
        &hello,
        &hash,
        "a dm-verity hash tree in partition 2",
    );
    uext4_ok(&["tune", "--drop-verity", "-L", "mine", text(&image)]);
    uext4_ok(&["mkdir", text(&image), "/more"]);
    uext4_ok(&["check", text(&image)]);
    if has_tool("sfdisk") {
        run("sfdisk", &["--verify", text(&image)]);
        let dump = run("sfdisk", &["-d", text(&image)]);
        let dump = String::from_utf8(dump).unwrap();
        let first = dump
            .lines()
            .find(|line| line.contains("name=\"root-x86-64\""));
        assert!(!first.unwrap().contains("GUID:60"), "{dump}");
    }
}

#[test]
fn a_footer_of_verified_boot_is_given_up_only_on_demand() {
    let scratch = scratch();
    let (image, source) = (scratch.path().join("image"), source(scratch.path()));
    uext4_ok(&["build", "-q", text(&source), "-o", text(&image)]);
    let mut bytes = fs::read(&image).unwrap();
    let (fs_len, len) = (bytes.len(), bytes.len() + (1 << 20));
    bytes.resize(len, 0);
    // As avbtool lays it out: the signed descriptors follow the file system.
    let footer = &mut bytes[len - 64..];
    footer[..8].copy_from_slice(b"AVBf\0\0\0\x01");
    for (at, number) in [(12, fs_len), (20, fs_len + 4096), (28, 2048)] {
        for (place, byte) in footer[at..at + 8].iter_mut().rev().enumerate() {
            *byte = (number >> (8 * place)) as u8;
        }
    }
    fs::write(&image, &bytes).unwrap();
    let (name, hello) = (text(&image), source.join("hello"));
    for command in [
        &["put", name, text(&hello), "/new"][..],
        &["tune", "-L", "label", name],
        &["grow", name],
        &["shrink", "--min", name],
        &["repair", "-y", "-D", name],
    ] {
        let output = uext4(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{command:?}: {said}");
        assert!(
            said.contains("Android Verified Boot"),
            "{command:?}: {said}"
        );
        assert!(said.contains("--drop-verity"), "{command:?}: {said}");
        assert!(fs::read(&image).unwrap() == bytes, "{command:?}");
    }
    let info = |key: &str| {
        let info: Value = serde_json::from_slice(&uext4_ok(&["info", "--json", name])).unwrap();
        info[key].as_u64()
    };
    assert_eq!(info("avb_footer"), Some(len as u64 - 64));
    assert_eq!(info("avb_image_size"), Some(fs_len as u64));
    uext4_ok(&["put", "--drop-verity", name, text(&hello), "/new"]);
    assert_eq!(info("avb_footer"), None);
    uext4_ok(&["grow", name]);
    uext4_ok(&["check", name]);
}

#[test]
fn the_mark_alone_refuses_too() {
    if !has_tool("sfdisk") {
        return;
    }
    let scratch = scratch();
    let (image, source) = (scratch.path().join("image"), source(scratch.path()));
    uext4_ok(&["build", "-q", "--gpt", text(&source), "-o", text(&image)]);
    uext4_ok(&["mkdir", text(&image), "/one"]);
    run("sfdisk", &["--part-attrs", text(&image), "1", "GUID:60"]);
    let refused = uext4(&["mkdir", text(&image), "/two"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("partition 1 is marked as read-only"),
        "{said}"
    );
    uext4_ok(&["mkdir", "--drop-verity", text(&image), "/two"]);
    uext4_ok(&["mkdir", text(&image), "/three"]);
    run("sfdisk", &["--verify", text(&image)]);
}

#[test]
fn a_mount_of_it_is_read_only() {
    if !can_serve() {
        return;
    }
    let scratch = scratch();
    let (image, _) = build(scratch.path(), &[]);
    let before = fs::read(&image).unwrap();
    let dir = scratch.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let served = Served::new(&image, &dir, "noatime");
    assert_eq!(fs::read(dir.join("hello")).unwrap(), b"hello\n");
    let refused = fs::write(dir.join("new"), "new").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    drop(served);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn what_is_formatted_loses_its_protection_only_on_demand() {
    let scratch = scratch();
    let (image, _) = build(scratch.path(), &["--gpt", "--gpt-type", "root-x86-64"]);
    let source = scratch.path().join("source");
    let (name, source) = (text(&image), text(&source));
    let before = fs::read(&image).unwrap();
    let commands: [&[&str]; 4] = [
        &["mkfs", "-q", "-F", "--partition", "1", name],
        &["mkfs", "-q", "-F", "-E", "offset=1M", name],
        &["mkfs", "-q", "-F", "-d", source, "--partition", "1", name],
        &["build", "-q", "-F", source, "--partition", "1", "-o", name],
    ];
    for command in commands {
        fs::write(&image, &before).unwrap();
        let output = uext4(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{command:?}: {said}");
        assert!(said.contains("--drop-verity"), "{command:?}: {said}");
        assert!(fs::read(&image).unwrap() == before, "{command:?}");
        let mut command = command.to_vec();
        command.push("--drop-verity");
        uext4_ok(&command);
        uext4_ok(&["mkdir", name, "/new"]);
        uext4_ok(&["check", name]);
        if has_tool("sfdisk") {
            run("sfdisk", &["--verify", name]);
        }
    }
}

/// Where a tree begins in bytes.
fn tree_at(bytes: &[u8]) -> usize {
    let mut blocks = (0..bytes.len()).step_by(4096);
    blocks
        .find(|&at| bytes[at..].starts_with(b"verity\0\0"))
        .unwrap()
}

#[test]
fn a_new_file_system_has_no_old_tree() {
    let scratch = scratch();
    let (image, _) = build(scratch.path(), &["--size", "20M"]);
    let source = scratch.path().join("source");
    let old = fs::read(&image).unwrap();
    let size = format!("{}K", tree_at(&old) / 1024);
    let name = text(&image);
    uext4_ok(&["mkfs", "-q", "-F", name, &size]);
    uext4_ok(&["mkdir", name, "/new"]);
    // The same behind another one's partition, or in what follows a byte.
    let mut disk = vec![0; 1 << 20];
    disk.extend(&old);
    let source = text(&source);
    let commands: [&[&str]; 2] = [
        &["mkfs", "-q", "-F", "-E", "offset=1M", name, &size],
        &[
            "build",
            "-q",
            "-F",
            source,
            "-E",
            "offset=1M",
            "--size",
            &size,
            "-o",
            name,
        ],
    ];
    for command in commands {
        fs::write(&image, &disk).unwrap();
        uext4_ok(command);
        uext4_ok(&["mkdir", "--offset", "1M", name, "/new"]);
    }
}

/// Two partitions of one length, as of a device that is updated in turn; the tree covers the file
/// system of the first, which is shorter than its partition.
#[test]
fn a_tree_in_its_own_partition_covers_the_file_system_of_its_length() {
    if !has_tool("sfdisk") {
        return;
    }
    let scratch = scratch();
    let (image, _) = build(scratch.path(), &["--size", "20M"]);
    let verified = fs::read(&image).unwrap();
    let (data, tree) = verified.split_at(tree_at(&verified));
    let disk = scratch.path().join("disk");
    fs::write(&disk, vec![0; 80 << 20]).unwrap();
    let table = "label: gpt\nstart=2048, size=24MiB\nsize=24MiB\nsize=24MiB\n";
    partition(&disk, table);
    let mut bytes = fs::read(&disk).unwrap();
    let mut put = |part: usize, what: &[u8]| {
        let at = (1 << 20) + part * (24 << 20);
        bytes[at..at + what.len()].copy_from_slice(what);
    };
    put(0, data);
    put(2, tree);
    fs::write(&disk, &bytes).unwrap();
    let name = text(&disk);
    uext4_ok(&["mkfs", "-q", "-F", "--partition", "2", name]);
    let before = fs::read(&disk).unwrap();
    let refused = uext4(&["mkdir", "--partition", "1", name, "/new"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("hash tree in partition 3"), "{said}");
    assert!(fs::read(&disk).unwrap() == before);
    uext4_ok(&["mkdir", "--partition", "2", name, "/new"]);
    uext4_ok(&["mkdir", "--drop-verity", "--partition", "1", name, "/new"]);
    let first = scratch.path().join("first");
    fs::write(&first, &fs::read(&disk).unwrap()[1 << 20..25 << 20]).unwrap();
    assert_clean(&first);
}
